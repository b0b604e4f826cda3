//! The nonce of Azure's attested documents, which binds a document to a challenge and to the machine's key.
//!
//! A document for another key or another challenge has another nonce: who sees one on its way cannot use it.

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;

/// The number of digits: IMDS accepts at most 32 letters and digits.
const DIGITS: usize = 32;

/// The nonce for a challenge of the control plane and a public key (SubjectPublicKeyInfo in DER): the first 32
/// hexadecimal digits of the SHA-256 digest of both. A challenge has a fixed length, so no two inputs are the same.
pub fn attestation_nonce(challenge: &str, public_key: &[u8]) -> String {
    let mut both = challenge.as_bytes().to_vec();
    both.extend_from_slice(public_key);
    let mut nonce = HEXLOWER.encode(digest::digest(&digest::SHA256, &both).as_ref());
    nonce.truncate(DIGITS);
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_depends_on_challenge_and_key_and_fits_imds() {
        let nonce = attestation_nonce("c1", b"key");
        assert_eq!(nonce.len(), 32);
        assert!(nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(nonce, attestation_nonce("c2", b"key"));
        assert_ne!(nonce, attestation_nonce("c1", b"kez"));
        // SHA-256 of `c1key`, by `printf c1key | sha256sum`.
        assert_eq!(nonce, SHA256_OF_C1KEY);
    }

    const SHA256_OF_C1KEY: &str = "a9bc5eebaf2fa8a4c422fba6457dc9b1";
}
