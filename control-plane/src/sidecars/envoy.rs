//! The Envoy driver in the control plane: xDS over mutual TLS.

use std::sync::Arc;

use ironmesh_catalog::Proxy;
use ironmesh_xds_compile::{Compiled, Compiler};
use ironmesh_xds_server::Hub;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{DebugHandler, Probes, ServerContext, ServerState, SidecarServer, StartedServer};

/// The control plane's half of the Envoy driver.
#[derive(Debug)]
pub(super) struct EnvoyServer;

impl SidecarServer for EnvoyServer {
    fn compile(&self, compiler: &mut Compiler, proxy: &Proxy) -> Compiled {
        compiler.compile(proxy)
    }

    fn start(&self, context: &ServerContext) -> anyhow::Result<StartedServer> {
        let listener = TcpListener::from_std(context.listener.try_clone()?)?;
        let (state, probes) = watch::channel(ServerState::Starting);
        let hub = Arc::clone(&context.hub);
        let debug = DebugHandler { name: "xds", answer: Box::new(move || clients(&hub)) };
        let (hub, admission) = (Arc::clone(&context.hub), Arc::clone(&context.admission));
        let (mut feeds, shutdown) = (context.feeds.clone(), context.shutdown.clone());
        let limits = context.limits;
        // xDS is served once the reconciler is ready (invariant 11).
        let task = async move {
            let is_ready = tokio::select! {
                () = shutdown.cancelled() => false,
                // If the reconciler has ended, there is nothing to serve; its own result says why.
                ready = feeds.ready.wait_for(|ready| *ready) => ready.is_ok(),
            };
            if is_ready {
                tracing::info!(address = %listener.local_addr()?, "xDS is served");
                state.send_replace(ServerState::Serving);
                ironmesh_xds_server::serve(listener, feeds.tls, hub, admission, limits, shutdown)
                    .await;
            }
            state.send_replace(ServerState::Ended);
            Ok(())
        };
        Ok(StartedServer { task: Box::pin(task), probes: Probes(probes), debug: vec![debug] })
    }
}

/// `/debug/xds`: the open streams of each client.
fn clients(hub: &Hub) -> serde_json::Value {
    let status = hub.status();
    let client = |client: &str| json!({ "client": client, "streams": hub.streams(client) });
    let clients: Vec<_> = status.iter().map(|(name, _)| client(name)).collect();
    json!({ "open_streams": hub.open_streams(), "clients": clients })
}
