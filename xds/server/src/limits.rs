//! How much the server does for all clients, and for one of them (invariant 10).

use std::time::Duration;

/// Bounds that depend on the fleet. What does not is a constant, where it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many connections there may be. What comes then is closed before anything is computed for it.
    pub connections: usize,
    /// How many of them one client may have, by what its certificate names ([`crate::Admission::owner`]).
    /// One more is told so, and its streams are refused: ending an older one instead would let two
    /// machines with one certificate drive each other out without end. Three quarters of them, and of all
    /// connections one quarter, may be such as tell of calls: xDS always finds a seat.
    pub connections_per_client: usize,
    /// How many TLS handshakes may be under way. Four times as many clients may be connected that have said
    /// nothing yet, and four times as many may wait. Beyond that one of the source address that has the
    /// most of them is closed: the oldest silent one, or the newest one that waits.
    pub handshakes: usize,
    /// How many streams a client may have, on all its connections.
    pub streams_per_client: usize,
    /// How much memory the names may take that a client asks for on all its streams, about; on one they
    /// may take 16 MiB.
    pub names_per_client: usize,
    /// How many bytes the requests of a client may take that have come in part, on all its streams.
    pub unfinished_per_client: usize,
    /// The same for all clients together, besides 256 KiB that each connection has for itself: room for
    /// an Envoy's first request is always there.
    pub unfinished: usize,
    /// How old a connection may become, a tenth more or less: then its client must connect anew. Where
    /// there are several servers, their clients come to be spread over all of them.
    pub connection_age: Option<Duration>,
}

impl Default for Limits {
    /// For ten thousand proxies, each of which may be twice there in a hot restart. One has one connection
    /// and one stream in general; where it lost its network there are some that we do not know to be
    /// dead yet; and one that tells of calls has a connection more for each of its workers, which are as
    /// many as there are processors.
    fn default() -> Self {
        Self {
            connections: 20_000,
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
