//! Which Envoy runs, and how often its listeners have changed.

use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;

use tokio::time::Instant;

use crate::status::{LocalRequestError, ServerInfo, get};

/// The counters that change with each update of a listener, and with the end of its warming.
const COUNTERS: &str = "/stats?filter=^listener_manager%5C.(lds%5C.version|lds%5C.update|listener_|total_listeners_|total_filter_chains_draining)";

/// How far two readings of the start of one process may differ: Envoy states its uptime in whole seconds.
const START_PRECISION: Duration = Duration::from_secs(2);

/// A running Envoy with the counters of its listeners.
#[derive(Debug)]
pub(super) struct EnvoyProcess {
    epoch: u32,
    /// How long it had run when it was read.
    uptime: Duration,
    read_at: Instant,
    counters: Vec<u8>,
}

impl EnvoyProcess {
    pub(super) async fn read(admin: &LocalAddress) -> Result<Self, LocalRequestError> {
        let info = ServerInfo::read(admin).await?;
        let read_at = Instant::now();
        let counters = get(admin, COUNTERS).await?.as_ref().to_vec();
        let uptime = Duration::from_secs(info.uptime_seconds());
        Ok(Self { epoch: info.epoch(), uptime, read_at, counters })
    }

    /// Whether this is the process of an earlier look: it has run for as long as has passed since then. If the clock by
    /// which Envoy measures its uptime is set, it looks like another process, whose ports are then tried again.
    pub(super) fn is_same_as(&self, earlier: &Self) -> bool {
        let expected = earlier.uptime + self.read_at.duration_since(earlier.read_at);
        self.epoch == earlier.epoch && self.uptime.abs_diff(expected) <= START_PRECISION
    }

    /// Whether the listeners of the same process may have changed since an earlier look.
    pub(super) fn has_other_listeners(&self, earlier: &Self) -> bool {
        self.counters != earlier.counters
    }
}
