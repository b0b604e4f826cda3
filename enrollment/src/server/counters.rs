//! Counters of the enrollment listener, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Why a connection ended without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionLoss {
    /// Its source is blocked after repeated failures.
    Blocked,
    /// The limit for all sources is reached.
    Full,
    /// The limit of its source is reached.
    SourceFull,
    /// The TLS handshake failed.
    BadHandshake,
    /// The TLS handshake took too long.
    SlowHandshake,
    /// The head of the request did not come in time, or was malformed.
    NoRequest,
}

impl ConnectionLoss {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Blocked,
        Self::Full,
        Self::SourceFull,
        Self::BadHandshake,
        Self::SlowHandshake,
        Self::NoRequest,
    ];

    /// The value of the metric's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Full => "full",
            Self::SourceFull => "source_full",
            Self::BadHandshake => "bad_handshake",
            Self::SlowHandshake => "slow_handshake",
            Self::NoRequest => "no_request",
        }
    }
}

/// What the enrollment listener has done since its start.
#[derive(Debug)]
pub struct EnrollmentCounters {
    requests: BTreeMap<RequestOutcome, AtomicU64>,
    lost: BTreeMap<ConnectionLoss, AtomicU64>,
}

impl Default for EnrollmentCounters {
    fn default() -> Self {
        Self {
            requests: RequestOutcome::all().map(|outcome| (outcome, AtomicU64::new(0))).collect(),
            lost: ConnectionLoss::ALL.map(|reason| (reason, AtomicU64::new(0))).into(),
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
        self.lost.iter().map(|(reason, count)| (*reason, count.load(Ordering::Relaxed)))
    }

    pub(super) fn request(&self, outcome: RequestOutcome) {
        if let Some(count) = self.requests.get(&outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn connection_lost(&self, reason: ConnectionLoss) {
        if let Some(count) = self.lost.get(&reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
