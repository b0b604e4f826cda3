//! The warehouse: a TCP server that sends first, as many databases and mail servers do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::next_connection;
use crate::error::DemoError;
use crate::ledger::{RECORDED, SOLD};

/// A running warehouse. Dropping it ends the warehouse.
#[derive(Debug)]
pub(crate) struct Warehouse {
    seen: Arc<Seen>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicU64,
    sales: AtomicU64,
}

impl Warehouse {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, DemoError> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| DemoError::Listen { address, source })?;
        let seen = Arc::<Seen>::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&seen))).abort_handle();
        Ok(Self { seen, task })
    }

    /// The number of connections that have reached it.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Ends the warehouse and its connections.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

impl Drop for Warehouse {
    fn drop(&mut self) {
        self.close();
    }
}

/// Accepts connections until it is aborted, which ends all of them.
async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = next_connection(&listener).await;
        seen.connections.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
        let seen = Arc::clone(&seen);
        // The client may end the connection in any way.
        connections.spawn(async move { drop(serve(stream, &seen).await) });
    }
}

async fn serve(stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufStream::new(stream);
    stream.write_all(BANNER.as_bytes()).await?;
    stream.flush().await?;
    let mut line = String::new();
    // The loop ends for a client that disconnects, or that sends an overlong line, which no store does.
    while (&mut stream).take(LONGEST_LINE).read_line(&mut line).await? > 0 && line.ends_with('\n') {
        let answer = if line.starts_with(SOLD) {
            let total = seen.sales.fetch_add(1, Ordering::Relaxed) + 1;
            format!("{RECORDED}{total}\n")
        } else {
            "what?\n".to_owned()
        };
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
        line.clear();
    }
    Ok(())
}

const BANNER: &str = "bookwarehouse ledger ready\n";
/// The longest line in bytes, with its line break.
const LONGEST_LINE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::Network;
    use crate::ledger::{Ledger, LedgerError};

    #[tokio::test]
    async fn line_beyond_the_maximum_length_closes_the_connection() {
        let network = Network::claim(&[(31, 8080)]).unwrap();
        let address = network.socket(31, 8080);
        let _warehouse = Warehouse::open(address).await.unwrap();
        let longest = usize::try_from(LONGEST_LINE).unwrap() - SOLD.len() - 1;
        let mut ledger = Ledger::open(address).await.unwrap();
        assert_eq!(ledger.record(&"x".repeat(longest)).await.unwrap(), 1);
        assert_eq!(ledger.record("short").await.unwrap(), 2);
        let overlong = ledger.record(&"x".repeat(longest + 1)).await;
        assert!(
            matches!(overlong, Err(LedgerError::Closed | LedgerError::Broken(_))),
            "{overlong:?}"
        );

        // A line without an end closes the connection, too.
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&vec![b'x'; longest * 2]).await.unwrap();
        let mut rest = Vec::new();
        // Unread bytes make the end a reset.
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(Ledger::open(address).await.unwrap().record("next").await.unwrap(), 3);
    }
}
