//! The command probe: a program that the settings of this machine name.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

/// All that a command gets of the environment. The agent's own has secrets of systemd.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The process group of a command. Dropping it kills all of its processes, also those that it has forked.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It fails if no process is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command until it ends. Dropping the future kills it. Its output is discarded.
pub(super) async fn run(words: &[String]) -> Result<(), String> {
    let [program, arguments @ ..] = words else { return Err("the command is empty".to_owned()) };
    let spawned = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| format!("cannot run `{program}`: {error}"))?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let _group = ProcessGroup(pid);
    let status = child.wait().await.map_err(|error| format!("`{program}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}")) }
}
