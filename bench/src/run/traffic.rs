//! Real Envoys, applications behind them, and requests that are made one after the other.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// Where applications listen.
pub(super) const APPLICATION: u16 = 8080;
/// Where an Envoy takes calls to the service that is its upstream.
pub(super) const UPSTREAM: u16 = 9080;

/// Starts an Envoy on the bootstrap in `folder`. It ends when this is dropped.
pub(super) fn start(envoy: &Path, folder: &Path) -> anyhow::Result<Child> {
    let log = fs_err::File::create(folder.join("envoy.log"))?;
    let mut command = Command::new(envoy);
    command.arg("-c").arg(folder.join("envoy.yaml"));
    command.args(["--disable-hot-restart", "--drain-time-s", "30", "--concurrency", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.into_parts().0);
    let child = command.kill_on_drop(true).spawn();
    child.with_context(|| format!("cannot run `{}`", envoy.display()))
}

/// An application: says its name to everybody.
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

/// Makes one request after the other, on one connection for as long as that is kept.
#[derive(Debug)]
pub(super) struct Caller {
    to: SocketAddr,
    host: &'static str,
    connection: Option<TcpStream>,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The name of the application, if it was one that answered.
    pub(super) body: String,
}

impl Caller {
    pub(super) fn new(to: SocketAddr, host: &'static str) -> Self {
        Self { to, host, connection: None }
    }

    /// Makes requests until an answer is the one that is waited for; when it was there.
    pub(super) async fn until(
        &mut self,
        what: &str,
        patience: Duration,
        mut is_it: impl FnMut(&Answer) -> bool,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.request().await;
            if answer.as_ref().is_ok_and(&mut is_it) {
                return Ok(Instant::now());
            }
            ensure!(Instant::now() < deadline, "waited for {what}, and came to {answer:?}");
            if answer.is_err() {
                self.connection = None;
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn request(&mut self) -> anyhow::Result<Answer> {
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
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// What stands in front of the body, in lower case.
async fn read_head(stream: &mut TcpStream) -> anyhow::Result<String> {
    const MOST: usize = 16 * 1024;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MOST, "the head is larger than 16 KiB");
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).to_lowercase())
}
