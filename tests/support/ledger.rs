//! TCP: an application that speaks first, and a client on a connection that the test owns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::client::dial;
use crate::eventually::patience;

/// A TCP application that sends its name on connect and then echoes each line. Dropping this value
/// ends it and its connections.
#[derive(Debug)]
pub struct Ledger {
    connections: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Ledger {
    /// Starts a ledger.
    pub async fn start(name: &str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address)
            .await
            .unwrap_or_else(|error| panic!("{name} cannot listen on {address}: {error}"));
        let connections = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(accept(listener, name.to_owned(), Arc::clone(&connections)));
        Self { connections, task: task.abort_handle() }
    }

    /// The number of connections that have arrived.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, name: String, count: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        count.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
        let name = name.clone();
        connections.spawn(async move {
            // The client decides how a connection ends.
            let _ = stream.set_nodelay(true);
            let _ = serve(stream, &name).await;
        });
    }
}

async fn serve(stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        stream.write_all(line.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

/// A client connection to a [`Ledger`].
#[derive(Debug)]
pub struct TcpConnection<S = TcpStream> {
    stream: BufReader<S>,
}

impl TcpConnection {
    /// Connects to `address`, and sends nothing yet.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self::over(dial(address).await?))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TcpConnection<S> {
    /// Uses a stream that is already open.
    pub fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Reads the next line; an error if the peer has closed the connection.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = timeout(patience(), self.stream.read_line(&mut line));
        match read.await.context("no line comes, and no end either")?? {
            0 => bail!("closed by the other side"),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Sends a line and waits for its echo.
    pub async fn exchange(&mut self, line: &str) -> anyhow::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = self.line().await?;
        anyhow::ensure!(answer == line, "`{answer}` came back for `{line}`");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ledger_sends_first_and_counts_connections() {
        let address = crate::Loopback::claim().socket(1, 8080);
        let ledger = Ledger::start("bookwarehouse", address).await;
        for count in 1..=2 {
            let mut connection = TcpConnection::connect(address).await.unwrap();
            assert_eq!(connection.line().await.unwrap(), "bookwarehouse");
            connection.exchange("one book").await.unwrap();
            assert_eq!(ledger.connections(), count);
        }
        let mut connection = TcpConnection::connect(address).await.unwrap();
        connection.line().await.unwrap();
        drop(ledger);
        assert!(connection.line().await.is_err());
    }
}
