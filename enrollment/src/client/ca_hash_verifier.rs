//! The verification of a control plane by the hash of its CA.

use std::sync::Arc;

use ironmesh_catalog::TrustDomain;
use ironmesh_cert::SpiffeServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::untrusted::UntrustedServer;
use crate::ca_hash::CaHash;

/// The only URI among the names of a certificate, if it is a SPIFFE ID.
pub(super) fn spiffe_id(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    only_uri(&certificate).filter(|uri| uri.starts_with("spiffe://"))
}

fn only_uri(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let first = uris.next();
    first.filter(|_| uris.next().is_none())
}

/// Verifies a server whose chain contains a root with one of `hashes`: by that root, and as the control plane of the
/// trust domain that the root names.
#[derive(Debug)]
pub(super) struct CaHashVerifier {
    hashes: Vec<CaHash>,
    /// Verifies signatures of the handshake; it trusts no root.
    signatures: SpiffeServerVerifier,
}

impl CaHashVerifier {
    pub(super) fn new(hashes: Vec<CaHash>) -> Self {
        Self { hashes, signatures: SpiffeServerVerifier::any(RootCertStore::empty()) }
    }

    /// The expected root in the chain, with the trust domain that it names.
    ///
    /// Its signature by its own key is verified: a hash of the key does not protect the root's other fields.
    fn root<'a>(
        &self,
        chain: &'a [CertificateDer<'a>],
    ) -> Result<(&'a CertificateDer<'a>, TrustDomain), rustls::Error> {
        let mut found = Vec::new();
        for der in chain {
            let Ok((_, certificate)) = X509Certificate::from_der(der) else { continue };
            let is_root = certificate.is_ca() && certificate.subject() == certificate.issuer();
            if !is_root || certificate.verify_signature(None).is_err() {
                continue;
            }
            let hash = CaHash::of(&certificate);
            if !self.hashes.contains(&hash) {
                found.push(hash);
                continue;
            }
            let trust_domain = only_uri(&certificate).and_then(|uri| TrustDomain::of(&uri));
            let unnamed = || UntrustedServer::Rejected {
                problem: "root with the expected hash names no trust domain".to_owned(),
            };
            return Ok((der, trust_domain.ok_or_else(|| rejected(unnamed()))?));
        }
        Err(rejected(UntrustedServer::OtherCa { expected: self.hashes.clone(), found }))
    }
}

fn rejected(reason: UntrustedServer) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(reason))).into()
}

impl ServerCertVerifier for CaHashVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (root, trust_domain) = self.root(intermediates)?;
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        SpiffeServerVerifier::pinned(roots, trust_domain.control_plane().0).verify_server_cert(
            leaf,
            intermediates,
            name,
            ocsp,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}
