//! Real Envoys, their applications, and sequential requests.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// The port of applications.
pub(super) const APPLICATION: u16 = 8080;
/// The local port of an Envoy's upstream.
pub(super) const UPSTREAM: u16 = 9080;

/// Starts an Envoy with the bootstrap in `folder`. Dropping the child ends it.
pub(super) fn start(envoy: &Path, folder: &Path) -> anyhow::Result<Child> {
    let log = fs_err::File::create(folder.join("envoy.log"))?;
    let mut command = Command::new(envoy);
    command.arg("-c").arg(folder.join("envoy.yaml"));
    command.args(["--disable-hot-restart", "--drain-time-s", "30", "--concurrency", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.into_parts().0);
    let child = command.kill_on_drop(true).spawn();
    child.with_context(|| format!("cannot run `{}`", envoy.display()))
}

/// An application that answers every request with its name.
pub(super) async fn answer_all(listener: TcpListener, name: String) -> anyhow::Result<()> {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = answer.clone();
        tokio::spawn(async move {
            while read_head(&mut stream).await.is_ok() {
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A client that sends requests in sequence, and keeps its connection if possible.
#[derive(Debug)]
pub(super) struct Caller {
    to: SocketAddr,
    host: &'static str,
    connection: Option<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct CallResponse {
    pub(super) status: u16,
    /// The body: the name of the application, if an application answered.
    pub(super) body: String,
}

impl Caller {
    pub(super) fn new(to: SocketAddr, host: &'static str) -> Self {
        Self { to, host, connection: None }
    }

    /// Sends requests until an answer matches, and returns its time.
    pub(super) async fn until(
        &mut self,
        what: &str,
        patience: Duration,
        mut matches: impl FnMut(&CallResponse) -> bool,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.request().await;
            if answer.as_ref().is_ok_and(&mut matches) {
                return Ok(Instant::now());
            }
            ensure!(Instant::now() < deadline, "waited for {what}, last answer: {answer:?}");
            if answer.is_err() {
                self.connection = None;
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn request(&mut self) -> anyhow::Result<CallResponse> {
        let stream = match &mut self.connection {
            Some(stream) => stream,
            none => none.insert(TcpStream::connect(self.to).await?),
        };
        let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        stream.write_all(request.as_bytes()).await?;
        let head = read_head(stream).await?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
        stream.read_exact(&mut body).await?;
        let status = status.with_context(|| format!("no status in `{head}`"))?;
        Ok(CallResponse { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// Reads the head of a message, in lower case.
async fn read_head(stream: &mut TcpStream) -> anyhow::Result<String> {
    const MAX_HEAD: usize = 16 * 1024;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_HEAD, "the head is larger than 16 KiB");
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).to_lowercase())
}
