//! The roots of Azure's signers among those that a system trusts.
//!
//! A system trusts hundreds of roots. Each of their authorities could issue a certificate for Azure's domain by
//! mistake, so only the roots that Azure documents are accepted by default.
//!
//! Source: Azure, "Azure Certificate Authority details", root certificate authorities with RSA keys.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use ironmesh_catalog::TrustBundle;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// The SHA-256 digests of the certificates in DER.
const DIGESTS: [&str; 3] = [
    // DigiCert Global Root G2, until 2038: Azure's public cloud and Azure Government.
    "cb3ccbb76031e5e0138f8dd39a23f9de47ffc35e43c1144cea27d46a5ab1cb5f",
    // DigiCert Global Root CA, until 2031: Azure in China.
    "4348a0e9444c78cb265e058d5e8944b4d84f9662bd26db257f8934a443c70161",
    // Microsoft RSA Root Certificate Authority 2017, until 2042.
    "c741f70f4b2a8d88bf2e71c14122ef53ef10eba0cfa5e64cfa20f418853073e0",
];

/// The roots of Azure's signers in `system`, certificates in PEM. Other certificates are left out, and so is what is
/// none. The bundle may be empty.
pub fn azure_roots(system: &str) -> TrustBundle {
    let mut roots = String::new();
    for root in CertificateDer::pem_slice_iter(system.as_bytes()).flatten() {
        let digest = digest::digest(&digest::SHA256, &root);
        if DIGESTS.contains(&data_encoding::HEXLOWER.encode(digest.as_ref()).as_str()) {
            let text = data_encoding::BASE64.encode(&root);
            // (Writing to a string does not fail.)
            let _ =
                writeln!(roots, "-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----");
        }
    }
    TrustBundle { roots }
}

#[cfg(test)]
mod tests {
    use super::super::tests::documents::TestCa;
    use super::*;

    #[test]
    fn unknown_roots_of_a_system_are_left_out() {
        let system = format!("{}\nno certificate\n", TestCa::shared().roots().roots);
        assert_eq!(azure_roots(&system).roots, "");
    }

    /// The digests are those of the certificates that systems have.
    #[test]
    fn roots_of_azure_are_found_among_those_of_this_system() {
        let Ok(system) = fs_err::read_to_string("/etc/ssl/certs/ca-certificates.crt") else {
            eprintln!("skipped: this system has no bundle of roots");
            return;
        };
        let found = crate::inspect::certificates(&azure_roots(&system).roots).unwrap();
        for root in &found {
            let subject = crate::inspect::parse(root).unwrap().subject().to_string();
            assert!(subject.contains("DigiCert Global Root") || subject.contains("Microsoft RSA"));
        }
        assert!(!found.is_empty());
    }
}
