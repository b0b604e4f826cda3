//! Counters of the engine. They, not clocks, guard the cost of a change in tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ironmesh_xds_wire::ResourceType;

/// What the engine has done since it started.
#[derive(Debug)]
pub struct Counters {
    by_type: BTreeMap<ResourceType, Counts>,
    sets: AtomicU64,
    clients_examined: AtomicU64,
    rejected: BTreeMap<ConnectionRejection, AtomicU64>,
    closed: BTreeMap<CloseReason, AtomicU64>,
}

/// Why a connection was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionRejection {
    /// The limit for all clients is reached.
    Full,
    /// The limit of its client is reached.
    Client,
    /// The TLS handshake failed.
    BadHandshake,
    /// The TLS handshake took too long.
    SlowHandshake,
    /// Closed to make space for others: it was silent, or its TLS handshake took long.
    Displaced,
}

impl ConnectionRejection {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::Full, Self::Client, Self::BadHandshake, Self::SlowHandshake, Self::Displaced];

    /// The value of the metric's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Client => "client",
            Self::BadHandshake => "bad_handshake",
            Self::SlowHandshake => "slow_handshake",
            Self::Displaced => "displaced",
        }
    }
}

/// Why the server ended a stream because of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CloseReason {
    /// The client was not admitted.
    Rejected,
    /// The server has as many clients as it may ([`Limits::clients`](crate::Limits::clients)).
    TooManyClients,
    /// The client has too many streams.
    TooManyStreams,
    /// The client subscribes to too many names or types.
    TooManyNames,
    /// The client sends requests or frames, or opens streams, without end.
    Flood,
    /// The memory quota for incomplete requests is exhausted.
    QuotaExceeded,
    /// The client does not read.
    SlowReader,
    /// The [`Admission`](crate::Admission) revoked the client.
    Disconnected,
    /// The client's certificate has expired.
    Expired,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Rejected,
        Self::TooManyClients,
        Self::TooManyStreams,
        Self::TooManyNames,
        Self::Flood,
        Self::QuotaExceeded,
        Self::SlowReader,
        Self::Disconnected,
        Self::Expired,
    ];

    /// The value of the metric's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::TooManyClients => "too_many_clients",
            Self::TooManyStreams => "too_many_streams",
            Self::TooManyNames => "too_many_names",
            Self::Flood => "flood",
            Self::QuotaExceeded => "quota_exceeded",
            Self::SlowReader => "slow_reader",
            Self::Disconnected => "disconnected",
            Self::Expired => "expired",
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    pushes: AtomicU64,
    acks: AtomicU64,
    nacks: AtomicU64,
    late: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let by_type = ResourceType::ALL.into_iter().map(|of| (of, Counts::default())).collect();
        Self {
            by_type,
            sets: AtomicU64::new(0),
            clients_examined: AtomicU64::new(0),
            rejected: ConnectionRejection::ALL
                .into_iter()
                .map(|why| (why, AtomicU64::new(0)))
                .collect(),
            closed: CloseReason::ALL.into_iter().map(|why| (why, AtomicU64::new(0))).collect(),
        }
    }
}

impl Counters {
    /// The number of pushes of a type.
    pub fn pushes(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.pushes)
    }

    /// The number of ACKs of a type.
    pub fn acks(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.acks)
    }

    /// The number of NACKs of a type.
    pub fn nacks(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.nacks)
    }

    /// The number of pushes of a type without a response in time.
    pub fn late(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.late)
    }

    /// The number of connections rejected for this reason.
    pub fn connections_rejected(&self, why: ConnectionRejection) -> u64 {
        self.rejected.get(&why).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The number of streams ended for this reason.
    pub fn streams_closed(&self, why: CloseReason) -> u64 {
        self.closed.get(&why).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The number of resource sets published to clients.
    pub fn sets(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    /// The number of times that a client was examined for a question about all clients, or to keep the answer current.
    pub fn clients_examined(&self) -> u64 {
        self.clients_examined.load(Ordering::Relaxed)
    }

    pub(crate) fn pushed(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.pushes);
    }

    pub(crate) fn acked(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.acks);
    }

    pub(crate) fn nacked(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.nacks);
    }

    pub(crate) fn late_response(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.late);
    }

    pub(crate) fn connection_rejected(&self, why: ConnectionRejection) {
        if let Some(count) = self.rejected.get(&why) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn closed(&self, why: CloseReason) {
        if let Some(count) = self.closed.get(&why) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn examined(&self, clients: usize) {
        self.clients_examined.fetch_add(clients as u64, Ordering::Relaxed);
    }

    pub(crate) fn set(&self) {
        self.sets.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self, of: ResourceType, which: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.by_type.get(&of).map_or(0, |counts| which(counts).load(Ordering::Relaxed))
    }

    fn count(&self, of: ResourceType, which: impl Fn(&Counts) -> &AtomicU64) {
        if let Some(counts) = self.by_type.get(&of) {
            which(counts).fetch_add(1, Ordering::Relaxed);
        }
    }
}
