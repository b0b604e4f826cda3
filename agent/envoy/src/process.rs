//! One process of Envoy, a child of the supervisor.
//!
//! Envoy asks the system for SIGTERM when the thread that started it ends (`PR_SET_PDEATHSIG`), so it never outlives a
//! supervisor that is killed. All Envoys must therefore be started by the main thread.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::plan::EnvoyPlan;

/// How long Envoy may take to end after SIGTERM.
const TERMINATION_LIMIT: Duration = Duration::from_secs(5);

/// The variables with which systemd addresses the supervisor. Envoy must not answer in its place.
const OWN_VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// A running Envoy. Dropping this value kills it.
#[derive(Debug)]
pub(crate) struct EnvoyProcess {
    pid: u32,
    child: Child,
}

impl EnvoyProcess {
    /// Starts Envoy. Its output goes where that of this process goes.
    pub(crate) fn spawn(
        program: &Path,
        plan: &EnvoyPlan,
        base_id: u32,
        epoch: u32,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(plan.arguments_of_epoch(base_id, epoch));
        command.envs(plan.environment.iter().map(|(name, value)| (name, value)));
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        // In a group of its own: Ctrl-C in a terminal reaches the supervisor only, which drains first.
        command.process_group(0).stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn()?;
        Ok(Self { pid: child.id().unwrap_or_default(), child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the end, and describes it. May be dropped and called again.
    pub(crate) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => format!("unknown exit: {error}"),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // A child keeps its id until it is waited for; afterwards it needs no signal.
        if let Some(pid) =
            self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::warn!(pid = self.pid, ?signal, reason = %error, "cannot signal Envoy");
        }
    }

    /// Ends Envoy by SIGTERM, or by SIGKILL if it does not end in time.
    pub(crate) async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        if timeout(TERMINATION_LIMIT, self.ended()).await.is_err() {
            tracing::warn!(pid = self.pid, "Envoy does not end after SIGTERM; killing it");
            self.kill().await;
        }
    }

    /// Ends Envoy by SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended().await;
    }
}
