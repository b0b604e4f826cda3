//! The validity of client certificates.
//!
//! TLS checks it once, in the handshake, and a connection may outlive the certificate that it was
//! opened with.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio::time::sleep;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The interval between checks of the wall clock, which may be set.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The end of a certificate's validity, by the clock of TLS.
#[derive(Debug, Clone)]
pub(crate) struct Validity {
    /// The last second of the validity (RFC 5280, 4.1.2.5: `notAfter`).
    until: u64,
    clock: Arc<dyn TimeProvider>,
}

impl Validity {
    /// The validity of a certificate shown under `tls`; `None` if it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>, tls: &ServerConfig) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let until = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
        Some(Self { until, clock: Arc::clone(&tls.time_provider) })
    }

    /// A validity without end.
    #[cfg(test)]
    pub(crate) fn endless() -> Self {
        Self { until: u64::MAX, clock: Arc::new(rustls::time_provider::DefaultTimeProvider) }
    }

    /// Returns when the validity has ended. Without a clock, never.
    pub(crate) async fn expired(&self) {
        loop {
            let now = self.clock.current_time().as_ref().map(UnixTime::as_secs).unwrap_or_default();
            let Some(left) = self.until.checked_sub(now) else { return };
            sleep(Duration::from_secs(left.saturating_add(1)).min(CHECK_INTERVAL)).await;
        }
    }
}
