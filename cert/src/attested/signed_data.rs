//! PKCS#7 signed data (RFC 2315 and RFC 5652, section 5) as far as Azure's documents use it.
//!
//! It returns slices of the input: what is verified is what was received, byte by byte, and nothing is encoded
//! again. It verifies nothing.

use x509_parser::asn1_rs::{Any, FromDer as _, Oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_PKCS7_ID_DATA, OID_PKCS7_ID_SIGNED_DATA};

use super::AttestedDocumentError;
use crate::inspect;

/// The most certificates of a document: Azure sends the signer's, and its chain has four with the root.
pub(super) const MAX_CERTIFICATES: usize = 8;

/// A document of one signer. All slices are parts of the input.
#[derive(Debug)]
pub(super) struct SignedData<'a> {
    /// The signed bytes.
    pub(super) content: &'a [u8],
    /// Certificates in DER, in any order. Nothing vouches for them.
    pub(super) certificates: Vec<&'a [u8]>,
    /// The name of the signer's issuer in DER, and the signer's serial number.
    issuer: &'a [u8],
    serial: &'a [u8],
    /// The digest and the signature algorithm of the signer.
    pub(super) digest_algorithm: Oid<'a>,
    pub(super) signature_algorithm: Oid<'a>,
    /// The signature over the content.
    pub(super) signature: &'a [u8],
}

/// The certificate that the signer names, which is not always the first one.
#[derive(Debug)]
pub(super) struct Signer<'a> {
    pub(super) der: &'a [u8],
    pub(super) certificate: X509Certificate<'a>,
}

impl<'a> SignedData<'a> {
    /// Reads a document with exactly one signer and no signed attributes.
    pub(super) fn parse(der: &'a [u8]) -> Result<Self, AttestedDocumentError> {
        let mut outside = Elements(der);
        let mut info = outside.next(SEQUENCE, "content info")?.elements();
        outside.end("end")?;
        info.object_identifier(&OID_PKCS7_ID_SIGNED_DATA, "content type")?;
        let mut explicit = info.next(CONTEXT_0, "signed data")?.elements();
        let mut data = explicit.next(SEQUENCE, "signed data")?.elements();
        data.next(INTEGER, "version")?;
        // The list only repeats the signer's digest algorithm.
        data.next(SET, "digest algorithms")?;
        let content = content(data.next(SEQUENCE, "content")?.elements())?;
        let certificates = match data.next_if(CONTEXT_0)? {
            Some(list) => certificates(list.elements())?,
            None => Vec::new(),
        };
        // Revocation lists: nothing vouches for them.
        data.next_if(CONTEXT_1)?;
        let mut signers = data.next(SET, "signers")?.elements();
        data.end("signers")?;
        let signer = signers.next_if(SEQUENCE)?;
        let mut count = usize::from(signer.is_some());
        while signers.next_if(SEQUENCE)?.is_some() {
            count += 1;
        }
        signers.end("signers")?;
        match signer {
            Some(signer) if count == 1 => Self::of_signer(content, certificates, signer),
            _ => Err(AttestedDocumentError::Signers { count }),
        }
    }

    fn of_signer(
        content: &'a [u8],
        certificates: Vec<&'a [u8]>,
        signer: Element<'a>,
    ) -> Result<Self, AttestedDocumentError> {
        let mut signer = signer.elements();
        signer.next(INTEGER, "version of the signer")?;
        // PKCS#7 names a signer by issuer and serial number alone; the key identifier is newer (RFC 5652).
        let mut name = signer.next(SEQUENCE, "name of the signer")?.elements();
        let issuer = name.next(SEQUENCE, "issuer of the signer")?.raw;
        let serial = name.next(INTEGER, "serial number of the signer")?.content;
        let digest_algorithm = signer.algorithm("digest algorithm")?;
        if signer.next_if(CONTEXT_0)?.is_some() {
            return Err(AttestedDocumentError::SignedAttributes);
        }
        let signature_algorithm = signer.algorithm("signature algorithm")?;
        let signature = signer.next(OCTET_STRING, "signature")?.content;
        // Unsigned attributes: nothing vouches for them.
        signer.next_if(CONTEXT_1)?;
        signer.end("signature")?;
        Ok(Self {
            content,
            certificates,
            issuer,
            serial,
            digest_algorithm,
            signature_algorithm,
            signature,
        })
    }

    /// The certificate that the signer names.
    pub(super) fn signer_certificate(&self) -> Result<Signer<'a>, AttestedDocumentError> {
        for der in &self.certificates {
            let certificate = inspect::parse(der).map_err(AttestedDocumentError::Certificate)?;
            if certificate.issuer().as_raw() == self.issuer
                && certificate.raw_serial() == self.serial
            {
                return Ok(Signer { der, certificate });
            }
        }
        Err(AttestedDocumentError::NoSignerCertificate)
    }
}

fn content(mut elements: Elements<'_>) -> Result<&[u8], AttestedDocumentError> {
    elements.object_identifier(&OID_PKCS7_ID_DATA, "type of the content")?;
    let mut explicit = elements.next(CONTEXT_0, "content")?.elements();
    let content = explicit.next(OCTET_STRING, "content")?.content;
    explicit.end("content")?;
    elements.end("content")?;
    Ok(content)
}

fn certificates(mut elements: Elements<'_>) -> Result<Vec<&[u8]>, AttestedDocumentError> {
    let mut all = Vec::new();
    while let Some(certificate) = elements.next_if(SEQUENCE)? {
        if all.len() == MAX_CERTIFICATES {
            return Err(AttestedDocumentError::TooManyCertificates);
        }
        all.push(certificate.raw);
    }
    elements.end("certificates")?;
    Ok(all)
}

/// One element in DER.
#[derive(Debug, Clone, Copy)]
struct Element<'a> {
    raw: &'a [u8],
    content: &'a [u8],
}

impl<'a> Element<'a> {
    fn elements(self) -> Elements<'a> {
        Elements(self.content)
    }
}

/// The elements that are not read yet.
#[derive(Debug)]
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The next element, which must have the tag.
    fn next(&mut self, tag: u8, part: &'static str) -> Result<Element<'a>, AttestedDocumentError> {
        let input = self.0;
        let malformed = AttestedDocumentError::Structure { part };
        if input.first() != Some(&tag) {
            return Err(malformed);
        }
        let Ok((rest, any)) = Any::from_der(input) else {
            return Err(malformed);
        };
        let raw = input.get(..input.len() - rest.len()).unwrap_or_default();
        self.0 = rest;
        Ok(Element { raw, content: any.data })
    }

    /// The next element, if it has the tag.
    fn next_if(&mut self, tag: u8) -> Result<Option<Element<'a>>, AttestedDocumentError> {
        if self.0.first() == Some(&tag) { self.next(tag, "length").map(Some) } else { Ok(None) }
    }

    fn object_identifier(
        &mut self,
        expected: &Oid<'_>,
        part: &'static str,
    ) -> Result<(), AttestedDocumentError> {
        let found = self.next(OBJECT_IDENTIFIER, part)?.content;
        if found == expected.as_bytes() {
            return Ok(());
        }
        Err(AttestedDocumentError::Structure { part })
    }

    /// The object identifier of an algorithm. RSA's have no parameters that matter.
    fn algorithm(&mut self, part: &'static str) -> Result<Oid<'a>, AttestedDocumentError> {
        let mut algorithm = self.next(SEQUENCE, part)?.elements();
        Ok(Oid::new(algorithm.next(OBJECT_IDENTIFIER, part)?.content.into()))
    }

    fn end(&self, part: &'static str) -> Result<(), AttestedDocumentError> {
        if self.0.is_empty() { Ok(()) } else { Err(AttestedDocumentError::Structure { part }) }
    }
}

// The first bytes of elements (X.690, section 8.1.2).
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;
