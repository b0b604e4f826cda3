//! The export of a mesh, and its import into a store of either kind (docs/decisions/0094-export-and-import.md).

mod report;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure};
use ironmesh_admin::{ApiError, Principal, WriteExport};
use ironmesh_catalog::text::chain;
use ironmesh_config_settings::{Settings, StoreLocation};
use ironmesh_config_sources::{STORE_SECTION, etcd_options};
use ironmesh_store::{
    EmbeddedImport, EmbeddedImportError, Export, ExportError, ExportFile, ExportKey, ImportSource,
    KeyEncryptionKey, Manifest, RecordSnapshot, Store, StoreSnapshot, TransferItem,
};
use ironmesh_store_etcd::{EtcdImport, EtcdStore, check_user};
use jiff::Timestamp;

use crate::journal::{self, Journal};
use crate::stores::{Stores, host_name, local_folder};
pub use report::{ExportedMesh, ImportedMesh};

/// Exports the stores of a control plane.
#[derive(Debug)]
pub(crate) struct Exporter {
    pub(crate) key: Arc<ExportKey>,
    pub(crate) mesh: String,
    pub(crate) local: Arc<Store>,
    /// The store of the mesh, if it is in etcd.
    pub(crate) etcd: Option<Arc<EtcdStore>>,
}

impl Exporter {
    /// The stores at this moment.
    fn begin(&self) -> Result<Export, ExportError> {
        let local = StoreSnapshot::new(Arc::clone(&self.local))?;
        let shared: Arc<dyn RecordSnapshot> = match &self.etcd {
            Some(etcd) => etcd.snapshot()?,
            None => Arc::<StoreSnapshot>::clone(&local),
        };
        let manifest = Manifest {
            mesh: self.mesh.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            exported_at: format!("{:.0}", Timestamp::now()),
        };
        Ok(Export { key: Arc::clone(&self.key), manifest, shared, local })
    }

    /// The writer of an export that an operator requests. The journal has it before a part of it is sent.
    pub(crate) fn export(
        &self,
        principal: &Principal,
        journal: &Journal,
    ) -> Result<WriteExport, ApiError> {
        let checked = self.check();
        let size = checked.as_ref().map(|(_, records, bytes)| (*records, *bytes));
        journal.record_and_wait(journal::export(principal, size));
        let (export, records, bytes) = checked?;
        tracing::warn!(
            by = %principal,
            records,
            bytes,
            "exporting the mesh with its private keys, sealed"
        );
        Ok(Box::new(move |output| {
            export.write(output).map(drop).map_err(|error| {
                tracing::error!(error = %chain(&error), "the export of the mesh has ended");
                io::Error::other(error)
            })
        }))
    }

    /// An export with its records and bytes. The client learns of a store that cannot be exported before it gets a file.
    fn check(&self) -> Result<(Export, u64, u64), ApiError> {
        let failed = |error: ExportError| ApiError::Internal(chain(&error));
        let export = self.begin().map_err(failed)?;
        let mut size = ByteCount(0);
        let records = export.write(&mut size).map_err(failed)?;
        Ok((export, records, size.0))
    }
}

/// Counts what is written.
struct ByteCount(u64);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The stores that settings name, without a running control plane.
#[derive(Debug, Clone, Copy)]
pub struct StorePlace<'s> {
    /// The settings. Paths in them are absolute.
    pub settings: &'s Settings,
    /// The state folder.
    pub state: &'s Path,
    /// The file of the key-encryption key.
    pub key_file: &'s Path,
}

impl StorePlace<'_> {
    /// What `export` into `file` reports.
    pub fn exported(&self, file: &Path, bytes: u64, offline: bool) -> ExportedMesh {
        let (mesh, key_file) = (self.settings.mesh.to_string(), self.key_file.to_owned());
        ExportedMesh { mesh, file: file.to_owned(), bytes, key_file, offline }
    }

    /// Exports the mesh of a stopped control plane into the new file `path`. Returns its size in bytes. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the stores cannot be opened, which they cannot while a control plane runs with them, or if the file cannot be
    /// written.
    pub fn export(&self, path: &Path) -> anyhow::Result<u64> {
        let mut file = ExportFile::create(path)?;
        self.require_stopped()?;
        let folder = local_folder(&self.settings.store, self.state);
        // Nothing is created here, perhaps by a different user than that of the control plane.
        ensure!(
            Store::database_exists(&folder),
            "no control plane has run with this state folder: there is no store in `{}`",
            folder.display()
        );
        let key = self.settings_key()?;
        let stores = Stores::open_at(self.settings, self.state, self.key_file, false)?;
        let (local, etcd) = (stores.local, stores.etcd);
        let mesh = self.settings.mesh.to_string();
        let exporter = Exporter { key: Arc::new(ExportKey::new(&key)?), mesh, local, etcd };
        exporter.begin()?.write(&mut file)?;
        Ok(file.finish()?)
    }

    /// Imports an export into the store of the settings, which does not exist yet. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the file is not an export of this mesh and key, if there is a store, or if the store cannot be written. There is
    /// then no new store, and the import can be repeated.
    pub fn import(&self, path: &Path) -> anyhow::Result<ImportedMesh> {
        self.require_stopped()?;
        let mut source = ImportSource::open(path, ExportKey::new(&self.settings_key()?)?)?;
        self.require_same_mesh(&source)?;
        let folder = local_folder(&self.settings.store, self.state);
        let begin_embedded =
            || -> anyhow::Result<_> { Ok(EmbeddedImport::begin(&folder, self.settings_key()?)?) };
        match &self.settings.store {
            StoreLocation::Embedded => {
                let mut import = begin_embedded()?;
                source.read::<anyhow::Error>(|item| Ok(import.put(item)?))?;
                import.finish()?;
            }
            StoreLocation::Etcd(etcd) => {
                if let Some((record, bytes)) = &source.summary.largest {
                    let most = EtcdImport::MAX_RECORD;
                    ensure!(
                        *bytes <= most,
                        "record {record} has {bytes} bytes, and a store in etcd has records of at most {most}"
                    );
                }
                let options = etcd_options(STORE_SECTION, etcd.clone());
                check_user(options.clone())?;
                let mut local = begin_embedded().map_err(|error| {
                    let is_left = matches!(error.downcast_ref(), Some(EmbeddedImportError::Exists(_)));
                    let advice = "an earlier store in etcd has left the folder `local` of the state folder: move it away";
                    if is_left { error.context(advice) } else { error }
                })?;
                let mesh = self.settings.mesh.as_str();
                let key = self.settings_key()?;
                let mut import = EtcdImport::begin(options, &key, mesh, &host_name())?;
                source.read::<anyhow::Error>(|item| match item {
                    TransferItem::Shared(table, key, value) => {
                        import.put(table, key, &value).map_err(Into::into)
                    }
                    item @ TransferItem::Local(..) => local.put(item).map_err(Into::into),
                })?;
                // The store in etcd comes last: with it, control planes start.
                local.finish()?;
                import.finish()?;
            }
        }
        let summary = source.summary;
        Ok(ImportedMesh {
            mesh: summary.manifest.mesh,
            store: match &self.settings.store {
                StoreLocation::Embedded => self.state.display().to_string(),
                StoreLocation::Etcd(etcd) => format!("etcd below {}", etcd.prefix),
            },
            proxies: summary.proxies,
            records: summary.records,
            exported_at: summary.manifest.exported_at,
            next: self.steps_after_import(),
        })
    }

    /// What an operator does after an import.
    fn steps_after_import(&self) -> Vec<String> {
        let old = "keep the control planes of the old store stopped for good: with two stores, there would be two meshes \
                   that revoke and enroll apart";
        let mut steps = vec![old.to_owned()];
        if matches!(self.settings.store, StoreLocation::Etcd(_)) {
            steps.push(format!(
                "copy the key-encryption key `{}` to each control plane of the mesh, and move away the folder `local` of \
                 its state folder, if it had an earlier store in etcd",
                self.key_file.display()
            ));
        }
        let start = "start `ironmesh serve` with these settings, and check `ironmesh status`";
        let remove = "remove the export when it is not needed any more";
        steps.extend([start, remove].map(str::to_owned));
        steps
    }

    fn settings_key(&self) -> anyhow::Result<KeyEncryptionKey> {
        ensure!(
            fs_err::exists(self.key_file)?,
            "an export is sealed with the key-encryption key of its mesh, and there is none at `{}`: copy that key to it",
            self.key_file.display()
        );
        Ok(KeyEncryptionKey::load_or_create(self.key_file, true)?)
    }

    /// Makes sure that no control plane uses the state folder.
    fn require_stopped(&self) -> anyhow::Result<()> {
        let socket = self.state.join("admin.sock");
        ensure!(
            UnixStream::connect(&socket).is_err(),
            "a control plane runs with this state folder (`{}` answers): stop it first",
            socket.display()
        );
        Ok(())
    }

    /// Compares the names of the export with those of the settings: `serve` would reject them later.
    fn require_same_mesh(&self, source: &ImportSource) -> anyhow::Result<()> {
        let (found, own) = (&source.summary.manifest.mesh, self.settings.mesh.as_str());
        ensure!(
            found == own,
            "the export is that of the mesh `{found}`, and the settings name `{own}`: correct `mesh` in the settings"
        );
        let Some((domain, trust_domain)) = &source.summary.names else { return Ok(()) };
        if (domain, trust_domain) != (&self.settings.domain, &self.settings.trust_domain) {
            bail!(
                "the exported mesh has the domain `{domain}` and the trust domain `{trust_domain}`, and the settings set `{}` \
                 and `{}`: correct the settings",
                self.settings.domain,
                self.settings.trust_domain
            );
        }
        Ok(())
    }
}
