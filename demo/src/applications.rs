//! The applications behind the sidecars. They run in this process, and do not know of the mesh.

mod records;
mod store;
mod warehouse;

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub(crate) use records::{Records, outcome_of};
pub(crate) use store::{APPLICATION, MACHINE, Store};
pub(crate) use warehouse::Warehouse;

/// Accepts the next connection. Pauses after an error such as too many open files, which does not pass at once.
async fn next_connection(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(50);
