//! The lock of the agent: one agent for each proxy.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::AgentError;

/// The lock, held as long as this value lives. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct AgentLock {
    _file: File,
}

impl AgentLock {
    /// Takes the lock for the proxy in `folder`, which need not exist yet: the file is beside it.
    pub(crate) fn take(folder: &Path) -> Result<Self, AgentError> {
        let path = path(folder);
        let failed = |action| {
            let path = path.clone();
            move |source| AgentError::File { action, path, source }
        };
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent).map_err(failed("create the folder of"))?;
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Without its number, the message still says what to do.
                let _ = file.read_to_string(&mut pid);
                let folder = folder.to_owned();
                return Err(AgentError::SecondAgent { folder, pid: pid.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        // The lock holds without the text, for example on a full disk: the text is for a message.
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), reason = %error, "cannot write the process id");
        }
        Ok(Self { _file: file })
    }
}

fn path(folder: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(folder.file_name().unwrap_or_default());
    name.push(".agent");
    folder.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_agent_is_refused_and_names_the_first() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("missing/proxy");
        let first = AgentLock::take(&folder).unwrap();
        let refused = AgentLock::take(&folder).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        AgentLock::take(&folder).unwrap();
    }

    #[test]
    fn lock_holds_without_its_text_on_a_full_disk() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proxy");
        std::os::unix::fs::symlink("/dev/full", path(&folder)).unwrap();
        AgentLock::take(&folder).unwrap();
    }
}
