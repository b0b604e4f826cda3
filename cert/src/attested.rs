//! Azure attested documents: which machine one is about, if Azure signed it for this nonce.
//!
//! The Instance Metadata Service (IMDS) of an Azure machine signs a document for each process of that
//! machine that requests one: PKCS#7, with JSON inside. It proves that its sender could reach the IMDS of the machine `vmId`
//! after the nonce was known. It proves neither which program asked nor what the machine may serve: both are
//! the caller's checks. This module opens no socket: roots and intermediates are given to it.
//!
//! Checks come in this order, so that nothing unsigned is interpreted: size, structure, one signer, signature,
//! the signer's name, its chain, then the content with nonce and time.
//!
//! Source: Azure Instance Metadata Service, "attested data" (`GET /metadata/attested/document`).

use aws_lc_rs::digest;
use ironmesh_catalog::{ProxyId, TrustBundle};
use jiff::{SignedDuration, Timestamp};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use uuid::Uuid;

use crate::{inspect, tls};

mod content;
mod error;
mod known_roots;
mod signature;
mod signed_data;

pub use error::{AttestedDocumentError, AttestedTrustError};
pub use known_roots::azure_roots;

use content::Content;
use signed_data::SignedData;

/// The domain of the signers of Azure's public cloud; Azure Government has `metadata.azure.us`, and Azure in
/// China `metadata.azure.cn`.
pub const AZURE_SIGNER_DOMAIN: &str = "metadata.azure.com";

/// The longest document in bytes of base64: room for eight certificates of 2 KiB beside the content.
pub const MAX_ATTESTED_DOCUMENT: usize = 32 * 1024;

/// How far Azure's clock may be ahead of this one. A clock that is behind by more rejects new documents.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Verifies attested documents of one Azure cloud.
#[derive(Debug, Clone)]
pub struct AttestedDocumentVerifier {
    roots: RootCertStore,
    intermediates: Vec<CertificateDer<'static>>,
    domain: String,
}

/// A machine that Azure attested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedMachine {
    /// Azure's id of the machine (`vmId`).
    pub vm_id: Uuid,
    /// The subscription of the machine.
    pub subscription_id: Uuid,
    /// When Azure created the document.
    pub created_at: Timestamp,
    /// When the document expires, which Azure decides.
    pub expires_at: Timestamp,
}

impl AttestedMachine {
    /// The id of the machine's proxy after `predecessor`, its last one. Control planes that enroll the machine at the
    /// same time thus write the same record, and one of them fails.
    pub fn proxy_id(&self, predecessor: Option<ProxyId>) -> ProxyId {
        let predecessor = predecessor.map(|id| id.0).unwrap_or_default();
        let both = [*self.vm_id.as_bytes(), *predecessor.as_bytes()].concat();
        let digest = digest::digest(&digest::SHA256, &both);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(byte, of_digest)| *byte = *of_digest);
        // (UUID version 8: by a hash of the issuer's choice.)
        ProxyId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl AttestedDocumentVerifier {
    /// A verifier of documents whose signer has a name in `domain`, such as [`AZURE_SIGNER_DOMAIN`], and a
    /// chain to one of `roots`.
    ///
    /// `intermediates` (PEM, may be empty) complete chains: Azure sends the signer's certificate alone.
    ///
    /// # Errors
    ///
    /// If certificates do not parse, there is no root, or `domain` is no domain name.
    pub fn new(
        roots: &TrustBundle,
        intermediates: &str,
        domain: &str,
    ) -> Result<Self, AttestedTrustError> {
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !domain.contains('.') || !domain.split('.').all(is_label) {
            return Err(AttestedTrustError::Domain { domain: domain.to_owned() });
        }
        let intermediates = if intermediates.trim().is_empty() {
            Vec::new()
        } else {
            inspect::certificates(intermediates).map_err(AttestedTrustError::Intermediates)?
        };
        let roots = tls::roots(roots).map_err(AttestedTrustError::Roots)?;
        Ok(Self { roots, intermediates, domain: domain.to_ascii_lowercase() })
    }

    /// The machine of `document`, the base64 text that IMDS calls `signature`, if Azure signed it for `nonce`
    /// and it is valid at `now`.
    ///
    /// # Errors
    ///
    /// If any check fails; the document then proves nothing.
    pub fn verify(
        &self,
        document: &str,
        nonce: &str,
        now: Timestamp,
    ) -> Result<AttestedMachine, AttestedDocumentError> {
        if document.len() > MAX_ATTESTED_DOCUMENT {
            return Err(AttestedDocumentError::TooLong { length: document.len() });
        }
        let der = data_encoding::BASE64
            .decode(document.as_bytes())
            .map_err(AttestedDocumentError::Encoding)?;
        let signed = SignedData::parse(&der)?;
        let signer = signed.signer_certificate()?;
        signature::verify(&signed, &signer.certificate)?;
        self.check_name(&signer.certificate)?;
        self.check_chain(&signer, &signed, now)?;
        Content::parse(signed.content)?.check(nonce, now)
    }

    /// Checks that the signer has a name in the domain: the domain itself, or one below it. Azure's signers use
    /// both.
    fn check_name(
        &self,
        signer: &x509_parser::certificate::X509Certificate<'_>,
    ) -> Result<(), AttestedDocumentError> {
        let names = inspect::dns_names(signer).map_err(AttestedDocumentError::Certificate)?;
        let is_in_domain = |name: &String| {
            let name = name.to_ascii_lowercase();
            let parent = name.strip_suffix(&self.domain);
            parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
        };
        if names.iter().any(is_in_domain) {
            return Ok(());
        }
        Err(AttestedDocumentError::OtherSigner { names, domain: self.domain.clone() })
    }

    /// Checks the chain of the signer as that of a TLS server. Its certificate has that usage, and may have no
    /// other. Nothing checks revocation: the chain's lists are on the internet.
    fn check_chain(
        &self,
        signer: &signed_data::Signer<'_>,
        signed: &SignedData<'_>,
        now: Timestamp,
    ) -> Result<(), AttestedDocumentError> {
        let leaf = CertificateDer::from(signer.der);
        let leaf = ParsedCertificate::try_from(&leaf).map_err(AttestedDocumentError::Chain)?;
        let mut issuers: Vec<_> = signed.certificates.iter().copied().map(Into::into).collect();
        issuers.extend(self.intermediates.iter().cloned());
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let verified = rustls::client::verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &self.roots,
            &issuers,
            time,
            tls::provider().signature_verification_algorithms.all,
        );
        verified.map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                AttestedDocumentError::UnknownIssuer {
                    issuer: signer.certificate.issuer().to_string(),
                }
            }
            rustls::Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => AttestedDocumentError::ChainTime(error),
            error => AttestedDocumentError::Chain(error),
        })
    }
}

#[cfg(test)]
mod tests;
