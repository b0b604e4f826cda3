//! A machine with a supervisor of Envoy and a static bootstrap, without a control plane.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use http::Method;
use ironmesh_agent_envoy::{EnvoyState, SupervisorClient, SupervisorStatus};
use ironmesh_tests::eventually::patience;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, Loopback, Programs, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::timeout;

/// An inbound listener for HTTP, and one for TCP that leads to port 8081.
const BOOTSTRAP: &str = r#"
node: { id: test, cluster: test }
admin: { address: { pipe: { path: "FOLDER/admin.sock", mode: 384 } } }
static_resources:
  listeners:
  - name: web
    traffic_direction: INBOUND
    address: { socket_address: { address: ADDRESS, port_value: 15003 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{ match: { prefix: / }, direct_response: { status: 200, body: { inline_string: VERSION } } }]
  - name: tcp
    traffic_direction: INBOUND
    address: { socket_address: { address: ADDRESS, port_value: TCP_PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tcp
          cluster: ledger
  clusters:
  - name: ledger
    load_assignment:
      cluster_name: ledger
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: ADDRESS, port_value: 8081 } } } }] }]
"#;

/// The machine. Dropping it kills its processes.
pub(super) struct Machine {
    programs: Programs,
    pub(super) loopback: Loopback,
    // Before the folder: after a failed test, its end prints the log there.
    pub(super) supervisor: Child,
    folder: tempfile::TempDir,
}

impl Machine {
    /// Starts the supervisor with these lines in `[envoy]`, and waits until Envoy is live.
    pub(super) async fn start(programs: &Programs, settings: &str) -> Self {
        let (folder, loopback) = (tempfile::tempdir().unwrap(), Loopback::claim());
        write_settings(folder.path(), &programs.envoy, settings);
        write_bootstrap(folder.path(), &loopback, "one", 15004);
        let supervisor = supervisor(programs, folder.path());
        let mut machine = Self { programs: programs.clone(), loopback, supervisor, folder };
        machine.wait_until_live().await;
        machine
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn start_supervisor(&mut self) {
        self.supervisor = supervisor(&self.programs, self.path());
    }

    /// Writes a bootstrap whose HTTP listener answers with `version`.
    pub(super) fn write_bootstrap(&self, version: &str, tcp_port: u16) {
        write_bootstrap(self.path(), &self.loopback, version, tcp_port);
    }

    pub(super) fn socket(&self, port: u16) -> SocketAddr {
        self.loopback.socket(11, port)
    }

    pub(super) async fn status(&self) -> anyhow::Result<SupervisorStatus> {
        Ok(SupervisorClient::new(self.path()).status().await?)
    }

    pub(super) async fn wait_until_live(&mut self) -> SupervisorStatus {
        let client = SupervisorClient::new(self.folder.path());
        let supervisor = &mut self.supervisor;
        eventually("Envoy to be live", async || {
            supervisor.assert_running();
            let status = client.status().await?;
            anyhow::ensure!(status.state == EnvoyState::Live, "{status:?}");
            anyhow::Ok(status)
        })
        .await
    }

    /// The process id of the Envoy that serves.
    pub(super) async fn envoy(&self) -> u32 {
        self.status().await.unwrap().envoy.unwrap().pid
    }

    /// The body that a new connection gets.
    pub(super) async fn get(&self) -> anyhow::Result<String> {
        let mut connection = Http1Connection::connect(self.socket(15003)).await?;
        Ok(connection.request(Method::GET, "/", &[("host", "test")]).await?.text())
    }

    /// Runs `ironmesh envoy …` with the settings of this machine.
    pub(super) async fn command(&self, name: &str) -> Output {
        command(&self.programs, self.path(), name).await
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.supervisor.signal(Signal::KILL);
        for process in fs_err::read_dir("/proc").unwrap().flatten() {
            let arguments = fs_err::read(process.path().join("cmdline")).unwrap_or_default();
            let ours = self.path().join("envoy.yaml");
            let is_ours = String::from_utf8_lossy(&arguments).contains(ours.to_str().unwrap());
            if let (true, Some(Ok(pid))) = (is_ours, process.file_name().to_str().map(str::parse)) {
                kill(pid, Signal::KILL);
            }
        }
    }
}

fn write_bootstrap(folder: &Path, loopback: &Loopback, version: &str, tcp_port: u16) {
    let bootstrap = BOOTSTRAP
        .replace("FOLDER", folder.to_str().unwrap())
        .replace("ADDRESS", &loopback.host(11).to_string())
        .replace("VERSION", version)
        .replace("TCP_PORT", &tcp_port.to_string());
    fs_err::write(folder.join("envoy.yaml"), bootstrap).unwrap();
}

/// Writes `agent.toml`.
pub(super) fn write_settings(folder: &Path, envoy: &Path, settings: &str) {
    let mut text = String::new();
    writeln!(text, "folder = '{}'\n[envoy]\nbinary = '{}'", folder.display(), envoy.display())
        .unwrap();
    writeln!(text, "concurrency = 1\n{settings}").unwrap();
    fs_err::write(folder.join("agent.toml"), text).unwrap();
}

/// Runs `ironmesh envoy NAME` to its end.
pub(super) async fn command(programs: &Programs, folder: &Path, name: &str) -> Output {
    let mut command = Command::new(&programs.ironmesh);
    command.args(["envoy", name, "--config"]).arg(folder.join("agent.toml")).kill_on_drop(true);
    timeout(patience(), command.output()).await.unwrap().unwrap()
}

fn supervisor(programs: &Programs, folder: &Path) -> Child {
    let mut command = Command::new(&programs.ironmesh);
    command.args(["envoy", "run", "--config"]).arg(folder.join("agent.toml"));
    Child::start("the supervisor", &mut command, &log(folder))
}

fn log(folder: &Path) -> PathBuf {
    folder.join("supervisor.log")
}

/// Sends a signal to a process that a supervisor of this test started.
pub(super) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Whether a process exists and has not ended.
pub(super) fn is_running(pid: u32) -> bool {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
