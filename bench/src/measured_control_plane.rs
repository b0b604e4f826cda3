//! The measured control plane: a real `ironmesh serve` with a policy that the generator changes.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ironmesh_admin::Client;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::identity::{Identity, folders};
use crate::shape::{GROUP, GROWING, Shape};

/// A control plane in its own folder. Dropping it ends the control plane.
#[derive(Debug)]
pub(crate) struct MeasuredControlPlane {
    program: PathBuf,
    host: Ipv4Addr,
    /// The hosts of the other control planes of its mesh.
    peers: Vec<Ipv4Addr>,
    child: Option<Child>,
    /// The number of endpoints of the public service.
    endpoints: usize,
    /// The number of changes of the public service, and of the private one.
    changes: (usize, usize),
    /// The number of swapped files.
    swaps: usize,
    folder: TempDir,
}

impl MeasuredControlPlane {
    /// Writes settings and the policy of a fleet, and starts the control plane.
    pub(crate) async fn start(program: &Path, shape: Shape) -> anyhow::Result<Self> {
        let mut subject = Self::prepare(program)?;
        subject.write_policy(shape)?;
        subject.run().await?;
        Ok(subject)
    }

    /// Writes the policy of a fleet.
    pub(crate) fn write_policy(&mut self, shape: Shape) -> anyhow::Result<()> {
        self.endpoints = shape.endpoints;
        shape.write_policy(&self.folder.path().join("policy"))?;
        self.write_change()?;
        Ok(())
    }

    /// Writes settings, without a policy, and does not start the control plane yet.
    pub(crate) fn prepare(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ironmesh-bench-").tempdir()?;
        let host = free_host()?;
        let path = folder.path();
        fs_err::create_dir_all(path.join("policy").join(SWAPPED))?;
        let program = program.to_owned();
        let (endpoints, changes) = (Shape::ENDPOINTS, (0, 0));
        let (peers, child, swaps) = (Vec::new(), None, 0);
        let subject = Self { program, host, peers, child, endpoints, changes, swaps, folder };
        subject.configure("")?;
        Ok(subject)
    }

    fn settings(&self) -> String {
        let host = self.host;
        let hosts = std::iter::once(&host).chain(&self.peers);
        let advertised: Vec<_> = hosts.map(|host| format!("{host}:{XDS}")).collect();
        format!(
            "state = \"state\"\npolicy = {{ folder = \"policy\", removal_hold = \"0s\" }}\nadvertise = {advertised:?}\n\
             [listen]\nxds = \"{host}:{XDS}\"\nadmin = \"{host}:{ADMIN}\"\n"
        )
    }

    /// Replaces the additional settings. They apply from the next start.
    pub(crate) fn configure(&self, more: &str) -> anyhow::Result<()> {
        fs_err::write(self.folder.path().join("ironmesh.toml"), self.settings() + more)?;
        Ok(())
    }

    /// Makes two control planes that were prepared the replicas of one mesh: creates the store by the first one's
    /// additional settings, which both get, and gives its key to the other.
    pub(crate) async fn share_store(pair: &mut [Self; 2], more: &str) -> anyhow::Result<()> {
        let [first, second] = pair;
        (first.peers, second.peers) = (vec![second.host], vec![first.host]);
        first.configure(more)?;
        second.configure(more)?;
        must_succeed("`store init`", &mut first.command(&["store", "init"])).await?;
        let [key, copy] = [&*first, second].map(|one| one.folder.path().join("state/kek"));
        let state = second.folder.path().join("state");
        fs_err::create_dir(&state)?;
        fs_err::set_permissions(&state, Permissions::from_mode(0o700))?;
        fs_err::copy(key, copy)?;
        Ok(())
    }

    /// Starts the control plane, and waits until it is ready.
    pub(crate) async fn run(&mut self) -> anyhow::Result<()> {
        let log = fs_err::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("serve.log"))?;
        let child = self
            .command(&["serve"])
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?.into_parts().0)
            .stderr(log.into_parts().0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run `{}`", self.program.display()))?;
        self.child = Some(child);
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if self.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
                return Ok(());
            }
            if let Some(status) =
                self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
            {
                bail!("`ironmesh serve` ended with {status}:\n{}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "`ironmesh serve` is not ready:\n{}",
                self.log_tail()
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the control plane with SIGKILL.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Enrolls the proxies as an operator does, with one `proxy bootstrap` per group.
    pub(crate) async fn enroll(&self, shape: Shape) -> anyhow::Result<Vec<Identity>> {
        let mut identities = Vec::new();
        for group in 0..shape.groups() {
            let enrolled = self.enroll_group(group, &shape.services_of(group)).await?;
            for (mut identity, proxy) in enrolled.into_iter().zip(group * GROUP..) {
                identity.metadata = shape.metadata(proxy);
                identities.push(identity);
            }
        }
        Ok(identities)
    }

    /// Enrolls one more group, for a service that an earlier group serves already.
    pub(crate) async fn enroll_more(&self, shape: Shape) -> anyhow::Result<Vec<Identity>> {
        let mut enrolled = self.enroll_group(shape.groups(), &[GROWING.0.to_owned()]).await?;
        for (identity, proxy) in enrolled.iter_mut().zip(shape.proxies..) {
            identity.metadata = shape.metadata(proxy);
        }
        Ok(enrolled)
    }

    /// Enrolls a group that serves these services.
    pub(crate) async fn enroll_group(
        &self,
        group: usize,
        services: &[String],
    ) -> anyhow::Result<Vec<Identity>> {
        let out = self.folder.path().join(format!("proxies/{group:04}"));
        let (first, count) = (group * GROUP, GROUP.to_string());
        let address = Shape::address(first).to_string();
        let mut arguments = vec!["--count", &count, "--address", &address];
        for service in services {
            arguments.extend(["--service", service]);
        }
        self.bootstrap(&arguments, &out).await?;
        let mut identities = Vec::new();
        for (folder, proxy) in folders(&out)?.iter().zip(first..) {
            let mut identity = Identity::read(folder, None)?;
            identity.zone = format!("zone-{proxy}");
            identities.push(identity);
        }
        Ok(identities)
    }

    /// Runs `proxy bootstrap` with these arguments, and writes the files to `out`.
    pub(crate) async fn bootstrap(&self, arguments: &[&str], out: &Path) -> anyhow::Result<()> {
        let mut command = self.command(&["proxy", "bootstrap"]);
        must_succeed("`proxy bootstrap`", command.args(arguments).arg("--out").arg(out)).await
    }

    /// The folder of the first proxy, which also has the roots of the mesh.
    pub(crate) fn first_proxy(&self) -> PathBuf {
        self.folder.path().join("proxies/0000/0001")
    }

    /// The folder of this run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The loopback address at this distance from its own.
    pub(crate) fn beside(&self, number: u8) -> Ipv4Addr {
        let [a, b, c, d] = self.host.octets();
        Ipv4Addr::new(a, b, c, d + number)
    }

    pub(crate) fn xds(&self) -> SocketAddr {
        SocketAddr::from((self.host, XDS))
    }

    /// The address of the enrollment listener.
    pub(crate) fn enrollment(&self) -> SocketAddr {
        SocketAddr::from((self.host, ENROLLMENT))
    }

    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.as_ref().and_then(Child::id).context("the control plane is not running")
    }

    /// Changes one endpoint of the public service. Returns the time before.
    pub(crate) fn change(&mut self) -> anyhow::Result<Instant> {
        self.change_to(self.changes.0 + 1)
    }

    /// Changes the public service to its content after this many changes. Returns the time before.
    pub(crate) fn change_to(&mut self, changes: usize) -> anyhow::Result<Instant> {
        self.changes.0 = changes;
        self.write_change()
    }

    /// Changes one endpoint of the private service. Returns the time before.
    pub(crate) fn change_private(&mut self) -> anyhow::Result<Instant> {
        self.changes.1 += 1;
        self.write_change()
    }

    /// Changes the public service to its content at this step. Returns the time before.
    pub(crate) fn change_step(&mut self, step: usize) -> anyhow::Result<Instant> {
        self.swap("changing.toml", &Shape::at_step(step))
    }

    fn write_change(&mut self) -> anyhow::Result<Instant> {
        let (all, few) = self.changes;
        self.swap("changing.toml", &Shape::changing(self.endpoints, all, few))
    }

    /// Writes a file outside the policy, and atomically replaces the link of this name with a link to it. The control plane
    /// applies such a swap at once. Returns the time before.
    pub(crate) fn swap(&mut self, name: &str, text: &str) -> anyhow::Result<Instant> {
        self.swaps += 1;
        let path = self.folder.path();
        let file = path.join("policy").join(SWAPPED).join(format!("{}.toml", self.swaps));
        fs_err::write(&file, text)?;
        let link = path.join("swapped.link");
        fs_err::os::unix::fs::symlink(&file, &link)?;
        let before = Instant::now();
        fs_err::rename(&link, path.join("policy").join(name))?;
        Ok(before)
    }

    /// A client of its admin socket.
    pub(crate) fn admin(&self) -> Client {
        Client::new(&self.folder.path().join("state/admin.sock"))
    }

    /// The value of a metric at `/metrics`, summed over its labels.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        metric((self.host, ADMIN).into(), name).await
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        get((self.host, ADMIN).into(), path).await
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--config").arg(self.folder.path().join("ironmesh.toml"));
        command
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs_err::read_to_string(self.folder.path().join("serve.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for MeasuredControlPlane {
    /// Ends the process before the folder is removed, so that the process does not write to it.
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        drop(child.start_kill());
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a command, whose name is for the error.
pub(crate) async fn must_succeed(name: &str, command: &mut Command) -> anyhow::Result<()> {
    let output = timeout(START_DEADLINE, command.kill_on_drop(true).output()).await;
    let output = output.with_context(|| format!("{name} takes longer than {START_DEADLINE:?}"))?;
    let output = output.with_context(|| format!("cannot run {name}"))?;
    ensure!(
        output.status.success(),
        "{name} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The value of a metric at `/metrics` of a server, summed over its labels.
pub(crate) async fn metric(server: SocketAddr, name: &str) -> anyhow::Result<u64> {
    let text = get(server, "/metrics").await?;
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counters are whole and not negative"
    )]
    Ok(values.sum::<f64>() as u64)
}

async fn get(server: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A loopback address with free ports for a control plane.
pub(crate) fn free_host() -> anyhow::Result<Ipv4Addr> {
    for _ in 0..100 {
        let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
        let host = Ipv4Addr::new(127, 64 + a % 150, b, 1);
        if [XDS, ENROLLMENT, ADMIN].iter().all(|port| TcpListener::bind((host, *port)).is_ok()) {
            return Ok(host);
        }
    }
    bail!("no free loopback address")
}

pub(crate) const XDS: u16 = 15128;
const ENROLLMENT: u16 = 15129;
const ADMIN: u16 = 15014;
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The folder of the link targets. It is hidden, so the control plane reads its files only by the links.
const SWAPPED: &str = ".swapped";
