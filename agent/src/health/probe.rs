//! One probe: it asks the application once, within its time limit, on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::Probe;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{command, grpc, http};
use crate::settings::Commands;

/// Probes the application at `address`. The error is for people.
pub(super) async fn probe(
    probe: &Probe,
    address: SocketAddr,
    limit: Duration,
    commands: &Commands,
) -> Result<(), String> {
    let attempt = async {
        match probe {
            Probe::Tcp => connect(address).await.map(drop),
            Probe::Http { path, host, statuses, http2 } => {
                let request = http::HttpProbe { path, host: host.as_deref(), statuses };
                request.send(connect(address).await?, address, *http2).await
            }
            Probe::Grpc { service } => {
                grpc::check(connect(address).await?, address, service.as_deref()).await
            }
            Probe::Command { name } => match commands.get(name) {
                Some(words) => command::run(words).await,
                None => Err(format!("`[commands]` of this machine has no `{name}`")),
            },
            Probe::Unknown => Err("this version of the agent does not know the probe".to_owned()),
        }
    };
    let outcome = timeout(limit, attempt).await;
    outcome.unwrap_or_else(|_| Err(format!("no answer within {} ms", limit.as_millis())))
}

/// Opens a connection, which is closed when it is dropped: a kept one would hide a closed port.
async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let connected = TcpStream::connect(address).await;
    connected.map_err(|error| format!("cannot connect to {address}: {error}"))
}
