//! The file that keeps service certificates and their keys over a restart (docs/decisions/0075).
//!
//! It holds only what can be replaced: an unreadable file is ignored, and a failed write costs no certificate.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{Secret, ServiceAccount};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::table::MAX_SECRETS;
use super::workload_identity::WorkloadIdentity;
use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;

/// The name of the file in the folder of the proxy: a new enrollment begins without it.
const NAME: &str = "service-certificates.json";

/// The most bytes that are read: more than [`MAX_SECRETS`] certificates have.
const MAX_LENGTH: u64 = 4 << 20;

/// The file of one proxy.
#[derive(Debug)]
pub(crate) struct CertificateFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Content {
    certificates: Vec<Kept>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    secret: String,
    account: ServiceAccount,
    chain: String,
    key: Secret,
    requested_at: Timestamp,
}

impl CertificateFile {
    /// The file in this folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { path: folder.join(NAME) }
    }

    /// The certificates that peers accept at `now`, at most [`MAX_SECRETS`].
    pub(crate) fn read(&self, proxy: &ProxyFiles, now: Timestamp) -> Vec<WorkloadIdentity> {
        let mut text = String::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(MAX_LENGTH).read_to_string(&mut text));
        // It has keys.
        let text = Secret::new(text);
        let content = match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(error) => Err(error.to_string()),
            Ok(_) => serde_json::from_str::<Content>(text.expose()).map_err(|error| {
                // The text of the error may quote the file.
                format!("line {}, column {} is malformed", error.line(), error.column())
            }),
        };
        let content = content.unwrap_or_else(|reason| {
            let (file, action) = (self.path.display(), "new certificates are requested");
            tracing::warn!(%file, reason, action, "kept service certificates cannot be read");
            Content { certificates: Vec::new() }
        });
        let kept = content.certificates.into_iter().take(MAX_SECRETS);
        kept.filter_map(|kept| {
            let Kept { secret, account, chain: pem, key, requested_at } = kept;
            let parsed = secret.parse().ok()?;
            let held =
                WorkloadIdentity::verify(parsed, account, pem, key, requested_at, proxy, now);
            let dropped = |error| {
                let (reason, action) = (chain(&error), "a new one is requested");
                tracing::warn!(secret, reason, action, "kept service certificate is not used");
            };
            held.map_err(dropped).ok()
        })
        .collect()
    }

    /// Replaces the file: on the disk as a whole, or not at all.
    pub(crate) fn write<'a>(
        &self,
        certificates: impl Iterator<Item = &'a WorkloadIdentity>,
    ) -> Result<(), AgentError> {
        let kept = certificates.map(|held| Kept {
            secret: held.secret.to_string(),
            account: held.account.clone(),
            chain: held.chain.clone(),
            key: held.key.clone(),
            requested_at: held.requested_at,
        });
        let failed = |source| {
            let (action, path) = ("write", self.path.clone());
            AgentError::File { action, path, source }
        };
        let text = serde_json::to_string(&Content { certificates: kept.collect() });
        let text = Secret::new(text.map_err(|error| failed(error.into()))?);
        let part = self.path.with_file_name(format!(".{NAME}.new"));
        let written = (|| {
            match std::fs::remove_file(&part) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // New, and so never the target of a link.
            let mut options = File::options();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&part)?;
            file.write_all(text.expose().as_bytes())?;
            file.sync_all()?;
            fs_err::rename(&part, &self.path)
        })();
        if written.is_err() {
            drop(std::fs::remove_file(&part));
        }
        written.map_err(failed)
    }
}
