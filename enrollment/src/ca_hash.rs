//! The hash of a CA, by which a machine recognizes the mesh before it has the root certificate.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The SHA-256 digest of a root's public key (SubjectPublicKeyInfo in DER), written `sha256:HEX` as in kubeadm.
///
/// A hash of the key instead of the whole certificate survives a renewal of the root with the same key. On the
/// command line: `openssl x509 -in ca.crt -pubkey -noout | openssl pkey -pubin -outform der | sha256sum`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaHash([u8; 32]);

impl CaHash {
    /// The hash of each root in `roots_pem`, at least one. During a rotation of the root there are several.
    pub fn of_roots(roots_pem: &str) -> Result<Vec<Self>, CaHashError> {
        let roots = CertificateDer::pem_slice_iter(roots_pem.as_bytes());
        let hash = |root: Result<CertificateDer<'_>, _>| {
            let root = root.map_err(|_| CaHashError::Roots)?;
            let (_, root) = X509Certificate::from_der(&root).map_err(|_| CaHashError::Roots)?;
            Ok(Self::of(&root))
        };
        let hashes = roots.map(hash).collect::<Result<Vec<_>, _>>()?;
        if hashes.is_empty() { Err(CaHashError::Roots) } else { Ok(hashes) }
    }

    /// The hash of a root's public key.
    pub(crate) fn of(root: &X509Certificate<'_>) -> Self {
        let digest = digest::digest(&digest::SHA256, root.public_key().raw);
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(byte, of_digest)| *byte = *of_digest);
        Self(bytes)
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaHash({self})")
    }
}

impl FromStr for CaHash {
    type Err = CaHashError;

    fn from_str(text: &str) -> Result<Self, CaHashError> {
        let invalid = || CaHashError::Format { text: text.chars().take(MAX_SHOWN).collect() };
        let digits = text.strip_prefix(PREFIX).ok_or_else(invalid)?;
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| invalid())?;
        Ok(Self(bytes.try_into().map_err(|_| invalid())?))
    }
}

/// A hash of a CA that cannot be read or computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaHashError {
    /// The text is no hash.
    #[error("CA hash `{text}` is malformed: it is `sha256:` and 64 hexadecimal digits")]
    Format {
        /// The beginning of the text.
        text: String,
    },
    /// The roots do not parse.
    #[error("root certificates cannot be read: they must be PEM (`BEGIN CERTIFICATE`)")]
    Roots,
}

const PREFIX: &str = "sha256:";

/// How many characters of an invalid hash an error repeats.
const MAX_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_hash_is_read_in_both_cases_and_printed_in_lower_case() {
        let digits = "0123456789abcdef".repeat(4);
        let text = format!("sha256:{digits}");
        assert_eq!(text.parse::<CaHash>().unwrap().to_string(), text);
        let upper = format!("sha256:{}", digits.to_uppercase());
        assert_eq!(upper.parse::<CaHash>().unwrap().to_string(), text);
        for bad in ["", "sha256:", &digits, &text[1..], &text[..70], &format!("{text}0"), "md5:00"]
        {
            bad.parse::<CaHash>().unwrap_err();
        }
    }

    /// The same root and digest as by `openssl` and `sha256sum`.
    #[test]
    fn ca_hash_is_that_of_the_public_key() {
        let root = include_str!("tests/root.pem");
        let hashes = CaHash::of_roots(&format!("{root}{root}")).unwrap();
        let expected = include_str!("tests/root.sha256").trim().parse().unwrap();
        assert_eq!(hashes, [expected, expected]);
        assert_eq!(CaHash::of_roots("no certificate"), Err(CaHashError::Roots));
    }
}
