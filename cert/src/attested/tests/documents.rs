//! A test CA of three levels, and documents in the form of Azure's: signed without attributes.

use std::sync::OnceLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use ironmesh_catalog::TrustBundle;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256,
};

use crate::inspect;
use crate::{AZURE_SIGNER_DOMAIN, AttestedDocumentVerifier};

// Algorithms, as the contents of object identifiers in DER.
pub(super) const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
pub(super) const SHA256_WITH_RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b";
pub(super) const SHA384_WITH_RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c";
pub(super) const SHA256: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x02\x01";
pub(super) const SHA1: &[u8] = b"\x2b\x0e\x03\x02\x1a";
const DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const SIGNED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";

pub(super) fn now() -> Timestamp {
    "2026-11-27T12:00:00Z".parse().unwrap()
}

/// A root, an intermediate, and the key of signers.
pub(in crate::attested) struct TestCa {
    root: String,
    intermediate: String,
    intermediate_issuer: Issuer<'static, KeyPair>,
    signer_key: KeyPair,
}

/// The certificate and the key of a signer.
#[derive(Clone)]
pub(super) struct TestSigner {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TestCa {
    /// The CA of all documents, made once: an RSA key takes a while.
    pub(in crate::attested) fn shared() -> &'static Self {
        static CA: OnceLock<TestCa> = OnceLock::new();
        CA.get_or_init(|| Self::new("test"))
    }

    /// A new CA. `name` begins the common names of its root and its intermediate.
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = authority(&format!("{name} root"));
        let root = params.self_signed(&key).unwrap().pem();
        let root_issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = authority(&format!("{name} intermediate"));
        let intermediate = params.signed_by(&key, &root_issuer).unwrap().pem();
        let intermediate_issuer = Issuer::new(params, key);
        let signer_key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        Self { root, intermediate, intermediate_issuer, signer_key }
    }

    pub(in crate::attested) fn roots(&self) -> TrustBundle {
        TrustBundle { roots: self.root.clone() }
    }

    pub(super) fn verifier(&self) -> AttestedDocumentVerifier {
        self.verifier_with(&self.intermediate)
    }

    pub(super) fn verifier_with(&self, intermediates: &str) -> AttestedDocumentVerifier {
        AttestedDocumentVerifier::new(&self.roots(), intermediates, AZURE_SIGNER_DOMAIN).unwrap()
    }

    pub(super) fn intermediate_der(&self) -> Vec<u8> {
        inspect::certificates(&self.intermediate).unwrap().remove(0).to_vec()
    }

    pub(super) fn signer(&self, name: &str) -> TestSigner {
        let mut params = params(name);
        params.subject_alt_names =
            CertificateParams::new([name.to_owned()]).unwrap().subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.signer_key, &self.intermediate_issuer).unwrap();
        TestSigner { certificate: certificate.der().to_vec(), key: self.signer_key.serialize_der() }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2028, 1, 1);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// A document before it is signed. Tests change its parts.
pub(super) struct Document {
    pub(super) content: String,
    pub(super) signer: TestSigner,
    pub(super) has_signer_certificate: bool,
    /// Certificates before that of the signer.
    pub(super) certificates: Vec<Vec<u8>>,
    pub(super) signers: usize,
    pub(super) attributes: Vec<u8>,
    pub(super) digest_algorithm: &'static [u8],
    pub(super) signature_algorithm: &'static [u8],
}

impl Document {
    pub(super) fn new(nonce: &str) -> Self {
        let time = |time: Timestamp| time.strftime("%m/%d/%y %H:%M:%S -0000").to_string();
        let created = time(now() - SignedDuration::from_secs(1));
        let expires = time(now() + SignedDuration::from_hours(6));
        let content = format!(
            r#"{{"licenseType":"","nonce":"{nonce}","plan":{{"name":"","product":"","publisher":""}},"sku":"22_04-lts-gen2","subscriptionId":"8d10da13-8125-4ba9-a717-bf7490507b3d","timeStamp":{{"createdOn":"{created}","expiresOn":"{expires}"}},"vmId":"02aab8a4-74ef-476e-8182-f6d2ba4166a6"}}"#
        );
        Self {
            content,
            signer: TestCa::shared().signer("metadata.azure.com"),
            has_signer_certificate: true,
            certificates: Vec::new(),
            signers: 1,
            attributes: Vec::new(),
            digest_algorithm: SHA256_WITH_RSA,
            signature_algorithm: RSA,
        }
    }

    /// Signs it, and encodes it as IMDS does.
    pub(super) fn encode(&self) -> String {
        let content = tlv(0x04, self.content.as_bytes());
        let encapsulated = sequence(&[&tlv(0x06, DATA), &tlv(0xa0, &content)]);
        let mut certificates = self.certificates.concat();
        if self.has_signer_certificate {
            certificates.extend_from_slice(&self.signer.certificate);
        }
        let digest_algorithm = algorithm(self.digest_algorithm);
        let signed = sequence(&[
            &tlv(0x02, &[1]),
            &tlv(0x31, &digest_algorithm),
            &encapsulated,
            &tlv(0xa0, &certificates),
            &tlv(0x31, &self.signer_info().repeat(self.signers)),
        ]);
        let document = sequence(&[&tlv(0x06, SIGNED_DATA), &tlv(0xa0, &signed)]);
        data_encoding::BASE64.encode(&document)
    }

    fn signer_info(&self) -> Vec<u8> {
        let certificate = inspect::parse(&self.signer.certificate).unwrap();
        let serial = tlv(0x02, certificate.raw_serial());
        let key = RsaKeyPair::from_pkcs8(&self.signer.key).unwrap();
        let mut signature = vec![0; key.public_modulus_len()];
        let content = self.content.as_bytes();
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), content, &mut signature).unwrap();
        sequence(&[
            &tlv(0x02, &[1]),
            &sequence(&[certificate.issuer().as_raw(), &serial]),
            &algorithm(self.digest_algorithm),
            &self.attributes,
            &algorithm(self.signature_algorithm),
            &tlv(0x04, &signature),
        ])
    }
}

fn algorithm(identifier: &[u8]) -> Vec<u8> {
    sequence(&[&tlv(0x06, identifier), &tlv(0x05, &[])])
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

/// An element in DER of up to 64 KiB.
pub(super) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let header = match (high, low) {
        (0, ..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [header.as_slice(), content].concat()
}
