//! The stores of a control plane: its own, in the state folder, and that of the mesh, which is the same one or in etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use ironmesh_catalog::Name;
use ironmesh_config_settings::{EtcdSettings, Settings, StoreLocation};
use ironmesh_config_sources::{STORE_SECTION, etcd_options};
use ironmesh_store::{ExportKey, KeyEncryptionKey, KeyOrigin, RecordStore, Store};
use ironmesh_store_etcd::{
    EtcdStore, EtcdStoreOptions, Initialized, PeerExchange, check_user, has_store, init,
};

use crate::start::Options;

/// Creates the key-encryption key in `key_file` and the store of a mesh in etcd, unless they exist. Blocks.
///
/// # Errors
///
/// Fails if etcd or the file cannot be used, if the user in etcd may do more than the mesh needs, or if etcd has a store that
/// a different key has sealed. A key that is created for a store that cannot be created stays.
pub fn initialize_etcd_store(
    settings: &EtcdSettings,
    mesh: &Name,
    key_file: &Path,
) -> anyhow::Result<(KeyOrigin, Initialized)> {
    let etcd = etcd_options(STORE_SECTION, settings.clone());
    check_user(etcd.clone())?;
    // A store that exists has a key: a new one could not open it.
    let exists = has_store(etcd.clone())?;
    let origin = KeyEncryptionKey::initialize(key_file, key_file, exists)?;
    let key = KeyEncryptionKey::load_or_create(key_file, true)?;
    Ok((origin, init(etcd, &key, mesh.as_str(), &host_name())?))
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The stores of a control plane.
#[derive(Debug)]
pub(crate) struct Stores {
    /// What this control plane alone keeps: the policies and endpoints that it can read again.
    pub(crate) local: Arc<Store>,
    /// What all control planes of the mesh share.
    pub(crate) shared: Arc<dyn RecordStore>,
    /// The same, if it is in etcd.
    pub(crate) etcd: Option<Arc<EtcdStore>>,
    /// The exchange with the other control planes of the mesh, if the store is in etcd.
    pub(crate) exchange: Option<Arc<PeerExchange>>,
    /// Seals exports.
    pub(crate) export_key: Arc<ExportKey>,
}

/// The folder of the database of one control plane. That of a mesh in etcd is a folder of its own, so that an earlier state
/// of the mesh in the state folder stays as it is.
pub(crate) fn local_folder(store: &StoreLocation, state: &Path) -> PathBuf {
    match store {
        StoreLocation::Embedded => state.to_owned(),
        StoreLocation::Etcd(_) => state.join("local"),
    }
}

impl Stores {
    /// The folder of the database of this control plane.
    pub(crate) fn local_folder(options: &Options) -> PathBuf {
        local_folder(&options.settings.store, &options.state)
    }

    /// Opens the stores. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the key-encryption key, the state folder or the store in etcd cannot be used. Only the key of an embedded
    /// store is created here.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Self> {
        let Options { settings, state, key_encryption_key, .. } = options;
        Self::open_at(settings, state, key_encryption_key, options.accepts_older_store)
    }

    /// The same, from these settings, state folder and key file.
    pub(crate) fn open_at(
        settings: &Settings,
        state: &Path,
        key_file: &Path,
        accepts_older: bool,
    ) -> anyhow::Result<Self> {
        let folder = local_folder(&settings.store, state);
        let mesh = settings.mesh.to_string();
        match &settings.store {
            StoreLocation::Embedded => {
                let exists = Store::database_exists(&folder);
                let key = KeyEncryptionKey::load_or_create(key_file, exists)?;
                let export_key = Arc::new(ExportKey::new(&key)?);
                let store = Arc::new(Store::open(&folder, key)?);
                let shared: Arc<dyn RecordStore> = Arc::<Store>::clone(&store);
                Ok(Self { local: store, shared, etcd: None, exchange: None, export_key })
            }
            StoreLocation::Etcd(etcd) => {
                let etcd = etcd_options(STORE_SECTION, etcd.clone());
                let key = || {
                    KeyEncryptionKey::load_or_create(key_file, true).context(
                        "a store in etcd needs the key-encryption key of the mesh: copy it from another control plane, or \
                         run `ironmesh store init` for a new mesh",
                    )
                };
                let keys = (key()?, key()?);
                let export_key = Arc::new(ExportKey::new(&keys.0)?);
                let local = Arc::new(Store::open(&folder, keys.0)?);
                let store = EtcdStore::open(
                    EtcdStoreOptions {
                        etcd: etcd.clone(),
                        mesh,
                        writer: host_name(),
                        copy: Some(folder),
                        accepts_older,
                    },
                    keys.1,
                )?;
                // Only now: an outage was waited for once already.
                if store.condition().unavailable.is_none() {
                    check_user(etcd.clone())?;
                }
                let shared: Arc<dyn RecordStore> = Arc::<EtcdStore>::clone(&store);
                let exchange = Some(store.peer_exchange(etcd));
                Ok(Self { local, shared, etcd: Some(store), exchange, export_key })
            }
        }
    }
}
