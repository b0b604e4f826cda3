//! Which Envoy runs, and how often its listeners have changed.

use ironmesh_agent_envoy::local_http::LocalAddress;

use crate::status::{LocalRequestError, ServerInfo, get};

/// The counters that change with each update of a listener, and with the end of its warming.
const COUNTERS: &str = "/stats?filter=^listener_manager%5C.(lds%5C.version|lds%5C.update|listener_|total_listeners_|total_filter_chains_draining)";

/// A running Envoy with the counters of its listeners.
#[derive(Debug)]
pub(super) struct EnvoyProcess {
    epoch: u32,
    uptime: u64,
    counters: Vec<u8>,
}

impl EnvoyProcess {
    pub(super) async fn read(admin: &LocalAddress) -> Result<Self, LocalRequestError> {
        let info = ServerInfo::read(admin).await?;
        let counters = get(admin, COUNTERS).await?.as_ref().to_vec();
        Ok(Self { epoch: info.epoch(), uptime: info.uptime_seconds(), counters })
    }

    /// Whether this is the process of an earlier look.
    pub(super) fn is_same_as(&self, earlier: &Self) -> bool {
        self.epoch == earlier.epoch && self.uptime >= earlier.uptime
    }

    /// Whether the listeners of the same process may have changed since an earlier look.
    pub(super) fn has_other_listeners(&self, earlier: &Self) -> bool {
        self.counters != earlier.counters
    }
}
