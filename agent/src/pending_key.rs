//! The key of a join that has not ended: it is kept beside the new folder, so that a repeated command uses the same
//! one. The control plane gives the same key the same certificate for five minutes.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ironmesh_catalog::Secret;
use ironmesh_cert::{generate_proxy_key_and_csr, proxy_csr};

use crate::error::AgentError;

/// The key for one token or for a join without one, locked as long as this value lives.
#[derive(Debug)]
pub(crate) struct PendingKey {
    path: PathBuf,
    key: Secret,
    certificate_request: String,
    is_new: bool,
    _lock: File,
}

impl PendingKey {
    /// Opens the key for `proof`, which names the token, beside the folder `out`, or makes it. It is on the disk when
    /// this returns.
    pub(crate) fn open(out: &Path, proof: &str) -> Result<Self, AgentError> {
        let mut name = OsString::from(".");
        name.push(out.file_name().unwrap_or_default());
        name.push(format!(".{proof}.key"));
        let path = out.with_file_name(name);
        let failed = |action| {
            let path = path.clone();
            move |source| AgentError::File { action, path, source }
        };
        let mut options = File::options();
        options.read(true).write(true).create(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed("create"))?;
        check_is_private(&file, &path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => AgentError::Locked { path: path.clone() },
            TryLockError::Error(source) => failed("lock")(source),
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed("read"))?;
        let kept = Secret::new(text);
        // A run that ended while it wrote the key had not sent it.
        if let Ok(certificate_request) = proxy_csr(&kept) {
            return Ok(Self { path, key: kept, certificate_request, is_new: false, _lock: file });
        }
        let (key, certificate_request) = generate_proxy_key_and_csr()
            .map_err(|source| AgentError::Key { path: path.clone(), source })?;
        write(&mut file, &key, &path).map_err(failed("write"))?;
        Ok(Self { path, key, certificate_request, is_new: true, _lock: file })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The key.
    pub(crate) fn key(&self) -> &Secret {
        &self.key
    }

    /// The certificate signing request for it.
    pub(crate) fn certificate_request(&self) -> &str {
        &self.certificate_request
    }

    /// Whether this run made it, and no earlier one has sent it.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Removes the file: the key is in the proxy's folder, or the token is of no use.
    pub(crate) fn remove(self) -> Result<(), AgentError> {
        let Self { path, .. } = self;
        let removed = std::fs::remove_file(&path);
        removed.map_err(|source| AgentError::File { action: "remove", path, source })
    }
}

/// Writes the key in place of anything in the file, to the disk.
fn write(file: &mut File, key: &Secret, path: &Path) -> io::Result<()> {
    file.set_len(0)?;
    io::Seek::rewind(file)?;
    file.write_all(key.expose().as_bytes())?;
    file.sync_all()?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Fails if another user made the file or can read it, and so may know the key.
fn check_is_private(file: &File, path: &Path) -> Result<(), AgentError> {
    let metadata = file.metadata().map_err(|source| AgentError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let is_open_to_others = metadata.mode() & 0o077 > 0;
    if is_own && !is_open_to_others {
        return Ok(());
    }
    Err(AgentError::ExposedKey { path: path.to_owned() })
}
