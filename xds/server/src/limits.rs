//! The limits on what the server does for all clients, and for each (invariant 10).

use std::time::Duration;

/// The limits that depend on the size of the fleet. Others are constants where they apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections. Beyond it, a connection is closed before anything is
    /// computed for it.
    pub connections: usize,
    /// The maximum number of clients with xDS streams; none by default. A client beyond it is refused, and its
    /// connection is closed, so that it tries a different server. One that has a stream, or had one a moment ago, is
    /// never refused. Streams of health, status and access logs do not count.
    pub clients: Option<usize>,
    /// The maximum number of connections of one client, by the owner of its certificate
    /// ([`crate::Admission::owner`]).
    ///
    /// One connection more gets the reason, and its streams are rejected. To end an older one instead
    /// would let two machines with one certificate displace each other without end. Three quarters
    /// of them, and one quarter of all connections, may carry access logs: xDS always finds a
    /// connection.
    pub connections_per_client: usize,
    /// The maximum number of TLS handshakes at one time.
    ///
    /// Four times as many clients may be connected and silent, and four times as many may wait.
    /// Beyond that, a connection of the source address with the most of them is closed: the oldest
    /// silent one, or the newest waiting one.
    pub handshakes: usize,
    /// The maximum number of streams of one client, on all its connections.
    pub streams_per_client: usize,
    /// The approximate memory for names to which one client subscribes on all its streams. One
    /// stream may use 16 MiB.
    pub names_per_client: usize,
    /// The maximum bytes of incomplete requests of one client, on all its streams.
    pub unfinished_per_client: usize,
    /// The maximum bytes of incomplete requests of all clients, besides 256 KiB of each
    /// connection's own, which always fit an Envoy's first request.
    pub unfinished: usize,
    /// The maximum age of a connection, ten percent more or less, after which its client must
    /// reconnect. With several servers, the clients spread over all of them.
    pub connection_age: Option<Duration>,
}

impl Default for Limits {
    /// The limits for ten thousand proxies, each of which may exist twice in a hot restart.
    ///
    /// A proxy usually has one connection and one stream. After a network failure it has some that
    /// are not known to be dead yet. In audit it has one more connection for each of its workers,
    /// which are as many as its processors.
    fn default() -> Self {
        Self {
            connections: 20_000,
            clients: None,
            connections_per_client: 128,
            handshakes: 256,
            streams_per_client: 512,
            names_per_client: 32 << 20,
            unfinished_per_client: 16 << 20,
            unfinished: 256 << 20,
            connection_age: None,
        }
    }
}
