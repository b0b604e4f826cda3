//! The programs behind the sidecars. They run in this process, and know nothing of a mesh.

mod records;
mod store;
mod warehouse;

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub(crate) use records::{Records, outcome_of};
pub(crate) use store::{APPLICATION, MACHINE, Store};
pub(crate) use warehouse::Warehouse;

/// The next connection. What keeps us from one, such as too many open files, stays for a while.
async fn next_connection(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(50);
