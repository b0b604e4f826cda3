//! Processes that a test starts and that end with it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use fs_err::OpenOptions;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::timeout;

use crate::eventually::patience;

/// The command with which a test starts programs. By default that is the program itself.
#[derive(Debug, Clone, Default)]
pub struct Launcher(Option<PathBuf>);

impl Launcher {
    /// Starts programs in a network namespace, as root.
    pub fn in_namespace(path: &Path) -> Self {
        Self(Some(path.to_owned()))
    }

    /// The command that becomes `program`, with its process id.
    pub fn command(&self, program: &Path) -> Command {
        let Some(namespace) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", namespace.display()));
        // A test that is killed drops nothing. So they end with the thread that starts them.
        command.args(["setpriv", "--pdeathsig", "KILL"]).arg(program);
        command
    }
}

/// A running process. Dropping this value kills it; after a failed test, the end of its log is
/// printed.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: tokio::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command`; its output is appended to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Self {
        let output = OpenOptions::new().create(true).append(true).open(log).unwrap().into_parts().0;
        let process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start ({command:?}): {error}"));
        Self { name: name.to_owned(), process, log: log.to_owned() }
    }

    /// Fails the test if the process has ended by itself.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.process.try_wait().unwrap() {
            panic!("{} has ended: {status}", self.name);
        }
    }

    /// The process id; `None` once the process has ended and been waited for.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub async fn kill_hard(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Terminates the process with SIGTERM and waits for its end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait().await
    }

    /// Sends a signal to this process, not to its children.
    pub fn signal(&self, signal: Signal) {
        // Without an id the process has ended and been waited for.
        if let Some(id) = self.process.id() {
            let pid = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
        }
    }

    /// Waits until the process ends by itself.
    pub async fn wait(&mut self) -> ExitStatus {
        timeout(patience(), self.process.wait())
            .await
            .unwrap_or_else(|_| panic!("{} does not end", self.name))
            .unwrap()
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let text = fs_err::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the log of {}\n{}", self.name, self.log_tail());
        }
    }
}

const TAIL_LINES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn child_ends_on_signal_and_keeps_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do read -t 0.1 x; done";
        let mut child = Child::start("bash", Command::new("bash").args(["-c", script]), &log);
        crate::eventually("its first words", async || match child.log_tail() {
            tail if tail.contains("ready") => Ok(()),
            tail => Err(tail),
        })
        .await;
        child.assert_running();
        assert_eq!(child.terminate().await.code(), Some(3));
        assert_eq!(child.log_tail(), "ready\nbye");

        let mut child = Child::start("sleep", Command::new("sleep").arg("600"), &log);
        child.kill_hard().await;
        assert_eq!(child.wait().await.code(), None);
    }
}
