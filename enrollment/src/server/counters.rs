//! Counters of the enrollment listener, for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironmesh_listener::{ConnectionLoss, ConnectionLosses};

use crate::api::EnrollmentErrorCode;

/// The result of a request that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOutcome {
    /// A machine was enrolled.
    Enrolled,
    /// A machine was enrolled that Azure attests.
    EnrolledAzure,
    /// A certificate was renewed with the current one.
    Renewed,
    /// A certificate was renewed by proof of possession.
    RenewedExpired,
    /// A service certificate was issued to a proxy.
    ServiceCertificate,
    /// A challenge was issued.
    Challenged,
    /// A proxy leaves.
    Leaving,
    /// A proxy that was leaving stays.
    Rejoined,
    /// The state of a proxy was reported to it.
    ProxyStatus,
    /// A proxy reported the ports that it serves.
    Serving,
    /// A proxy reported the health of its applications.
    Health,
    /// The request was rejected.
    Rejected(EnrollmentErrorCode),
}

impl RequestOutcome {
    /// The value of the metric's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Enrolled => "enrolled",
            Self::EnrolledAzure => "enrolled_azure",
            Self::Renewed => "renewed",
            Self::RenewedExpired => "renewed_expired",
            Self::ServiceCertificate => "service_certificate",
            Self::Challenged => "challenged",
            Self::Leaving => "leaving",
            Self::Rejoined => "rejoined",
            Self::ProxyStatus => "proxy_status",
            Self::Serving => "serving",
            Self::Health => "health",
            Self::Rejected(code) => code.word(),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let accepted = [
            Self::Enrolled,
            Self::EnrolledAzure,
            Self::Renewed,
            Self::RenewedExpired,
            Self::ServiceCertificate,
            Self::Challenged,
            Self::Leaving,
            Self::Rejoined,
            Self::ProxyStatus,
            Self::Serving,
            Self::Health,
        ];
        accepted.into_iter().chain(EnrollmentErrorCode::ALL.map(Self::Rejected))
    }
}

/// What the enrollment listener has done since its start.
#[derive(Debug)]
pub struct EnrollmentCounters {
    requests: BTreeMap<RequestOutcome, AtomicU64>,
    pub(super) losses: Arc<ConnectionLosses>,
}

impl Default for EnrollmentCounters {
    fn default() -> Self {
        Self {
            requests: RequestOutcome::all().map(|outcome| (outcome, AtomicU64::new(0))).collect(),
            losses: Arc::default(),
        }
    }
}

impl EnrollmentCounters {
    /// The requests, by their results.
    pub fn requests(&self) -> impl Iterator<Item = (RequestOutcome, u64)> + '_ {
        self.requests.iter().map(|(outcome, count)| (*outcome, count.load(Ordering::Relaxed)))
    }

    /// The connections without a request, by reason.
    pub fn connections_lost(&self) -> impl Iterator<Item = (ConnectionLoss, u64)> + '_ {
        self.losses.counts()
    }

    pub(super) fn request(&self, outcome: RequestOutcome) {
        if let Some(count) = self.requests.get(&outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
