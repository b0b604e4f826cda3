//! The folder of an enrolled proxy: read, locked, and changed so that a running Envoy reloads it.
//!
//! Envoy watches the folder for files that are moved in. Each file is therefore written beside its final path first,
//! and all of them are renamed at the end: an Envoy never reads half a file, and a full disk changes nothing.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ironmesh_catalog::{Secret, TrustBundle};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_enrollment::{ControlPlaneAddress, MachineIdentity, ServerTrust};
use ironmesh_sidecar::envoy;
use ironmesh_sidecar_folder::{ENROLLMENT, EnrollmentState, write_replacement};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::error::AgentError;

/// The files of an enrolled proxy, as they are when they are read.
#[derive(Debug)]
pub(crate) struct ProxyFiles {
    path: PathBuf,
    /// The proxy of the present certificate.
    pub(crate) proxy: VerifiedProxy,
    pub(crate) identity: MachineIdentity,
    pub(crate) roots: TrustBundle,
}

/// The folder of an enrolled proxy, locked for a change as long as this value lives.
#[derive(Debug)]
pub(crate) struct MachineFolder {
    pub(crate) files: ProxyFiles,
    /// The open folder, which carries the lock: other users of the folder need no file of their own for it.
    lock: File,
}

impl ProxyFiles {
    /// Reads the files in the folder `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, AgentError> {
        let missing = [envoy::CERTIFICATE, envoy::KEY, envoy::ROOTS]
            .into_iter()
            .filter(|name| !path.join(name).exists())
            .collect::<Vec<_>>();
        if !missing.is_empty() {
            let (path, missing) = (path.to_owned(), missing.join(", "));
            return Err(AgentError::NoProxyFolder { path, missing });
        }
        let certificate = read(path, envoy::CERTIFICATE)?;
        let proxy = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| "it is no PEM certificate".to_owned())
            .and_then(|leaf| VerifiedProxy::read(&leaf).map_err(|error| error.to_string()));
        let proxy = proxy.map_err(|problem| AgentError::Content {
            path: path.join(envoy::CERTIFICATE),
            problem: format!("{problem}; restore it, or enroll the machine again"),
        })?;
        let key = Secret::new(read(path, envoy::KEY)?);
        let roots = TrustBundle { roots: read(path, envoy::ROOTS)? };
        let identity = MachineIdentity { certificate, key };
        Ok(Self { path: path.to_owned(), proxy, identity, roots })
    }

    /// The trust in the control plane of the proxy's mesh.
    pub(crate) fn trust(&self) -> ServerTrust {
        ServerTrust::Roots {
            bundle: self.roots.clone(),
            control_plane: self.proxy.identity.trust_domain.control_plane().0,
        }
    }

    /// Where the control plane serves the machines' API, and the stored state of the enrollment. Given addresses replace
    /// the stored ones.
    pub(crate) fn enrollment(
        &self,
        given: &[ControlPlaneAddress],
    ) -> Result<(Vec<ControlPlaneAddress>, EnrollmentState), AgentError> {
        let path = self.path.join(ENROLLMENT);
        let unusable = |problem: String| AgentError::Content {
            path: path.clone(),
            problem: format!(
                "{problem}; write where the control plane listens, as `{{\"addresses\": [\"https://HOST:15129\"]}}`"
            ),
        };
        let state = match fs_err::read_to_string(&path) {
            Ok(text) => EnrollmentState::parse(&text).map_err(|error| unusable(error.to_string())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(unusable("it is missing, as in folders of earlier versions".to_owned()))
            }
            Err(source) => return Err(AgentError::File { action: "read", path, source }),
        };
        if !given.is_empty() {
            let state = state.unwrap_or_else(|_| {
                let addresses: Vec<_> =
                    given.iter().map(|address| (address.host.clone(), address.port)).collect();
                EnrollmentState::new(&addresses, None)
            });
            return Ok((given.to_vec(), state));
        }
        let state = state?;
        let addresses = state.addresses.iter().map(|text| text.parse());
        let addresses: Result<Vec<ControlPlaneAddress>, _> = addresses.collect();
        match addresses {
            Err(error) => Err(unusable(error.to_string())),
            Ok(addresses) if addresses.is_empty() => Err(unusable("it has no address".to_owned())),
            Ok(addresses) => Ok((addresses, state)),
        }
    }
}

impl MachineFolder {
    /// Locks and reads the folder.
    pub(crate) fn open(path: &Path) -> Result<Self, AgentError> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| AgentError::File { action, path, source }
        };
        let lock = File::open(path).map_err(failed("open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => AgentError::Locked { path: path.to_owned() },
            TryLockError::Error(source) => failed("lock")(source),
        })?;
        Ok(Self { files: ProxyFiles::read(path)?, lock })
    }

    /// Replaces these files: all of them, or none if one cannot be written.
    pub(crate) fn replace(&self, files: &[(&str, &str)]) -> Result<(), AgentError> {
        let part = |name: &str| self.files.path.join(format!(".{name}.new"));
        let written = files.iter().try_for_each(|(name, content)| {
            let path = part(name);
            let written = write_replacement(&path, content, &self.files.path.join(name));
            written.map_err(|source| AgentError::File { action: "write", path, source })
        });
        let renamed = written.and_then(|()| {
            files.iter().try_for_each(|(name, _)| {
                let path = self.files.path.join(name);
                let renamed = fs_err::rename(part(name), &path);
                renamed.map_err(|source| AgentError::File { action: "replace", path, source })
            })
        });
        if renamed.is_err() {
            for (name, _) in files {
                drop(std::fs::remove_file(part(name)));
            }
        }
        renamed?;
        let synced = self.lock.sync_all();
        let path = self.files.path.clone();
        synced.map_err(|source| AgentError::File { action: "sync", path, source })
    }
}

fn read(folder: &Path, name: &str) -> Result<String, AgentError> {
    let path = folder.join(name);
    fs_err::read_to_string(&path).map_err(|source| AgentError::File {
        action: "read",
        path,
        source,
    })
}
