//! The protocol of the warehouse, as its callers speak it: the server has the first word.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The warehouse could not be spoken to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("connection refused")]
    Refused,
    #[error("connection closed without a byte")]
    Closed,
    #[error("connection broke")]
    Broken(#[source] io::Error),
    #[error("no line within {} s", PATIENCE.as_secs())]
    Late,
    #[error("unexpected line: `{0}`")]
    Strange(String),
}

/// One connection to the warehouse.
#[derive(Debug)]
pub(crate) struct Ledger {
    stream: BufStream<TcpStream>,
    /// The first line, which the warehouse sends unasked.
    pub(crate) banner: String,
}

impl Ledger {
    /// Connects, and waits for the banner before a byte is sent.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, LedgerError> {
        let open = async {
            let stream = TcpStream::connect(address).await.map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => LedgerError::Refused,
                _ => LedgerError::Broken(error),
            })?;
            stream.set_nodelay(true).map_err(LedgerError::Broken)?;
            let mut ledger = Self { stream: BufStream::new(stream), banner: String::new() };
            // What ends before the first line never began.
            ledger.banner = match ledger.line().await {
                Err(LedgerError::Broken(_)) => return Err(LedgerError::Closed),
                line => line?,
            };
            Ok(ledger)
        };
        timeout(PATIENCE, open).await.map_err(|_| LedgerError::Late)?
    }

    /// Records a sale; returns how many sales the warehouse has recorded by now.
    pub(crate) async fn record(&mut self, title: &str) -> Result<u64, LedgerError> {
        let exchange = async {
            let line = format!("{SOLD}{title}\n");
            self.stream.write_all(line.as_bytes()).await.map_err(LedgerError::Broken)?;
            self.stream.flush().await.map_err(LedgerError::Broken)?;
            let answer = self.line().await?;
            let total = answer.strip_prefix(RECORDED).and_then(|total| total.parse().ok());
            total.ok_or(LedgerError::Strange(answer))
        };
        timeout(PATIENCE, exchange).await.map_err(|_| LedgerError::Late)?
    }

    /// Waits until the other side ends it. Nothing else is to come while nothing is asked.
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

/// How a sale begins on the wire. The title follows.
pub(crate) const SOLD: &str = "sold ";
/// How its answer begins. The number of sales follows.
pub(crate) const RECORDED: &str = "ok ";

const PATIENCE: Duration = Duration::from_secs(5);
