//! The proof of possession: a machine shows that it holds the key of its expired certificate.
//!
//! The signed statement binds the nonce, the certificate request, the certificate and the control plane, so that
//! a signature serves for nothing else. All its parts have a fixed length: no two inputs make the same statement.

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use data_encoding::HEXLOWER;
use ironmesh_catalog::Secret;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateSigningRequestDer, PrivatePkcs8KeyDer};

/// What the signature is for.
const CONTEXT: &[u8] = b"ironmesh renew-expired v1\0";

/// The statement to sign; `None` if the request is not PEM.
pub(crate) fn statement(
    nonce: &str,
    certificate_request: &str,
    certificate: &[u8],
    control_plane: &str,
) -> Option<Vec<u8>> {
    let request = CertificateSigningRequestDer::from_pem_slice(certificate_request.as_bytes());
    let request = request.ok()?;
    let mut statement = CONTEXT.to_vec();
    for part in [nonce.as_bytes(), &request, certificate, control_plane.as_bytes()] {
        statement.extend_from_slice(digest::digest(&digest::SHA256, part).as_ref());
    }
    Some(statement)
}

/// The signature of `statement` by `key` (PKCS#8 in PEM), in hexadecimal.
pub(crate) fn sign(key: &Secret, statement: &[u8]) -> Result<String, UnusableKey> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(key.expose().as_bytes());
    let key = key.map_err(|_| UnusableKey)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_pkcs8_der());
    let key = key.map_err(|_| UnusableKey)?;
    let signature = key.sign(&SystemRandom::new(), statement).map_err(|_| UnusableKey)?;
    Ok(HEXLOWER.encode(signature.as_ref()))
}

/// Whether `signature` is that of `statement` by the private key of `public_key` (SubjectPublicKeyInfo in DER).
pub(crate) fn is_signed(public_key: &[u8], statement: &[u8], signature: &str) -> bool {
    let Ok(signature) = HEXLOWER.decode(signature.as_bytes()) else { return false };
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key);
    key.verify(statement, &signature).is_ok()
}

/// A private key that cannot sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("private key is not an ECDSA P-256 key in PKCS#8 (`BEGIN PRIVATE KEY`)")]
pub struct UnusableKey;
