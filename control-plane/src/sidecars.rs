//! The control plane's half of the sidecar drivers: what compiles for a kind of sidecar, and what serves it.
//!
//! The machine's half is `ironmesh-sidecar`. docs/decisions/0065 describes both, and what a further driver implements.

mod envoy;

use std::fmt::Debug;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;

use ironmesh_catalog::{DriverName, Proxy};
use ironmesh_sidecar::{Registry, UnknownDriver};
use ironmesh_xds_compile::{Compiled, Compiler};
use ironmesh_xds_server::{Hub, Limits};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::ProxyAdmission;
use crate::reconciler::StatusFeeds;

/// The sidecar drivers of this version. A driver is one row; the machine has the other half.
pub(crate) static SERVERS: Registry<dyn SidecarServer> =
    Registry::new(&[("envoy", &envoy::EnvoyServer)]);

/// The control plane's half of a sidecar driver.
pub(crate) trait SidecarServer: Debug + Sync {
    /// Compiles the resources of a proxy with this driver: its compile target. It is pure.
    fn compile(&self, compiler: &mut Compiler, proxy: &Proxy) -> Compiled;

    /// Starts what serves the sidecars of this driver.
    fn start(&self, context: &ServerContext) -> anyhow::Result<StartedServer>;
}

/// What the control plane provides to the servers of sidecars.
#[derive(Debug)]
pub(crate) struct ServerContext {
    /// The listener at `listen.xds`.
    pub(crate) listener: TcpListener,
    /// The resource set of each client, which the reconciler publishes, and what each ACKed.
    pub(crate) hub: Arc<Hub>,
    /// Which clients may connect.
    pub(crate) admission: Arc<ProxyAdmission>,
    /// What the reconciler reports, such as whether the first snapshot is complete.
    pub(crate) feeds: StatusFeeds,
    /// The limits of connections, requests and memory.
    pub(crate) limits: Limits,
    /// The end of the control plane.
    pub(crate) shutdown: CancellationToken,
}

/// A started server of sidecars.
pub(crate) struct StartedServer {
    /// The task that serves.
    pub(crate) task: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
    /// Its probes.
    pub(crate) probes: Probes,
    /// Its handlers below `/debug/` of the admin API.
    pub(crate) debug: Vec<DebugHandler>,
}

/// A handler of the admin API: the last part of its path, and its answer.
pub(crate) struct DebugHandler {
    pub(crate) name: &'static str,
    pub(crate) answer: Box<dyn Fn() -> Value + Send + Sync>,
}

/// The state of a server of sidecars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// It waits for what it serves.
    Starting,
    /// It serves.
    Serving,
    /// It serves no more.
    Ended,
}

/// The probes of a server of sidecars, which `/healthz` and `/readyz` combine.
#[derive(Debug, Clone)]
pub(crate) struct Probes(pub(crate) watch::Receiver<ServerState>);

impl Probes {
    /// The startup probe: whether it has served.
    pub(crate) fn is_started(&self) -> bool {
        *self.0.borrow() != ServerState::Starting
    }

    /// The readiness probe: whether it serves.
    pub(crate) fn is_ready(&self) -> bool {
        *self.0.borrow() == ServerState::Serving
    }

    /// The liveness probe: whether it serves, or will.
    pub(crate) fn is_live(&self) -> bool {
        *self.0.borrow() != ServerState::Ended
    }
}

/// The probes and the debug handlers of all started servers, as the admin API uses them.
#[derive(Default)]
pub(crate) struct SidecarServers {
    rows: Vec<(&'static str, Probes)>,
    debug: Vec<DebugHandler>,
}

impl SidecarServers {
    /// Adds a server with the name of its driver.
    pub(crate) fn add(&mut self, name: &'static str, probes: Probes, debug: Vec<DebugHandler>) {
        self.rows.push((name, probes));
        self.debug.extend(debug);
    }

    /// What delays readiness, one entry for each server that does not serve.
    pub(crate) fn waiting_for(&self) -> Vec<String> {
        let waiting = self.rows.iter().filter(|(_, probes)| !probes.is_ready());
        let reason = |(name, probes): &(&str, Probes)| {
            if probes.is_started() {
                format!("the server of {name} sidecars, which has ended")
            } else {
                format!("the start of the server of {name} sidecars")
            }
        };
        waiting.map(reason).collect()
    }

    /// The servers that serve no more.
    pub(crate) fn dead(&self) -> Vec<&'static str> {
        let dead = self.rows.iter().filter(|(_, probes)| !probes.is_live());
        dead.map(|(name, _)| *name).collect()
    }

    /// The answer of the debug handler with this name, or the names of all.
    pub(crate) fn debug(&self, name: &str) -> Result<Value, Vec<&'static str>> {
        let found = self.debug.iter().find(|handler| handler.name == name);
        let names = || self.debug.iter().map(|handler| handler.name).collect();
        found.map(|handler| (handler.answer)()).ok_or_else(names)
    }
}

impl Debug for SidecarServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SidecarServers").field(&self.rows).finish_non_exhaustive()
    }
}

/// Compiles the resources of a proxy by its driver.
///
/// A driver of another version gets those of Envoy: admission rejects its streams.
pub(crate) fn compile(compiler: &mut Compiler, proxy: &Proxy) -> Compiled {
    let server = SERVERS.find(&proxy.record.driver);
    server.unwrap_or(&envoy::EnvoyServer).compile(compiler, proxy)
}

/// The driver of a new proxy: the requested one, or `class` of the settings.
pub(crate) fn choose(
    requested: Option<&DriverName>,
    class: &DriverName,
) -> Result<DriverName, UnknownDriver> {
    let name = requested.unwrap_or(class);
    SERVERS.find(name).map(|_| name.clone())
}

#[cfg(test)]
mod tests {
    use ironmesh_sidecar::DRIVERS;

    use super::*;

    #[test]
    fn both_halves_have_the_same_drivers() {
        assert!(SERVERS.names().eq(DRIVERS.names()));
    }

    #[test]
    fn probes_follow_the_state_of_the_server() {
        let (state, receiver) = watch::channel(ServerState::Starting);
        let mut servers = SidecarServers::default();
        servers.add("envoy", Probes(receiver), Vec::new());
        assert_eq!(servers.waiting_for(), ["the start of the server of envoy sidecars"]);
        assert!(servers.dead().is_empty());
        state.send_replace(ServerState::Serving);
        assert!(servers.waiting_for().is_empty() && servers.dead().is_empty());
        state.send_replace(ServerState::Ended);
        assert_eq!(servers.dead(), ["envoy"]);
        assert_eq!(servers.waiting_for(), ["the server of envoy sidecars, which has ended"]);
    }

    #[test]
    fn requested_driver_overrides_the_class_and_must_exist() {
        let (class, unknown) = (DriverName::default(), "haproxy".parse().unwrap());
        assert_eq!(choose(None, &class), Ok(class.clone()));
        let error = choose(Some(&unknown), &class).unwrap_err().to_string();
        assert!(error.starts_with("no sidecar driver `haproxy`"), "{error}");
    }
}
