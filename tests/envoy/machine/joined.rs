//! A machine that joined a mesh by a token, with its agent and its supervisor.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Output;

use http::Method;
use ironmesh_agent_envoy::local_http::{LocalAddress, exchange};
use ironmesh_agent_envoy::{EnvoyState, ReloadProgress, SupervisorClient, SupervisorStatus};
use ironmesh_sidecar::envoy::admin_socket;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Mesh, Programs, TcpConnection, eventually};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::enrollment::text;

/// A machine. Dropping it ends its processes.
pub(super) struct Machine {
    programs: Programs,
    path: PathBuf,
    address: IpAddr,
    /// The settings before the table `[envoy]`, and the lines of that table.
    settings: (String, String),
    pub(super) agent: Option<Child>,
    pub(super) supervisor: Option<Child>,
}

impl Machine {
    /// Creates the settings and the token of a machine with these services. The first address of the control plane is dead.
    pub(super) async fn new(
        mesh: &Mesh,
        programs: &Programs,
        host: u8,
        services: &[&str],
        (top, envoy): (&str, &str),
    ) -> Self {
        let mut arguments = vec!["proxy", "token", "--output", "json"];
        arguments.extend(services.iter().flat_map(|service| ["--service", service]));
        let created: Value = serde_json::from_str(&text(&mesh.run(&arguments).await)).unwrap();
        let part = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap();
        let path = mesh.folder().join(format!("m{host}"));
        fs_err::create_dir(&path).unwrap();
        fs_err::write(path.join("token"), part("/tokens/0/token")).unwrap();
        let address = mesh.loopback().host(host);
        let (dead, live) = (mesh.loopback().socket(2, 15129), mesh.loopback().socket(1, 15129));
        let hash = part("/ca_hashes/0");
        let settings = format!(
            "control_plane = [\"https://{dead}\", \"https://{live}\"]\nca_hash = [\"{hash}\"]\n\
             token_file = \"token\"\nfolder = \"proxy\"\naddress = \"{address}\"\n\
             app_address = \"{address}\"\n{top}\n"
        );
        let envoy =
            format!("[envoy]\nbinary = '{}'\nconcurrency = 1\n{envoy}\n", programs.envoy.display());
        let machine = Self {
            programs: programs.clone(),
            path,
            address,
            settings: (settings, envoy),
            agent: None,
            supervisor: None,
        };
        machine.write_settings("", "");
        machine
    }

    /// Starts agent and supervisor of a new machine, and waits until Envoy is live.
    pub(super) async fn start(
        mesh: &Mesh,
        programs: &Programs,
        host: u8,
        services: &[&str],
        settings: (&str, &str),
    ) -> Self {
        let mut machine = Self::new(mesh, programs, host, services, settings).await;
        machine.start_agent(mesh);
        machine.start_supervisor(mesh);
        machine.wait_until_live().await;
        machine
    }

    /// Writes the settings, with further lines.
    pub(super) fn write_settings(&self, top: &str, envoy: &str) {
        let (before, table) = &self.settings;
        let text = format!("{before}{top}\n{table}{envoy}\n");
        fs_err::write(self.path.join("agent.toml"), text).unwrap();
    }

    /// Writes the settings with another value of `ca_hash`.
    pub(super) fn write_hash(&self, hash: &str) {
        let (before, table) = &self.settings;
        let (start, rest) = before.split_once("ca_hash = ").unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        let text = format!("{start}ca_hash = [\"{hash}\"]\n{rest}{table}");
        fs_err::write(self.path.join("agent.toml"), text).unwrap();
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    fn folder(&self) -> PathBuf {
        self.path("proxy")
    }

    pub(super) fn socket(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    fn command(&self, mesh: &Mesh, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.ironmesh);
        command.args(arguments).arg("--config").arg(self.path("agent.toml"));
        mesh.give_clock(&mut command);
        command
    }

    pub(super) fn start_agent(&mut self, mesh: &Mesh) {
        let mut command = self.command(mesh, &["agent", "run"]);
        self.agent = Some(Child::start("the agent", &mut command, &self.path("agent.log")));
    }

    pub(super) fn start_supervisor(&mut self, mesh: &Mesh) {
        let mut command = self.command(mesh, &["envoy", "run"]);
        let log = self.path("supervisor.log");
        self.supervisor = Some(Child::start("the supervisor", &mut command, &log));
    }

    /// Runs `ironmesh` with the settings of this machine to its end.
    pub(super) async fn run(&self, mesh: &Mesh, arguments: &[&str]) -> Output {
        let mut command = self.command(mesh, arguments);
        timeout(patience(), command.kill_on_drop(true).output()).await.unwrap().unwrap()
    }

    /// The reason why `ironmesh envoy run` ends at once.
    pub(super) async fn rejection(&self, mesh: &Mesh) -> String {
        let output = self.run(mesh, &["envoy", "run"]).await;
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{reason}");
        reason
    }

    /// Reloads Envoy, and returns the last step.
    pub(super) async fn reload(&self, mesh: &Mesh) -> ReloadProgress {
        let output = self.run(mesh, &["envoy", "reload", "--output", "json"]).await;
        let steps = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = steps.lines().last().unwrap_or_else(|| panic!("no step: {output:?}"));
        serde_json::from_str(last).unwrap()
    }

    /// The reason why a reload fails.
    pub(super) async fn failed_reload(&self, mesh: &Mesh) -> String {
        match self.reload(mesh).await {
            ReloadProgress::Failed { reason } => reason,
            other => panic!("the reload has not failed: {other}"),
        }
    }

    /// The status that `ironmesh agent status` prints.
    pub(super) async fn agent_status(&self, mesh: &Mesh) -> Value {
        let output = self.run(mesh, &["agent", "status", "--output", "json"]).await;
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// The name of the proxy.
    pub(super) fn name(&self) -> String {
        let workload = fs_err::read_to_string(self.folder().join("workload.json")).unwrap();
        let workload: Value = serde_json::from_str(&workload).unwrap();
        workload.get("name").unwrap().as_str().unwrap().to_owned()
    }

    pub(super) async fn status(&self) -> anyhow::Result<SupervisorStatus> {
        Ok(SupervisorClient::new(&self.folder()).status().await?)
    }

    pub(super) async fn wait_until_live(&mut self) -> SupervisorStatus {
        let client = SupervisorClient::new(&self.folder());
        let supervisor = self.supervisor.as_mut().unwrap();
        eventually("Envoy to be live", async || {
            supervisor.assert_running();
            let status = client.status().await?;
            anyhow::ensure!(status.state == EnvoyState::Live, "{status:?}");
            anyhow::Ok(status)
        })
        .await
    }

    /// Sends Envoy a signal.
    pub(super) async fn signal_envoy(&self, signal: Signal) {
        let pid = self.status().await.unwrap().envoy.unwrap().pid;
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn supervisor_log(&self) -> String {
        fs_err::read_to_string(self.path("supervisor.log")).unwrap()
    }

    /// The body of `GET path` on Envoy's admin socket.
    pub(super) async fn admin_get(&self, path: &str) -> anyhow::Result<String> {
        let address = LocalAddress::Socket(admin_socket(&self.folder()));
        let body = exchange(&address, Method::GET, path).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The counters and gauges of Envoy whose names match this regular expression, which needs no encoding in a URL.
    pub(super) async fn stats(&self, filter: &str) -> BTreeMap<String, u64> {
        let text = self.admin_get(&format!("/stats?filter={filter}")).await.unwrap();
        let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
        lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    /// Whether Envoy has a stream to the control plane.
    pub(super) async fn wait_for_connection(&self, is_connected: bool) {
        eventually("the state of the stream to the control plane", async || {
            let stats = self.stats("^control_plane.connected_state$").await;
            let is_now = stats.values().any(|value| *value > 0);
            if is_now == is_connected { Ok(()) } else { Err(format!("{stats:?}")) }
        })
        .await;
    }

    /// Fails the test if Envoy has retried a request.
    pub(super) async fn assert_no_retries(&self) {
        let retries: u64 = self.stats("upstream_rq_retry$").await.values().sum();
        eprintln!("upstream_rq_retry of {}: {retries}", self.path.display());
        assert_eq!(retries, 0);
    }

    /// The serial number of the proxy's certificate in Envoy.
    pub(super) async fn serial(&self) -> String {
        let certs: Value = serde_json::from_str(&self.admin_get("/certs").await.unwrap()).unwrap();
        let mut serials = String::new();
        for one in certs["certificates"].as_array().unwrap() {
            let leaf = &one["cert_chain"][0];
            let uri = leaf["subject_alt_names"][0]["uri"].as_str().unwrap_or_default();
            if uri.contains("/proxy/") {
                write!(serials, "{}", leaf["serial_number"].as_str().unwrap()).unwrap();
            }
        }
        assert!(!serials.is_empty(), "{certs:#}");
        serials
    }

    /// Opens a TCP connection to the ledger.
    pub(super) async fn connect(&self) -> anyhow::Result<HeldConnection> {
        let mut connection = TcpConnection::connect(self.socket(15015)).await?;
        let server = connection.line().await?;
        connection.exchange("first").await?;
        Ok(HeldConnection { connection, server })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Envoys end with their supervisor; a stopped one does not notice.
        let ours = self.folder().join("envoy.yaml").display().to_string();
        if let Some(supervisor) = &self.supervisor {
            supervisor.signal(Signal::KILL);
        }
        for process in fs_err::read_dir("/proc").unwrap().flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
            let arguments = fs_err::read(process.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&arguments).contains(&ours) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// An established TCP connection.
pub(super) struct HeldConnection {
    connection: TcpConnection,
    /// The name that the application sent.
    pub(super) server: String,
}

impl HeldConnection {
    /// Uses the connection until it is closed, and returns when that was.
    pub(super) fn watch(mut self) -> tokio::task::JoinHandle<Timestamp> {
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
            while self.connection.exchange("line").await.is_ok() {
                ticks.tick().await;
            }
            Timestamp::now()
        })
    }
}

/// Makes the renewal of the certificate in a folder due.
pub(super) fn make_renewal_due(folder: &Path) {
    let path = folder.join("enrollment.json");
    let mut state: Value = serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
    state["issued_at"] = "2020-01-01T00:00:00Z".into();
    fs_err::write(&path, state.to_string()).unwrap();
}
