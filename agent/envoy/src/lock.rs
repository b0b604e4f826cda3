//! The lock of a folder: one supervisor at a time.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::SupervisorError;

/// The name of the locked file, which contains the process id of its owner.
const LOCK: &str = "supervisor.lock";

/// Locks the folder as long as the file is open. The system releases the lock of a killed process; Envoy does not
/// inherit it.
pub(crate) fn lock(folder: &Path) -> Result<File, SupervisorError> {
    let path = folder.join(LOCK);
    let failed = |action| {
        let path = path.clone();
        move |source| SupervisorError::File { action, path, source }
    };
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(failed("open"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let read = file.read_to_string(&mut pid);
            let pid = read.ok().and_then(|_| pid.trim().parse().ok());
            return Err(SupervisorError::Locked { folder: folder.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
    }
    // The lock holds without the text, for example on a full disk: the text is for a message.
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    if let Err(error) = written {
        tracing::warn!(file = %path.display(), reason = %error, "cannot write the process id");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_fails_and_names_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        let own = format!("process {} already supervises", std::process::id());
        assert!(error.contains(&own), "{error}");
        drop(first);
        lock(folder.path()).unwrap();
    }
}
