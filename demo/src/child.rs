//! A child process of the demo, which ends with the demo.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::error::DemoError;
use crate::options::DemoOptions;

/// The starter of tethered child processes.
#[derive(Debug, Clone)]
pub(crate) struct Tether {
    ironmesh: PathBuf,
    subcommand: &'static str,
}

impl Tether {
    pub(crate) fn new(options: &DemoOptions) -> Self {
        Self { ironmesh: options.ironmesh.clone(), subcommand: options.tether }
    }

    /// The executable `ironmesh`.
    pub(crate) fn ironmesh(&self) -> &Path {
        &self.ironmesh
    }

    /// The command that becomes `program`, tethered to this process. Its own process group protects it from Ctrl-C in
    /// the terminal: the demo handles that signal, and ends its children in order.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, program: &Path, arguments: &[A]) -> Command {
        let mut command = Command::new(&self.ironmesh);
        command.arg(self.subcommand).arg("--parent").arg(std::process::id().to_string());
        command.arg("--").arg(program).args(arguments);
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        command
    }
}

/// A running program. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    id: Option<u32>,
    log: PathBuf,
    process: Mutex<tokio::process::Child>,
}

impl Child {
    /// Starts `program`, with its output appended to the file `log`. Call this only on the main thread, see
    /// [`tether`](crate::tether).
    pub(crate) fn start(
        tether: &Tether,
        name: &str,
        program: &Path,
        arguments: &[OsString],
        log: &Path,
    ) -> Result<Self, DemoError> {
        let file = fs_err::OpenOptions::new().create(true).append(true).open(log);
        let (output, _) = file.map_err(DemoError::File)?.into_parts();
        let error = output.try_clone().map_err(DemoError::File)?;
        let process = tether.command(program, arguments).stdout(output).stderr(error).spawn();
        let process =
            process.map_err(|source| DemoError::Start { name: name.to_owned(), source })?;
        Ok(Self {
            name: name.to_owned(),
            id: process.id(),
            log: log.to_owned(),
            process: Mutex::new(process),
        })
    }

    /// Its process id; `None` if it ended before the id was read.
    pub(crate) fn id(&self) -> Option<u32> {
        self.id
    }

    /// Fails if it has ended.
    pub(crate) fn assert_running(&self) -> Result<(), DemoError> {
        match self.status() {
            None => Ok(()),
            Some(status) => Err(DemoError::Ended {
                name: self.name.clone(),
                status: status.to_string(),
                tail: self.log_tail(),
            }),
        }
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until all of these have ended after [`Self::terminate`]. Kills those that take too long.
    pub(crate) async fn all_ended(children: &[&Self]) {
        let begin = Instant::now();
        let is_left = || children.iter().any(|child| child.status().is_none());
        // Not even SIGKILL ends a process that hangs in the kernel; the wait then ends without it.
        while is_left() && begin.elapsed() < 2 * GRACE {
            if begin.elapsed() > GRACE {
                for child in children {
                    child.signal(Signal::KILL);
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends SIGKILL to all of these, and waits until they have ended.
    pub(crate) async fn kill(children: &[&Self]) {
        for child in children {
            child.signal(Signal::KILL);
        }
        Self::all_ended(children).await;
    }

    /// Its exit status, if it has ended.
    fn status(&self) -> Option<ExitStatus> {
        self.process.lock().try_wait().ok().flatten()
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.lock();
        // The id exists only until the process is waited for, so no other process can have it.
        let id = process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(id) = id {
            // It may have ended a moment ago.
            let _ = kill_process(id, signal);
        }
    }

    /// The last lines of its output.
    fn log_tail(&self) -> String {
        let text = fs_err::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

const GRACE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
const TAIL_LINES: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// A script instead of `ironmesh` that becomes the program.
    fn tether(place: &Path) -> Tether {
        let script = place.join("tether");
        fs_err::write(&script, r#"shift 3; exec "$@""#).unwrap();
        Tether { ironmesh: "/bin/sh".into(), subcommand: String::leak(text(&script)) }
    }

    fn text(path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    fn shell(place: &Path, script: &str) -> Child {
        let (arguments, log) = (["-c".into(), script.into()], place.join("log"));
        Child::start(&tether(place), "the shell", Path::new("/bin/sh"), &arguments, &log).unwrap()
    }

    async fn until(is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            sleep(PAUSE).await;
        }
    }

    #[tokio::test]
    async fn exited_child_is_reported_with_the_end_of_its_log() {
        let place = tempfile::tempdir().unwrap();
        let child = shell(place.path(), "seq 20; echo why >&2; exit 7");
        until(|| child.assert_running().is_err()).await;
        let error = child.assert_running().unwrap_err().to_string();
        let begin = "the shell has ended by itself: exit status: 7; the end of its log:\n7\n8\n";
        assert!(error.starts_with(begin) && error.ends_with("\n20\nwhy"), "{error}");
    }

    fn is_there(child: &Child) -> bool {
        Path::new(&format!("/proc/{}", child.id.unwrap())).exists()
    }

    #[tokio::test]
    async fn child_runs_until_it_is_terminated() {
        let place = tempfile::tempdir().unwrap();
        let child = shell(place.path(), "exec sleep 600");
        assert!(is_there(&child));
        child.assert_running().unwrap();
        child.terminate();
        Child::all_ended(&[&child]).await;
        assert!(!is_there(&child));
        // A second call changes nothing.
        child.terminate();
        Child::kill(&[&child]).await;
    }

    #[tokio::test]
    async fn dropped_child_is_killed() {
        let place = tempfile::tempdir().unwrap();
        let child = shell(place.path(), "trap '' TERM; echo ready; exec sleep 600");
        until(|| child.log_tail() == "ready").await;
        let id = child.id.unwrap();
        drop(child);
        // The process may still be a zombie.
        let state = || fs_err::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        until(|| state().is_empty() || state().contains(") Z ")).await;
    }

    #[tokio::test]
    async fn unresponsive_children_are_killed_together_after_the_grace() {
        let place = tempfile::tempdir().unwrap();
        let stubborn = || shell(place.path(), "trap '' TERM; echo ready; exec sleep 600");
        let children = [stubborn(), stubborn()];
        until(|| children[0].log_tail() == "ready\nready").await;
        let begin = Instant::now();
        children.iter().for_each(Child::terminate);
        Child::all_ended(&children.each_ref()).await;
        assert!(!children.iter().any(is_there));
        // In sequence, the second child would have had its grace after the first.
        assert!((GRACE..2 * GRACE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
}
