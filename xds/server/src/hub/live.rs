//! The live streams of a client: the address of each, and its age. Whether two streams mean two
//! machines is for the caller to decide.

use std::net::SocketAddr;

use tokio::time::Instant;

use super::Hub;

/// An open xDS stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveStream {
    /// The client's address. An IPv4 address is never mapped to IPv6.
    pub address: SocketAddr,
    /// When it was opened.
    pub since: Instant,
    /// Whether it belongs to the aggregated service, of which a process has one.
    pub is_aggregated: bool,
}

impl LiveStream {
    pub(crate) fn begin(address: SocketAddr, is_aggregated: bool) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { address, since: Instant::now(), is_aggregated }
    }
}

impl Hub {
    /// The open streams of a client, the oldest first.
    pub fn live_streams(&self, client: &str) -> Vec<LiveStream> {
        let clients = self.clients.lock();
        clients.by_key.get(client).map_or_else(Vec::new, |one| one.live.values().copied().collect())
    }
}
