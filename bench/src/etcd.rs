//! A real etcd with one member, TLS and access control, for control planes that share a store.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ironmesh_cert::{Authority, ServerNames};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::measured_control_plane::{free_host, metric, must_succeed};
use crate::target::new_authority;

/// A running member. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    program: PathBuf,
    host: Ipv4Addr,
    folder: TempDir,
}

impl Etcd {
    /// Starts a member, and creates the user of the control planes. `etcdctl` is beside `program`.
    pub(crate) async fn start(program: &Path, patience: Duration) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ironmesh-bench-").tempdir()?;
        let host = free_host()?;
        write_certificates(folder.path(), host)?;
        let log = fs_err::File::create(folder.path().join(LOG))?;
        let (clients, peers) = (format!("https://{host}:{CLIENTS}"), format!("http://{host}:2380"));
        // The process runs in a different folder.
        let program = fs_err::canonicalize(program)?;
        let mut command = Command::new(&program);
        command.current_dir(folder.path()).args(["--name", "m", "--data-dir", "data"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg(format!("--initial-cluster=m={peers}"));
        command.arg(format!("--listen-metrics-urls=http://{host}:{METRICS}"));
        command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
        command.args(["--cert-file", "member.pem", "--key-file", "member.key"]);
        // The disk is not measured. The gateway would connect with the certificate of a server.
        command.args(["--unsafe-no-fsync", "--enable-grpc-gateway=false"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?.into_parts().0);
        let child = command.stderr(log.into_parts().0).kill_on_drop(true).spawn();
        let child = child.with_context(|| format!("cannot run `{}`", program.display()))?;
        let mut etcd = Self { child, program, host, folder };
        let deadline = Instant::now() + patience;
        while let Err(error) = etcd.ctl(&["put", "/is-ready", "yes"]).await {
            if let Some(status) = etcd.child.try_wait()? {
                bail!("etcd ended with {status}:\n{}", etcd.log_tail());
            }
            ensure!(Instant::now() < deadline, "etcd is not ready: {error:#}\n{}", etcd.log_tail());
            sleep(Duration::from_millis(50)).await;
        }
        etcd.control_access().await?;
        Ok(etcd)
    }

    /// Creates the users, and the role for the keys of the mesh.
    async fn control_access(&self) -> anyhow::Result<()> {
        self.ctl(&["role", "add", STORE]).await?;
        for keys in ["state", "leases"] {
            let prefix = format!("/ironmesh/default/{keys}/");
            let grant = ["role", "grant-permission", STORE, "--prefix=true", "readwrite", &prefix];
            self.ctl(&grant).await?;
        }
        for user in [ROOT, STORE] {
            self.ctl(&["user", "add", user, "--no-password"]).await?;
            self.ctl(&["user", "grant-role", user, user]).await?;
        }
        self.ctl(&["auth", "enable"]).await
    }

    /// Runs etcdctl as `root`.
    async fn ctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(self.program.with_file_name("etcdctl"));
        command.env("ETCDCTL_API", "3").current_dir(self.folder.path());
        command.args(["--endpoints", &format!("https://{}:{CLIENTS}", self.host)]);
        command.args(["--cacert", "ca.pem", "--cert", "root.pem", "--key", "root.key"]);
        must_succeed("`etcdctl`", command.args(arguments)).await
    }

    /// The settings of a control plane with its store in this etcd.
    pub(crate) fn settings(&self) -> String {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let [ca, certificate, key] = ["ca.pem", "store.pem", "store.key"].map(file);
        let host = self.host;
        format!(
            "[store]\nkind = \"etcd\"\n[store.etcd]\nendpoints = [\"https://{host}:{CLIENTS}\"]\n\
             ca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n"
        )
    }

    /// The bytes that it has received from its clients so far.
    pub(crate) async fn received(&self) -> anyhow::Result<u64> {
        let metrics = SocketAddr::from((self.host, METRICS));
        metric(metrics, "etcd_network_client_grpc_received_bytes_total").await
    }

    fn log_tail(&self) -> String {
        let log = fs_err::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
    }
}

/// Writes the certificates of the member and of the users, each of which is the common name of its certificate.
fn write_certificates(folder: &Path, host: Ipv4Addr) -> anyhow::Result<()> {
    let authority: Authority = new_authority(folder)?;
    fs_err::write(folder.join("ca.pem"), authority.trust_bundle().roots)?;
    let now = jiff::Timestamp::now();
    let names = ServerNames { addresses: [host.into()].into(), ..ServerNames::default() };
    let member = authority.issue_control_plane_certificate(&names, now)?;
    fs_err::write(folder.join("member.pem"), member.chain)?;
    fs_err::write(folder.join("member.key"), member.key.expose())?;
    for user in [ROOT, STORE] {
        let account = format!("etcd/{user}").parse()?;
        let own = authority.issue_service_certificate(&account, LIFETIME, now)?;
        fs_err::write(folder.join(format!("{user}.pem")), own.chain)?;
        fs_err::write(folder.join(format!("{user}.key")), own.key.expose())?;
    }
    Ok(())
}

const ROOT: &str = "root";
/// The user of the control planes, and its role.
const STORE: &str = "store";
const CLIENTS: u16 = 2379;
const METRICS: u16 = 2381;
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const LOG: &str = "etcd.log";
