//! The caretaker: a separate process that creates the working folder, and cleans up after the demo.
//!
//! When the demo is gone, the caretaker kills the remaining programs and removes the folder. A killed demo cannot do
//! that itself. The caretaker reads a pipe, and end of file means that the demo has ended, for whatever reason. Only the
//! caretaker creates and removes the folder, so the folder is never left behind.
//!
//! Most programs die with the demo by their [`tether`](crate::tether). The kernel drops that request when an ordinary
//! user runs a program with capabilities, such as an Envoy that may listen below port 1024. So the demo registers each
//! program with the caretaker.

use std::fs::Permissions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The line with which the demo keeps the folder.
pub(crate) const KEEP: &str = "keep";
/// The prefix of the line that registers a program. Its process id follows.
pub(crate) const CHILD: &str = "child ";
/// The prefix of the caretaker's answer if the folder exists. Its path follows.
pub(crate) const MADE: &str = "made ";
/// The prefix of the caretaker's answer if the folder cannot be created. The reason follows.
pub(crate) const FAILED: &str = "failed ";

/// Creates a folder in `parent`, prints its path on stdout, and waits for end of file on stdin. Then kills the
/// registered programs, and removes the folder unless it is to be kept.
pub fn run(parent: &Path) -> io::Result<()> {
    let created = tempfile::Builder::new()
        .prefix("ironmesh-demo-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    let folder = match created {
        Ok(folder) => folder,
        Err(error) => return print_line(&format!("{FAILED}{error}")),
    };
    // Envoy's bootstrap will contain this path as text.
    let Some(path) = folder.path().to_str() else {
        return print_line(&format!("{FAILED}`{}` is not UTF-8", folder.path().display()));
    };
    // If stdout is closed, stdin is at its end as well.
    drop(print_line(&format!("{MADE}{path}")));
    let mut received = Vec::new();
    // An error means that no more can be last_readiness, as the end of file does.
    drop(io::stdin().read_to_end(&mut received));
    let received = String::from_utf8_lossy(&received);
    let path = folder.path().to_owned();
    for id in received.lines().filter_map(|line| line.strip_prefix(CHILD)?.parse().ok()) {
        kill(id, &path);
    }
    let path = folder.keep();
    if received.lines().any(|line| line == KEEP) {
        return Ok(());
    }
    remove(&path)
}

/// Kills the process with this id if it still belongs to the demo in `folder`.
///
/// The id may by now belong to a different process, which does not name the folder. The pidfd is opened before the
/// check, so the id cannot be reused in between.
fn kill(id: i32, folder: &Path) {
    let Some(id) = Pid::from_raw(id) else { return };
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if names(id, folder) {
        // It may have ended a moment ago.
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

/// Whether a process names the folder in its command line or its initial environment.
fn names(id: Pid, folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let entry = PathBuf::from(format!("/proc/{}", id.as_raw_pid()));
    // The environment of a program with capabilities cannot be read, its command line can.
    ["cmdline", "environ"].iter().any(|name| {
        let text = fs_err::read(entry.join(name)).unwrap_or_default();
        text.windows(folder.len()).any(|part| part == folder)
    })
}

/// Removes the folder. Programs of the demo may still be dying, and write to it.
fn remove(path: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..ATTEMPTS {
        result = fs_err::remove_dir_all(path);
        match fs_err::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => sleep(PAUSE),
        }
    }
    result
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_removed_recursively_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("demo");
        fs_err::create_dir_all(folder.join("state/deep")).unwrap();
        fs_err::write(folder.join("state/deep/file"), "").unwrap();
        // A file outside stays, although a link leads there.
        let other = place.path().join("other");
        fs_err::write(&other, "").unwrap();
        fs_err::os::unix::fs::symlink(&other, folder.join("link")).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && other.exists());
        // A missing folder is no error.
        remove(&folder).unwrap();
    }
}
