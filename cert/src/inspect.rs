//! The inspection of certificates: their content, and whether one may be used.
//!
//! Every certificate passes this check before it is published, as a peer would check it: Envoy accepts an
//! expired certificate, or one of another authority, without an error. This module issues nothing.

use std::error::Error;
use std::sync::Arc;

use ironmesh_catalog::{Secret, ServiceCertificate, SpiffeId, TrustBundle};
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use crate::facts::CertificateFacts;
use crate::profile;
use crate::tls::{self, TlsError};

/// The reason why an operation failed; the caller adds the operation.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A certificate that must not be published.
#[derive(Debug, thiserror::Error)]
pub enum UnfitCertificate {
    /// It or its key does not parse, or the key does not fit.
    #[error("certificate and private key do not parse, or do not belong together")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
    /// Peers would reject it now.
    #[error("peers would reject the certificate now")]
    Rejected(#[source] rustls::Error),
    /// It has another identity.
    #[error("certificate is for another identity than `{expected}`: {found:?}")]
    OtherIdentity {
        /// The expected identity.
        expected: SpiffeId,
        /// Its URI names.
        found: Vec<String>,
    },
}

/// Checks certificates as a peer does that trusts one bundle.
pub(crate) struct Inspector {
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Inspector {
    pub(crate) fn new(bundle: &TrustBundle) -> Result<Self, TlsError> {
        let provider = tls::provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(tls::roots(bundle)?),
            Arc::clone(&provider),
        );
        let verifier = verifier.build().map_err(TlsError::Verifier)?;
        Ok(Self { provider, verifier })
    }

    /// Whether a peer accepts `certificate` at `now` as that of `identity`, now or from its beginning on. A
    /// certificate that is not valid yet passes: peers use their own clocks, and this machine's clock may be
    /// behind.
    pub(crate) fn check(
        &self,
        certificate: &ServiceCertificate,
        identity: &SpiffeId,
        now: Timestamp,
    ) -> Result<(), UnfitCertificate> {
        self.check_pair(&certificate.chain, &certificate.key, identity, now)
    }

    /// The same of a chain (in PEM) and the private key of its leaf.
    pub(crate) fn check_pair(
        &self,
        chain: &str,
        key: &Secret,
        identity: &SpiffeId,
        now: Timestamp,
    ) -> Result<(), UnfitCertificate> {
        let unreadable = |e: Failure| UnfitCertificate::Unreadable(e);
        let chain = certificates(chain).map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
            .map_err(|e| unreadable(e.into()))?;
        CertifiedKey::from_der(chain.clone(), key, &self.provider)
            .map_err(|e| unreadable(e.into()))?;
        let (leaf, intermediates) =
            chain.split_first().ok_or_else(|| unreadable("no certificate".into()))?;
        let mut seconds = now.as_second();
        for der in &chain {
            let begins = parse(der).map_err(unreadable)?.validity().not_before.timestamp();
            seconds = seconds.max(begins);
        }
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.verifier
            .verify_client_cert(leaf, intermediates, time)
            .map_err(UnfitCertificate::Rejected)?;
        let found = uri_names(&parse(leaf).map_err(unreadable)?).map_err(unreadable)?;
        if found != [identity.as_str()] {
            return Err(UnfitCertificate::OtherIdentity { expected: identity.clone(), found });
        }
        Ok(())
    }
}

/// The certificates of a PEM text, at least one.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?;
    if chain.is_empty() { Err("no certificate".into()) } else { Ok(chain) }
}

/// A certificate in DER with nothing after it.
pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, Failure> {
    match X509Certificate::from_der(der)? {
        (&[], certificate) => Ok(certificate),
        _ => Err("data follows the certificate".into()),
    }
}

/// All URIs among the certificate's alternative names.
pub(crate) fn uri_names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, Failure> {
    let names = certificate.subject_alternative_name()?;
    let names = names.iter().flat_map(|extension| &extension.value.general_names);
    Ok(names
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        })
        .collect())
}

/// All DNS names among the certificate's alternative names.
pub(crate) fn dns_names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, Failure> {
    let names = certificate.subject_alternative_name()?;
    let names = names.iter().flat_map(|extension| &extension.value.general_names);
    Ok(names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect())
}

/// The validity of the one certificate in `pem`.
pub(crate) fn lifetime_of_pem(pem: &str) -> Result<(Timestamp, Timestamp), Failure> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
    let validity = parse(&der)?.validity().clone();
    let time = |t: ASN1Time| Timestamp::from_second(t.timestamp());
    Ok((time(validity.not_before)?, time(validity.not_after)?))
}

/// The facts about the one certificate in `pem` that it states itself: not its issue date, and not its renewal.
pub(crate) fn facts_of_pem(pem: &str) -> Result<CertificateFacts, Failure> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
    let certificate = parse(&der)?;
    let name = certificate.subject().iter_common_name().next().ok_or("no common name")?;
    Ok(CertificateFacts {
        name: name.as_str()?.to_owned(),
        subject: uri_names(&certificate)?.join(", "),
        serial: profile::hex(certificate.raw_serial()),
        issued_at: None,
        not_after: lifetime_of_pem(pem)?.1,
        renew_at: None,
    })
}

/// The URI names of the one certificate in `pem`.
pub(crate) fn uri_names_of_pem(pem: &str) -> Result<Vec<String>, Failure> {
    uri_names(&parse(&CertificateDer::from_pem_slice(pem.as_bytes())?)?)
}

/// Checks that the one certificate in `pem` is that of `key`, and that `issuer` signed it.
pub(crate) fn check_is_signed_by(
    pem: &str,
    key: &KeyPair,
    issuer: &KeyPair,
) -> Result<(), Failure> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
    let certificate = parse(&der)?;
    if certificate.public_key().raw != key.subject_public_key_info() {
        return Err("certificate and private key do not belong together".into());
    }
    let issuer = issuer.subject_public_key_info();
    let (_, issuer) = x509_parser::x509::SubjectPublicKeyInfo::from_der(&issuer)?;
    Ok(certificate.verify_signature(Some(&issuer))?)
}
