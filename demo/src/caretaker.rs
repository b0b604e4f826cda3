//! The caretaker: a process of its own that makes the working folder, and clears up when the demo is
//! gone: it ends the programs that are still there, and removes the folder.
//!
//! The demo cannot do that itself when it is killed. The caretaker holds the end of a pipe, and the
//! end of file on it comes for whatever reason the demo ended. Nobody else makes or removes the
//! folder, so there is no moment in which it could be left behind.
//!
//! The programs die with the demo by themselves, see [`tether`](crate::tether), but not all: the
//! kernel forgets that they should when an ordinary user runs a program with capabilities of its
//! own, as an Envoy has that may listen below port 1024. So the demo tells the caretaker of each.

use std::fs::Permissions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The line that the demo writes to have the folder kept.
pub(crate) const KEEP: &str = "keep";
/// How the line begins that tells of a program. The id of its process follows.
pub(crate) const CHILD: &str = "child ";
/// How the caretaker begins its one line when the folder is there. Its path follows.
pub(crate) const MADE: &str = "made ";
/// How it begins when the folder cannot be made. The reason follows.
pub(crate) const FAILED: &str = "failed ";

/// Makes a folder in `parent`, says where on stdout, and waits for the end of file on stdin. Then it
/// ends the programs that it was told of, and removes the folder, unless it was told to keep it.
pub fn run(parent: &Path) -> io::Result<()> {
    let made = tempfile::Builder::new()
        .prefix("ironmesh-demo-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    let folder = match made {
        Ok(folder) => folder,
        Err(error) => return say(&format!("{FAILED}{error}")),
    };
    // Envoy's bootstrap is text and will have this path in it.
    let Some(path) = folder.path().to_str() else {
        return say(&format!("{FAILED}`{}` is not in UTF-8", folder.path().display()));
    };
    // If nobody hears it any more, the end of file is there as well.
    drop(say(&format!("{MADE}{path}")));
    let mut told = Vec::new();
    // An error means that no more can be heard, as the end of file does.
    drop(io::stdin().read_to_end(&mut told));
    let told = String::from_utf8_lossy(&told);
    let path = folder.path().to_owned();
    for id in told.lines().filter_map(|line| line.strip_prefix(CHILD)?.parse().ok()) {
        end(id, &path);
    }
    let path = folder.keep();
    if told.lines().any(|line| line == KEEP) {
        return Ok(());
    }
    remove(&path)
}

/// Kills the process of this id, if it is one of the demo in `folder` still. Its id may be another's
/// by now, who does not name the folder; and as it is held before it is looked at, none can take its
/// place in between.
fn end(id: i32, folder: &Path) {
    let Some(id) = Pid::from_raw(id) else { return };
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if names(id, folder) {
        // It may have ended a moment ago.
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

/// Whether a process names the folder in its command line, or in the environment it began with.
fn names(id: Pid, folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let place = PathBuf::from(format!("/proc/{}", id.as_raw_pid()));
    // The environment of a program with capabilities cannot be read, its command line can.
    ["cmdline", "environ"].iter().any(|name| {
        let text = fs_err::read(place.join(name)).unwrap_or_default();
        text.windows(folder.len()).any(|part| part == folder)
    })
}

/// Removes the folder. What the demo started may be dying at this moment, and still write.
fn remove(path: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = fs_err::remove_dir_all(path);
        match fs_err::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => sleep(PAUSE),
        }
    }
    result
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

const TRIES: u32 = 50;
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
        // What is elsewhere stays, also when a link leads there.
        let other = place.path().join("other");
        fs_err::write(&other, "").unwrap();
        fs_err::os::unix::fs::symlink(&other, folder.join("link")).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && other.exists());
        // Nothing remains to be done, and that is no error.
        remove(&folder).unwrap();
    }
}
