//! The client side of the warehouse's protocol, in which the server sends first.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An exchange with the warehouse failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("connection refused")]
    Refused,
    #[error("connection closed without a byte")]
    Closed,
    #[error("connection broke")]
    Broken(#[source] io::Error),
    #[error("no line within {} s", TIMEOUT.as_secs())]
    Late,
    #[error("unexpected line: `{0}`")]
    Strange(String),
}

/// One connection to the warehouse.
#[derive(Debug)]
pub(crate) struct Ledger {
    stream: BufStream<TcpStream>,
    /// The first line, which the warehouse sends on connection.
    pub(crate) banner: String,
}

impl Ledger {
    /// Connects, and waits for the banner before it sends anything.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, LedgerError> {
        let open = async {
            let stream = TcpStream::connect(address).await.map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => LedgerError::Refused,
                _ => LedgerError::Broken(error),
            })?;
            stream.set_nodelay(true).map_err(LedgerError::Broken)?;
            let mut ledger = Self { stream: BufStream::new(stream), banner: String::new() };
            // A connection that ends before the banner counts as closed.
            ledger.banner = match ledger.line().await {
                Err(LedgerError::Broken(_)) => return Err(LedgerError::Closed),
                line => line?,
            };
            Ok(ledger)
        };
        timeout(TIMEOUT, open).await.map_err(|_| LedgerError::Late)?
    }

    /// Records a sale, and returns the number of sales that the warehouse has recorded.
    pub(crate) async fn record(&mut self, title: &str) -> Result<u64, LedgerError> {
        let exchange = async {
            let line = format!("{SOLD}{title}\n");
            self.stream.write_all(line.as_bytes()).await.map_err(LedgerError::Broken)?;
            self.stream.flush().await.map_err(LedgerError::Broken)?;
            let answer = self.line().await?;
            let total = answer.strip_prefix(RECORDED).and_then(|total| total.parse().ok());
            total.ok_or(LedgerError::Strange(answer))
        };
        timeout(TIMEOUT, exchange).await.map_err(|_| LedgerError::Late)?
    }

    /// Waits until the server ends the connection. The server sends nothing else without a request.
    pub(crate) async fn closed(&mut self) {
        while let Ok(rest) = self.stream.fill_buf().await {
            if rest.is_empty() {
                return;
            }
            let length = rest.len();
            self.stream.consume(length);
        }
    }

    async fn line(&mut self) -> Result<String, LedgerError> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await.map_err(LedgerError::Broken)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.to_owned()),
            None if read == 0 => Err(LedgerError::Closed),
            None => Err(LedgerError::Strange(line)),
        }
    }
}

/// The prefix of a sale on the wire. The title follows.
pub(crate) const SOLD: &str = "sold ";
/// The prefix of its answer. The number of sales follows.
pub(crate) const RECORDED: &str = "ok ";

const TIMEOUT: Duration = Duration::from_secs(5);
