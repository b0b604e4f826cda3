//! The contract of `--target`: how the runner starts, changes and ends a server that sends recorded resources to a fleet.
//! The floor is such a server, and so may be any other xDS control plane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ironmesh_catalog::{Domain, TrustDomain};
use ironmesh_cert::{Authority, ServerNames};
use ironmesh_store::{KeyEncryptionKey, MeshState, Store};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};

use crate::envoy::Holdings;
use crate::measured_control_plane::{XDS, free_host};
use crate::recording::write_recording;

/// The documentation of the contract, for `--help`.
pub const CONTRACT: &str = "\
Contract of `run --target CMD`:
  The shell runs `exec CMD` as one process with these variables:
    BENCH_LISTEN        listen on this address with TLS 1.3 and ALPN `h2`
    BENCH_CERTIFICATE   present this certificate chain (PEM)
    BENCH_KEY           with this key (PEM)
    BENCH_CLIENT_ROOTS  require client certificates below these roots (PEM)
    BENCH_RESOURCES     send these resources to every client (JSON)
    BENCH_CHANGES       start as after this many changes
    BENCH_IDENTITIES    folders of the clients: GROUP/NUMBER/{envoy.yaml,proxy.crt,ca.crt}
    BENCH_SERVICES      the number of services
  The process serves aggregated delta xDS, and prints `ready` on stdout.
  Each line on stdin is a change: push the other of both contents of one resource.
  It ends when stdin ends, and is killed and started again meanwhile.
  BENCH_RESOURCES is {\"resources\": [R, ...], \"changed\": R}: `changed` replaces the
  resource of its type and name after an odd number of changes. R has `type_url`,
  `name`, `version`, and the bytes of the resource as hexadecimal `body`.";

/// The program of a target.
#[derive(Debug, Clone)]
pub(crate) enum Program {
    /// The floor of this binary.
    Floor(PathBuf),
    /// A command of the shell.
    Shell(String),
}

/// The files of the contract.
#[derive(Debug, Clone)]
pub(crate) struct Contract {
    folder: PathBuf,
    identities: PathBuf,
    services: usize,
    client_roots: PathBuf,
}

impl Contract {
    /// Writes the files below `folder`, with a certificate of an authority of their own. `client_roots` verify the
    /// certificates of the clients in the folder `identities`.
    pub(crate) fn write(
        folder: &Path,
        recorded: &Holdings,
        identities: PathBuf,
        client_roots: PathBuf,
        services: usize,
    ) -> anyhow::Result<Self> {
        let contract = Self { folder: folder.join("target"), identities, services, client_roots };
        fs_err::create_dir_all(&contract.folder)?;
        write_recording(&contract.file(RESOURCES), recorded)?;
        let authority = new_authority(&contract.folder)?;
        let now = jiff::Timestamp::now();
        let own = authority.issue_control_plane_certificate(&ServerNames::default(), now)?;
        fs_err::write(contract.file(CERTIFICATE), own.chain)?;
        fs_err::write(contract.file(KEY), own.key.expose())?;
        fs_err::write(contract.file(ROOTS), authority.trust_bundle().roots)?;
        Ok(contract)
    }

    /// The folders of the clients, by group.
    pub(crate) fn identities(&self) -> &Path {
        &self.identities
    }

    /// The roots of the target's own certificate, in PEM.
    pub(crate) fn own_roots(&self) -> anyhow::Result<String> {
        Ok(fs_err::read_to_string(self.file(ROOTS))?)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A new certificate authority, with its files in `folder`.
pub(crate) fn new_authority(folder: &Path) -> anyhow::Result<Authority> {
    let key = KeyEncryptionKey::load_or_create(&folder.join("authority.kek"), false)?;
    let state = MeshState::new(Arc::new(Store::open(&folder.join("authority"), key)?));
    let trust_domain = TrustDomain::new(Domain::default());
    Ok(Authority::open(&*state, &trust_domain, jiff::Timestamp::now())?)
}

/// A running target. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Target {
    program: Program,
    contract: Contract,
    address: SocketAddr,
    changes: u64,
    child: Option<(Child, ChildStdin)>,
}

impl Target {
    /// Starts a target on a free address.
    pub(crate) async fn start(program: Program, contract: Contract) -> anyhow::Result<Self> {
        let address = SocketAddr::from((free_host()?, XDS));
        let mut target = Self { program, contract, address, changes: 0, child: None };
        target.run().await?;
        Ok(target)
    }

    /// Restarts the target with a change that it has sent to no client.
    pub(crate) async fn run_changed(&mut self) -> anyhow::Result<()> {
        self.changes += 1;
        self.run().await
    }

    /// Starts the process, and waits until it is ready.
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut command = match &self.program {
            Program::Floor(program) => {
                let mut command = Command::new(program);
                command.arg("floor");
                command
            }
            Program::Shell(text) => {
                // The process itself, without the shell: its CPU time and memory are measured.
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("exec {text}"));
                command
            }
        };
        let contract = &self.contract;
        command.env("BENCH_LISTEN", self.address.to_string());
        command.env("BENCH_CERTIFICATE", contract.file(CERTIFICATE));
        command.env("BENCH_KEY", contract.file(KEY));
        command.env("BENCH_CLIENT_ROOTS", &contract.client_roots);
        command.env("BENCH_RESOURCES", contract.file(RESOURCES));
        command.env("BENCH_CHANGES", self.changes.to_string());
        command.env("BENCH_IDENTITIES", &contract.identities);
        command.env("BENCH_SERVICES", contract.services.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot run the target")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut lines = BufReader::new(stdout.context("no standard output")?).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line == "ready" {
                    return anyhow::Ok(());
                }
            }
            bail!("the target ended before it was ready")
        };
        timeout(READY_DEADLINE, ready).await.context("the target is not ready")??;
        // A target that prints more must not wait for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        self.child = Some((child, stdin.context("no standard input")?));
        Ok(())
    }

    /// Kills the target with SIGKILL.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, _)) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Sends the other content to all clients. Returns the time before.
    pub(crate) async fn change(&mut self) -> anyhow::Result<Instant> {
        let (child, stdin) = self.child.as_mut().context("the target is not running")?;
        if let Some(status) = child.try_wait()? {
            bail!("the target ended with {status}");
        }
        self.changes += 1;
        let before = Instant::now();
        stdin.write_all(b"change\n").await?;
        Ok(before)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        let id = self.child.as_ref().and_then(|(child, _)| child.id());
        id.context("the target is not running")
    }
}

const RESOURCES: &str = "resources.json";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
const ROOTS: &str = "roots.pem";
const READY_DEADLINE: Duration = Duration::from_secs(60);
