//! The limits of the enrollment listener (invariant 10).

use std::time::Duration;

use ironmesh_listener::ListenerLimits;

/// The limits of the enrollment listener.
///
/// A source is an IPv4 address or an IPv6 network of 64 bits. A load balancer or a NAT in between is one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrollmentLimits {
    /// The most connections at once. Further ones are closed at once.
    pub connections: usize,
    /// The most connections of one source at once.
    pub connections_per_source: usize,
    /// The most accepted connections per second. Further ones wait in the system's queue, and overflow there.
    pub accepts_per_second: u32,
    /// The most TLS handshakes at once; one source may have a quarter.
    pub handshakes: usize,
    /// The most TLS handshakes per second. A handshake takes less than a millisecond of CPU time, so this bounds what
    /// a flood of handshakes takes from xDS.
    pub handshakes_per_second: u32,
    /// How many failures a source may have per minute before it is blocked: failed or slow handshakes, slow or
    /// rejected requests.
    pub failures_per_minute: u32,
    /// How long a source is blocked.
    pub block: Duration,
    /// The most sources with failures that are remembered.
    pub sources: usize,
    /// The most requests at work at once.
    pub workers: usize,
    /// The most requests at work or waiting.
    pub queue: usize,
    /// The most leaves that wait for the callers at once. Each holds a connection; further ones are answered without a
    /// wait.
    pub waiting_leaves: usize,
    /// The most enrollments that wait at once for the look-up of their machine in Azure. Further ones are busy.
    pub waiting_look_ups: usize,
    /// How long a client may take for its ClientHello, and again for the handshake.
    pub handshake_time: Duration,
    /// How long a client may take for the head of its request, and again for the body.
    pub request_time: Duration,
    /// How long a connection may last after its handshake.
    pub connection_time: Duration,
}

impl Default for EnrollmentLimits {
    /// The limits beside the xDS of one control plane: 100 handshakes per second take less than a tenth of one
    /// processor, and enroll ten thousand machines in less than two minutes.
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_source: 128,
            accepts_per_second: 2000,
            handshakes: 64,
            handshakes_per_second: 100,
            failures_per_minute: 20,
            block: Duration::from_secs(60),
            sources: 4096,
            workers: 4,
            queue: 256,
            // So that enrollments and renewals have connections while ten thousand machines leave.
            waiting_leaves: 128,
            waiting_look_ups: 64,
            handshake_time: Duration::from_secs(5),
            request_time: Duration::from_secs(10),
            connection_time: Duration::from_secs(60),
        }
    }
}

impl EnrollmentLimits {
    /// The limits until the handshake.
    pub(super) fn of_listener(&self) -> ListenerLimits {
        ListenerLimits {
            connections: self.connections,
            connections_per_source: self.connections_per_source,
            accepts_per_second: self.accepts_per_second,
            handshakes: self.handshakes,
            handshakes_per_second: self.handshakes_per_second,
            failures_per_minute: self.failures_per_minute,
            block: self.block,
            sources: self.sources,
            handshake_time: self.handshake_time,
            slot_time: self.connection_time,
        }
    }
}
