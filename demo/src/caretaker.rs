//! The caretaker: a process of its own that makes the working folder, and removes it when the demo
//! is gone.
//!
//! The demo cannot do that itself when it is killed. The caretaker holds the end of a pipe, and the
//! end of file on it comes for whatever reason the demo ended. Nobody else makes or removes the
//! folder, so there is no moment in which it could be left behind.

use std::fs::Permissions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// What the demo writes to have the folder kept.
pub(crate) const KEEP: &[u8] = b"k";
/// How the caretaker begins its one line when the folder is there. Its path follows.
pub(crate) const MADE: &str = "made ";
/// How it begins when the folder cannot be made. The reason follows.
pub(crate) const FAILED: &str = "failed ";

/// Makes a folder in `parent`, says where on stdout, waits for the end of file on stdin, and removes
/// the folder, unless it was told to keep it.
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
    let path = folder.keep();
    if told == KEEP {
        return Ok(());
    }
    remove(&path)
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
    fn a_folder_is_removed_with_all_that_is_in_it() {
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
