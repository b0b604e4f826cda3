//! The limits of a listener (invariant 10).

use std::time::Duration;

/// The limits of a listener.
///
/// A source is an IPv4 address or an IPv6 network of 64 bits. A load balancer or a NAT in between is one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
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
    /// How many failures a source may have per minute before it is blocked.
    pub failures_per_minute: u32,
    /// How long a source is blocked.
    pub block: Duration,
    /// The most sources with failures that are remembered.
    pub sources: usize,
    /// How long a client may take for its ClientHello, and again for the handshake.
    pub handshake_time: Duration,
    /// How long a client may wait for a handshake slot.
    pub slot_time: Duration,
}

impl Default for ListenerLimits {
    /// The limits beside the xDS of one control plane: 100 handshakes per second take less than a tenth of one
    /// processor.
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
            handshake_time: Duration::from_secs(5),
            slot_time: Duration::from_secs(60),
        }
    }
}
