//! From policy to real Envoys: a grant is withdrawn and given again by a swap, while requests are made as
//! fast as they are answered. The time runs until the first that is judged anew.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::measure::median;
use crate::report::{Row, milliseconds};
use crate::subject::Subject;

/// How often it is withdrawn and given again.
const ROUNDS: usize = 25;
/// How long all is left alone between two changes: longer than a burst settles.
const PAUSE: Duration = Duration::from_millis(120);
const BUDGET: f64 = 20.0;

/// A store and a buyer, each behind an Envoy, and a control plane that lets the one call the other.
pub(super) async fn measure(
    ironmesh: &Path,
    envoy: &Path,
    patience: Duration,
) -> anyhow::Result<Vec<Row>> {
    let mut subject = Subject::prepare(ironmesh)?;
    subject.swap("policy.toml", &policy(true))?;
    subject.run().await?;
    let (store, buyer) = (subject.beside(1), subject.beside(2));
    let application = TcpListener::bind((store, APPLICATION)).await?;
    let application = tokio::spawn(answer_all(application));
    let folder = subject.folder().to_owned();
    let address = store.to_string();
    let arguments = ["--service", "store", "--address", &address, "--app-address", &address];
    subject.bootstrap(&arguments, &folder.join("store")).await?;
    let address = buyer.to_string();
    let upstream = format!("default/store={UPSTREAM}");
    let arguments = ["--service", "buyer", "--address", &address, "--upstream", &upstream];
    subject.bootstrap(&arguments, &folder.join("buyer")).await?;
    let _envoys = [start(envoy, &folder.join("store"))?, start(envoy, &folder.join("buyer"))?];

    let mut caller = Caller { to: SocketAddr::from((buyer, UPSTREAM)), connection: None };
    caller.until(200, patience).await.context("the Envoys do not let the buyer in")?;
    let (mut withdrawn, mut granted) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (is_granted, status, times) in [(false, 403, &mut withdrawn), (true, 200, &mut granted)]
        {
            sleep(PAUSE).await;
            let begin = subject.swap("policy.toml", &policy(is_granted))?;
            times.push(caller.until(status, patience).await? - begin);
        }
    }
    application.abort();
    let row = |work, times: &[Duration]| {
        Row::new(work, "ms", milliseconds(median(times))).itself_at_most(BUDGET)
    };
    Ok(vec![
        row("a grant is withdrawn: to the first request that is denied, median", &withdrawn),
        row("a grant is given: to the first request that is let in, median", &granted),
    ])
}

fn policy(is_granted: bool) -> String {
    let target = "[[traffic_target]]\nname = \"buyers\"\ndestination = { name = \"store\" }\n\
                  sources = [{ name = \"buyer\" }]\n\
                  rules = [{ kind = \"HTTPRouteGroup\", name = \"all\" }]\n";
    format!(
        "[[service]]\nname = \"store\"\n\
         ports = [{{ name = \"web\", port = 80, protocol = \"http\", target_port = {APPLICATION} }}]\n\n\
         [[service]]\nname = \"buyer\"\n\n\
         [[http_route_group]]\nname = \"all\"\nmatches = [{{ name = \"all\" }}]\n\n{}",
        if is_granted { target } else { "" }
    )
}

/// Starts an Envoy on the bootstrap in `folder`. It ends when this is dropped.
fn start(envoy: &Path, folder: &Path) -> anyhow::Result<Child> {
    let log = fs_err::File::create(folder.join("envoy.log"))?;
    let mut command = Command::new(envoy);
    command.arg("-c").arg(folder.join("envoy.yaml"));
    command.args(["--disable-hot-restart", "--drain-time-s", "30", "--concurrency", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.into_parts().0);
    let child = command.kill_on_drop(true).spawn();
    child.with_context(|| format!("cannot run `{}`", envoy.display()))
}

/// The application: says the same to everybody.
async fn answer_all(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            while read_head(&mut stream).await.is_ok() {
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err()
                {
                    return;
                }
            }
        });
    }
}

/// Makes one request after the other, on one connection for as long as that is kept.
struct Caller {
    to: SocketAddr,
    connection: Option<TcpStream>,
}

impl Caller {
    /// Makes requests until one is answered with this status; when it was.
    async fn until(&mut self, status: u16, patience: Duration) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.request().await;
            if matches!(answer, Ok(answered) if answered == status) {
                return Ok(Instant::now());
            }
            ensure!(Instant::now() < deadline, "waited for {status}, and came to {answer:?}");
            if answer.is_err() {
                self.connection = None;
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn request(&mut self) -> anyhow::Result<u16> {
        let stream = match &mut self.connection {
            Some(stream) => stream,
            none => none.insert(TcpStream::connect(self.to).await?),
        };
        stream.write_all(b"GET / HTTP/1.1\r\nhost: store\r\n\r\n").await?;
        let head = read_head(stream).await?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
        stream.read_exact(&mut body).await?;
        status.with_context(|| format!("no status in `{head}`"))
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

const APPLICATION: u16 = 8080;
const UPSTREAM: u16 = 9080;
