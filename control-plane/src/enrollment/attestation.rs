//! The trust in Azure's attested documents, read from files at each change of them.
//!
//! It never fetches a certificate: a control plane may have no way to the internet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ironmesh_catalog::TrustBundle;
use ironmesh_cert::{AttestedDocumentVerifier, AttestedTrustError, azure_roots};
use ironmesh_config_settings::AzureSettings;
use parking_lot::Mutex;

/// Where systems keep the roots that they trust: Debian and Ubuntu, RHEL and Fedora, SUSE.
const SYSTEM_ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// The most files of a folder, and bytes of a file, that are read: far more than Azure has authorities.
const MAX_FILES: usize = 100;
const MAX_FILE: u64 = 1 << 20;

/// The trust in attested documents.
#[derive(Debug)]
pub(crate) struct AttestationTrust {
    roots: Option<PathBuf>,
    intermediates: Option<PathBuf>,
    domain: Option<String>,
    /// The verifier of the files as they were read last.
    verifier: Mutex<Option<(Vec<FileState>, Arc<AttestedDocumentVerifier>)>>,
}

/// The state of a file: while it is the same, the content is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    path: PathBuf,
    length: u64,
    changed_at: Option<SystemTime>,
}

/// Why no attested document can be verified.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestationTrustError {
    /// No domain is set.
    #[error(
        "the settings name no domain of the signers of attested documents: set `signer_domain` of `[azure.attestation]`"
    )]
    NoDomain,
    /// The system trusts no root of Azure.
    #[error(
        "this system trusts no root of Azure's signers: install its CA certificates, or set `roots` of `[azure.attestation]`"
    )]
    NoSystemRoots,
    /// A file cannot be read.
    #[error("`{key}` of `[azure.attestation]` cannot be read")]
    File {
        /// The setting.
        key: &'static str,
        /// The error of the system, which names the file.
        #[source]
        source: io::Error,
    },
    /// The certificates are not usable.
    #[error("the certificates of `[azure.attestation]` cannot be used")]
    Certificates(#[from] AttestedTrustError),
}

impl AttestationTrust {
    pub(crate) fn new(settings: &AzureSettings) -> Self {
        Self {
            roots: settings.attestation.roots.clone(),
            intermediates: settings.attestation.intermediates.clone(),
            domain: settings.signer_domain().map(str::to_owned),
            verifier: Mutex::default(),
        }
    }

    /// The verifier with the certificates that the files have now.
    pub(crate) fn verifier(&self) -> Result<Arc<AttestedDocumentVerifier>, AttestationTrustError> {
        let domain = self.domain.as_deref().ok_or(AttestationTrustError::NoDomain)?;
        let failed = |key| move |source| AttestationTrustError::File { key, source };
        let roots = match &self.roots {
            Some(path) => files(path).map_err(failed("roots"))?,
            None => system_roots()?,
        };
        let intermediates = self.intermediates.as_deref().map(files).transpose();
        let intermediates = intermediates.map_err(failed("intermediates"))?.unwrap_or_default();
        let states: Vec<_> = roots.iter().chain(&intermediates).cloned().collect();
        let mut known = self.verifier.lock();
        if let Some((_, verifier)) = known.as_ref().filter(|(before, _)| *before == states) {
            return Ok(Arc::clone(verifier));
        }
        let text = read(&roots).map_err(failed("roots"))?;
        let bundle = match &self.roots {
            Some(_) => TrustBundle { roots: text },
            None => azure_roots(&text),
        };
        if self.roots.is_none() && bundle.roots.is_empty() {
            return Err(AttestationTrustError::NoSystemRoots);
        }
        let intermediates = read(&intermediates).map_err(failed("intermediates"))?;
        let verifier = Arc::new(AttestedDocumentVerifier::new(&bundle, &intermediates, domain)?);
        *known = Some((states, Arc::clone(&verifier)));
        Ok(verifier)
    }
}

/// The file with the roots that the system trusts.
fn system_roots() -> Result<Vec<FileState>, AttestationTrustError> {
    let mut found = SYSTEM_ROOTS.iter().filter_map(|path| files(Path::new(path)).ok());
    found.next().ok_or(AttestationTrustError::NoSystemRoots)
}

/// The files of a folder in the order of their names, or the file itself.
fn files(path: &Path) -> io::Result<Vec<FileState>> {
    let metadata = fs_err::metadata(path)?;
    let state = |path: &Path, metadata: &std::fs::Metadata| FileState {
        path: path.to_owned(),
        length: metadata.len(),
        changed_at: metadata.modified().ok(),
    };
    if !metadata.is_dir() {
        return Ok(vec![state(path, &metadata)]);
    }
    let mut all = Vec::new();
    for entry in fs_err::read_dir(path)? {
        let path = entry?.path();
        let is_certificate = path
            .extension()
            .is_some_and(|extension| ["pem", "crt", "cer"].iter().any(|known| extension == *known));
        let metadata = fs_err::metadata(&path)?;
        if metadata.is_file() && is_certificate {
            all.push(state(&path, &metadata));
        }
        if all.len() > MAX_FILES {
            let problem = format!("{} has more than {MAX_FILES} certificates", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

fn read(files: &[FileState]) -> io::Result<String> {
    let mut text = String::new();
    for file in files {
        if file.length > MAX_FILE {
            let problem = format!("{} is larger than {MAX_FILE} bytes", file.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        text.push_str(&fs_err::read_to_string(&file.path)?);
        text.push('\n');
    }
    Ok(text)
}
