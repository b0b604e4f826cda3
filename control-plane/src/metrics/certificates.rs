//! The metrics of certificates.

use std::collections::BTreeMap;

use ironmesh_api::CertificateKind;
use jiff::Timestamp;

use super::families::Families;

/// How many certificates of each kind there are in each state, and when the first of each kind expires.
#[derive(Debug, Clone, Default)]
pub(crate) struct CertificateCounts {
    /// By kind and state.
    pub(crate) counts: BTreeMap<(CertificateKind, &'static str), usize>,
    /// When the first certificate of a kind expires. Of proxies, only valid certificates count: a machine that is gone
    /// would hide the next one.
    pub(crate) first_expiry: BTreeMap<CertificateKind, Timestamp>,
}

impl CertificateCounts {
    /// Counts a certificate, and its expiry if that may be the first.
    pub(crate) fn add(
        &mut self,
        kind: CertificateKind,
        state: &'static str,
        expiry: Option<Timestamp>,
    ) {
        *self.counts.entry((kind, state)).or_default() += 1;
        if let Some(expiry) = expiry {
            let first = self.first_expiry.entry(kind).or_insert(expiry);
            *first = expiry.min(*first);
        }
    }
}

pub(super) fn encode(
    families: &mut Families<'_>,
    certificates: &CertificateCounts,
) -> Result<(), std::fmt::Error> {
    let counts = certificates.counts.iter();
    let counts = counts.map(|((kind, state), count)| ([kind.as_str(), *state], *count));
    let help = "Certificates by kind and state";
    families.gauges("certificates", help, ["kind", "state"], counts)?;
    let expiries = certificates.first_expiry.iter();
    let expiries = expiries.map(|(kind, at)| ([kind.as_str()], seconds(*at)));
    let help = "When the first certificate of a kind expires, in seconds since 1970; of proxies, the first valid one";
    families.gauges("certificate_expiry_timestamp_seconds", help, ["kind"], expiries)
}

#[expect(clippy::cast_precision_loss, reason = "exact for hundreds of millions of years")]
fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}
