//! Certificate signing requests of proxies: creates one where the key is created, and reads one.
//!
//! From a request it reads only the public key, after the request proves that its sender holds the private
//! key. It ignores the names and usages in the request.

use ironmesh_catalog::{KeyHash, Secret};
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, SubjectPublicKeyInfo,
};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509;

use crate::peer::key_hash;

/// Creates a private key for a proxy, and the signing request for its certificate, both in PEM. It must run
/// on the proxy's machine, where the key stays.
pub fn generate_proxy_key_and_csr() -> Result<(Secret, String), RequestError> {
    let key = crate::profile::new_key().map_err(RequestError::Make)?;
    let request = request_for(&key)?;
    Ok((Secret::new(key.serialize_pem()), request))
}

/// Creates a signing request for a proxy's key (PKCS#8 in PEM), as [`generate_proxy_key_and_csr`] does.
pub fn proxy_csr(key: &Secret) -> Result<String, RequestError> {
    let key = KeyPair::from_pem(key.expose()).map_err(RequestError::Make)?;
    if !key.is_compatible(&PKCS_ECDSA_P256_SHA256) {
        return Err(RequestError::OtherKey);
    }
    request_for(&key)
}

/// The signing request for a key, in PEM.
fn request_for(key: &KeyPair) -> Result<String, RequestError> {
    let mut content = CertificateParams::default();
    // The request has no names: they come from the join record.
    content.distinguished_name = DistinguishedName::new();
    let request = content.serialize_request(key).map_err(RequestError::Make)?;
    request.pem().map_err(RequestError::Make)
}

/// The signing request of a machine, which proves that its sender holds the private key and asks for no name.
///
/// [`Authority::issue_proxy_certificate`] never copies a name or a usage. Such a request is rejected all the
/// same, because its certificate would not have what it states.
///
/// [`Authority::issue_proxy_certificate`]: crate::Authority::issue_proxy_certificate
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRequest {
    pem: String,
    public_key: Vec<u8>,
}

impl MachineRequest {
    /// Checks size, encoding, key type, signature, and that it has neither a subject nor attributes.
    pub fn parse(pem: &str) -> Result<Self, RequestError> {
        check(pem, |request| {
            let content = &request.certification_request_info;
            let has_subject = content.subject.iter().next().is_some();
            if has_subject || !content.attributes().is_empty() {
                return Err(RequestError::Names);
            }
            Ok(Self { pem: pem.to_owned(), public_key: content.subject_pki.raw.to_vec() })
        })
    }

    /// The request in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its public key, as a SubjectPublicKeyInfo in DER.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// The hash of its public key.
    pub fn key_hash(&self) -> KeyHash {
        key_hash(&self.public_key)
    }
}

/// The public key of the request, whose sender has proved that it holds the private key.
pub(crate) fn public_key(csr_pem: &str) -> Result<SubjectPublicKeyInfo, RequestError> {
    check(csr_pem, |request| {
        let key = &request.certification_request_info.subject_pki;
        SubjectPublicKeyInfo::from_der(key.raw).map_err(|_| RequestError::OtherKey)
    })
}

/// Reads a request whose key is accepted and has signed it.
fn check<T>(
    csr_pem: &str,
    read: impl FnOnce(&X509CertificationRequest<'_>) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    if csr_pem.len() > MAX_LENGTH {
        return Err(RequestError::TooLong { length: csr_pem.len() });
    }
    let der = CertificateSigningRequestDer::from_pem_slice(csr_pem.as_bytes())
        .map_err(|_| RequestError::Unreadable)?;
    let Ok((&[], request)) = X509CertificationRequest::from_der(&der) else {
        return Err(RequestError::Unreadable);
    };
    if !is_p256(&request.certification_request_info.subject_pki) {
        return Err(RequestError::OtherKey);
    }
    request.verify_signature().map_err(|_| RequestError::Signature)?;
    read(&request)
}

/// A request that cannot be created, or is rejected.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is longer than any valid request.
    #[error("certificate signing request is longer than {MAX_LENGTH} bytes: {length}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It is not PEM of a PKCS#10 request.
    #[error("certificate signing request is not PEM (`BEGIN CERTIFICATE REQUEST`)")]
    Unreadable,
    /// Its key has another type.
    #[error(
        "certificate signing request has an unsupported key type: only ECDSA P-256 is accepted"
    )]
    OtherKey,
    /// Its signature is not by its key.
    #[error("certificate signing request is not signed by the key that it is for")]
    Signature,
    /// It has a subject or attributes.
    #[error(
        "certificate signing request has a subject or attributes: leave them out, because the join record names the proxy (openssl: `-subj /`, without extensions)"
    )]
    Names,
    /// A key or a request could not be created.
    #[error("certificate signing request cannot be made")]
    Make(#[source] rcgen::Error),
}

fn is_p256(key: &x509::SubjectPublicKeyInfo<'_>) -> bool {
    let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_EC_P256)
}

/// A request for a P-256 key has about 400 bytes.
const MAX_LENGTH: usize = 16 * 1024;
