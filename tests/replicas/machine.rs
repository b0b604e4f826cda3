//! A machine with an agent and a supervisor, whose agent reports to one control plane.

use std::path::PathBuf;

use ironmesh_agent_envoy::{EnvoyState, SupervisorClient};
use ironmesh_sidecar::envoy::admin_socket;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Mesh, Programs, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::replicas::json;

/// A machine. Dropping it ends its processes.
pub(crate) struct Machine {
    program: PathBuf,
    path: PathBuf,
    _agent: Child,
    supervisor: Option<Child>,
}

impl Machine {
    /// Enrolls a machine with a control plane, to which its agent reports, and waits until its Envoy is live.
    pub(crate) async fn start(mesh: &Mesh, service: &str, host: u8) -> Self {
        let programs = Programs::find().unwrap();
        let created = json(mesh, &["proxy", "token", "--service", service]).await;
        let part = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap();
        let path = mesh.folder().join(format!("m{host}"));
        fs_err::create_dir(&path).unwrap();
        fs_err::write(path.join("token"), part("/tokens/0/token")).unwrap();
        let (address, hash) = (mesh.loopback().host(host), part("/ca_hashes/0"));
        let control_plane = mesh.loopback().socket(1, 15129);
        let settings = format!(
            "control_plane = [\"https://{control_plane}\"]\nca_hash = [\"{hash}\"]\ntoken_file = \"token\"\n\
             folder = \"proxy\"\naddress = \"{address}\"\napp_address = \"{address}\"\n\
             [envoy]\nbinary = '{}'\nconcurrency = 1\ndrain_time = \"1s\"\nparent_shutdown_time = \"3s\"\n\
             drain_minimum = \"1s\"\ndrain_maximum = \"5s\"\n",
            programs.envoy.display()
        );
        fs_err::write(path.join("agent.toml"), settings).unwrap();
        let mut command = command(&programs.ironmesh, &path, &["agent", "run"]);
        let agent = Child::start("the agent", &mut command, &path.join("agent.log"));
        let program = programs.ironmesh;
        let mut machine = Self { program, path, _agent: agent, supervisor: None };
        machine.start_supervisor().await;
        machine
    }

    /// Starts Envoy, and waits until it is live.
    pub(crate) async fn start_supervisor(&mut self) {
        let mut command = command(&self.program, &self.path, &["envoy", "run"]);
        let log = self.path.join("supervisor.log");
        let supervisor = self.supervisor.insert(Child::start("the supervisor", &mut command, &log));
        let client = SupervisorClient::new(&self.path.join("proxy"));
        eventually("Envoy to be live", async || {
            supervisor.assert_running();
            let status = client.status().await?;
            anyhow::ensure!(status.state == EnvoyState::Live, "{status:?}");
            Ok(())
        })
        .await;
    }

    /// Drains and stops Envoy; returns the log of the supervisor.
    pub(crate) async fn drain(&mut self) -> String {
        let mut supervisor = self.supervisor.take().unwrap();
        assert!(supervisor.terminate().await.success());
        fs_err::read_to_string(self.path.join("supervisor.log")).unwrap()
    }
}

fn command(program: &PathBuf, path: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg("--config").arg(path.join("agent.toml"));
    command
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Envoys end with their supervisor; a stopped one does not notice.
        let socket = admin_socket(&self.path.join("proxy"));
        let own = socket.parent().unwrap().join("envoy.yaml").display().to_string();
        if let Some(supervisor) = &self.supervisor {
            supervisor.signal(Signal::KILL);
        }
        for process in fs_err::read_dir("/proc").unwrap().flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
            let arguments = fs_err::read(process.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&arguments).contains(&own) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
