//! Connections that ended without a request, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection ended without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionLoss {
    /// Its source is blocked after repeated failures.
    Blocked,
    /// The limit for all sources is reached.
    Full,
    /// The limit of its source is reached.
    SourceFull,
    /// The client left before it sent its first message of TLS, as the health check of a load balancer does.
    Closed,
    /// The TLS handshake failed.
    BadHandshake,
    /// The TLS handshake took too long.
    SlowHandshake,
    /// The head of the request did not come in time, or was malformed.
    NoRequest,
}

impl ConnectionLoss {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Full,
        Self::SourceFull,
        Self::Closed,
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
            Self::Closed => "closed",
            Self::BadHandshake => "bad_handshake",
            Self::SlowHandshake => "slow_handshake",
            Self::NoRequest => "no_request",
        }
    }
}

/// The lost connections of a listener since its start, by reason.
#[derive(Debug)]
pub struct ConnectionLosses(BTreeMap<ConnectionLoss, AtomicU64>);

impl Default for ConnectionLosses {
    fn default() -> Self {
        Self(ConnectionLoss::ALL.map(|reason| (reason, AtomicU64::new(0))).into())
    }
}

impl ConnectionLosses {
    /// The lost connections, by reason.
    pub fn counts(&self) -> impl Iterator<Item = (ConnectionLoss, u64)> + '_ {
        self.0.iter().map(|(reason, count)| (*reason, count.load(Ordering::Relaxed)))
    }

    pub(crate) fn count(&self, reason: ConnectionLoss) {
        if let Some(count) = self.0.get(&reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
