//! Certificate signing requests of proxies: creates one where the key is created, and reads one.
//!
//! From a request it reads only the public key, after the request proves that its sender holds the private
//! key. It ignores the names and usages in the request.

use ironmesh_catalog::Secret;
use rcgen::{CertificateParams, DistinguishedName, SubjectPublicKeyInfo};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509;

/// Creates a private key for a proxy, and the signing request for its certificate, both in PEM. It must run
/// on the proxy's machine, where the key stays.
pub fn generate_proxy_key_and_csr() -> Result<(Secret, String), RequestError> {
    let key = crate::profile::new_key().map_err(RequestError::Make)?;
    let mut content = CertificateParams::default();
    // The request has no names: they come from the join record.
    content.distinguished_name = DistinguishedName::new();
    let request = content.serialize_request(&key).map_err(RequestError::Make)?;
    let pem = request.pem().map_err(RequestError::Make)?;
    Ok((Secret::new(key.serialize_pem()), pem))
}

/// The public key of the request, whose sender has proved that it holds the private key.
pub(crate) fn public_key(csr_pem: &str) -> Result<SubjectPublicKeyInfo, RequestError> {
    if csr_pem.len() > MAX_LENGTH {
        return Err(RequestError::TooLong { length: csr_pem.len() });
    }
    let der = CertificateSigningRequestDer::from_pem_slice(csr_pem.as_bytes())
        .map_err(|_| RequestError::Unreadable)?;
    let Ok((&[], request)) = X509CertificationRequest::from_der(&der) else {
        return Err(RequestError::Unreadable);
    };
    let key = &request.certification_request_info.subject_pki;
    if !is_p256(key) {
        return Err(RequestError::OtherKey);
    }
    request.verify_signature().map_err(|_| RequestError::Signature)?;
    SubjectPublicKeyInfo::from_der(key.raw).map_err(|_| RequestError::OtherKey)
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
