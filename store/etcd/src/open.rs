//! Opening and initializing the state of a mesh in etcd.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use ironmesh_etcd::{Cluster, Condition, EtcdError, EtcdOptions, Session, Write};
use ironmesh_store::{CipherFault, KeyEncryptionKey, KeyId, MeshId, RecordCipher, SealedFault};
use jiff::Timestamp;

use crate::canary::Canary;
use crate::head::Head;
use crate::layout::Layout;
use crate::loading::{Loaded, load};
use crate::local_copy::{CopyError, CopyWriter};
use crate::store::EtcdStore;

/// The state of a mesh in etcd could not be opened or initialized. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdStoreError {
    /// etcd has no state below the prefix.
    #[error("etcd has no store below `{0}`: run `ironmesh store init` once, with these settings")]
    NotInitialized(String),
    /// The state was sealed under another key-encryption key.
    #[error(
        "the store in etcd was sealed with a different key-encryption key (id {found}; this control plane has {own}): \
         copy the key from a control plane that works"
    )]
    OtherKey {
        /// The key of the store.
        found: KeyId,
        /// The key of this control plane.
        own: KeyId,
    },
    /// The state belongs to a mesh of another name.
    #[error(
        "the store below `{prefix}` belongs to the mesh `{found}`: correct `mesh` or the prefix in the settings"
    )]
    OtherMesh {
        /// The prefix.
        prefix: String,
        /// The name of its mesh.
        found: String,
    },
    /// The identity of the mesh does not open.
    #[error("the store below `{prefix}` cannot be used: the record of the mesh's identity {fault}")]
    Canary {
        /// The prefix.
        prefix: String,
        /// Why it does not open.
        fault: SealedFault,
    },
    /// An import into the store has not ended.
    #[error(
        "an import into the store below `{0}` has not ended: wait for it, or run `ironmesh store import` again if it was \
         interrupted"
    )]
    Importing(String),
    /// What etcd has is not a state that control planes of the mesh made.
    #[error(
        "the store in etcd was changed by a different client, or is damaged: {0}: restore etcd from a backup"
    )]
    Damaged(String),
    /// The user in etcd may do more than the mesh needs, or etcd has no access control.
    #[error(
        "etcd lets this user read outside of `{0}/`: enable access control in etcd (`etcdctl auth enable`), and give the \
         control planes a user of their own, with a role for `{0}/state/` and `{0}/leases/` only"
    )]
    UnlimitedUser(String),
    /// etcd has an older state than this control plane had.
    #[error(
        "etcd was put back to an older state: it has revision {found}, and this control plane had {known}; later changes \
         are lost, such as revocations and enrollments: restore a newer backup of etcd, or start all control planes of the \
         mesh once with `--accept-older-store` and repeat the changes"
    )]
    Older {
        /// The revision of etcd.
        found: u64,
        /// The revision of the copy.
        known: u64,
    },
    /// The state in etcd was initialized again.
    #[error(
        "the store in etcd was created again, and this control plane had revision {known} of an earlier one: restore etcd from a \
         backup; if the mesh is new on purpose, move the folder `local` of the state folder away"
    )]
    NewMesh {
        /// The revision of the copy.
        known: u64,
    },
    /// The copy on this machine is damaged, or not that of this mesh.
    #[error(
        "the copy of the store in `{}` cannot be used: {reason}: while etcd can be reached, move the file away and start again", path.display()
    )]
    Copy {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The copy on this machine cannot be opened.
    #[error(transparent)]
    CopyFile(#[from] CopyError),
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The system gives no random bytes, or no thread.
    #[error("the store in etcd cannot be opened: {0}")]
    System(#[from] io::Error),
}

impl EtcdStoreError {
    /// Whether what etcd has is of a different mesh.
    pub(crate) fn is_of_other_mesh(&self) -> bool {
        matches!(self, Self::OtherKey { .. } | Self::OtherMesh { .. } | Self::Importing(_))
    }
}

/// What [`init`] found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialized {
    /// The store is new.
    Created,
    /// The store was there before.
    Present,
}

/// How a control plane opens the state of its mesh.
#[derive(Debug)]
pub struct EtcdStoreOptions {
    /// The connection to etcd, and the prefix of the mesh.
    pub etcd: EtcdOptions,
    /// The name of the mesh.
    pub mesh: String,
    /// The host name of this control plane, which operators see.
    pub writer: String,
    /// The folder of the copy of the state; it exists. None keeps no copy: then the store does not open while etcd is down.
    pub copy: Option<PathBuf>,
    /// Whether a state of etcd counts that is older than the copy.
    pub accepts_older: bool,
}

impl EtcdStore {
    /// Opens the state of a mesh, and follows it in a thread of its own. Blocks until the state is loaded and verified: that
    /// of etcd, or, while etcd is down or damaged, the copy of this machine.
    ///
    /// # Errors
    ///
    /// Fails if what etcd has is not the state of this mesh, or is older than the copy; or if etcd cannot be used and there
    /// is no copy.
    pub fn open(
        options: EtcdStoreOptions,
        kek: KeyEncryptionKey,
    ) -> Result<Arc<Self>, EtcdStoreError> {
        let (sender, receiver) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("store-etcd".to_owned());
        let worker = thread.spawn(move || {
            runtime.block_on(async move {
                match Box::pin(load(options, &kek)).await {
                    Ok(Loaded { worker, copy }) => {
                        // The key has been wiped before the first commit.
                        drop(kek);
                        if sender.send(Ok((Arc::clone(&worker.shared), copy))).is_ok() {
                            Box::pin(worker.run()).await;
                        }
                    }
                    Err(error) => {
                        // The caller waits for it.
                        let _ = sender.send(Err(error));
                    }
                }
            });
        })?;
        let ended = |_| io::Error::other("its thread has ended");
        let (shared, copy) = receiver.recv().map_err(ended)??;
        let copy = copy.map(|copy| CopyWriter::start(Arc::clone(&shared), copy));
        Ok(Arc::new(Self { shared, worker: Some(worker), copy_writer: copy.transpose()? }))
    }
}

/// Makes sure that the user in etcd cannot read beside the prefix of the mesh: the settings name a user of its own, and
/// etcd has access control. Blocks. If etcd cannot be reached, that is no error.
///
/// # Errors
///
/// Fails if the user may read more, or if the settings name files that cannot be read.
pub fn check_user(options: EtcdOptions) -> Result<(), EtcdStoreError> {
    let mut cluster = Cluster::open(options)?;
    // Below no other mesh: a prefix ends with a slash.
    let beside = format!("{}-beside", cluster.prefix());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = runtime.block_on(
        cluster.insist(async |session: &mut Session| session.get_stale(&beside).await.map(drop)),
    );
    match read {
        Ok(()) => Err(EtcdStoreError::UnlimitedUser(cluster.prefix().to_owned())),
        Err(_) => Ok(()),
    }
}

/// Whether etcd has the state of a mesh below the prefix. Blocks.
///
/// # Errors
///
/// Fails if etcd cannot be used.
pub fn has_store(options: EtcdOptions) -> Result<bool, EtcdStoreError> {
    let mut cluster = Cluster::open(options)?;
    let key = Layout::new(cluster.prefix()).canary().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let canary = runtime
        .block_on(cluster.insist(async |session: &mut Session| session.get(&key, None).await));
    Ok(canary?.0.is_some())
}

/// Creates the state of a mesh, unless it exists. Blocks.
///
/// # Errors
///
/// Fails if etcd cannot be used, or has the state of another mesh or key.
pub fn init(
    options: EtcdOptions,
    kek: &KeyEncryptionKey,
    mesh: &str,
    writer: &str,
) -> Result<Initialized, EtcdStoreError> {
    let mut cluster = Cluster::open(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let layout = Layout::new(cluster.prefix());
    let cipher = RecordCipher::new(kek, MeshId::generate().map_err(system)?).map_err(system)?;
    let now = Timestamp::now();
    let canary = Canary { mesh: mesh.to_owned(), created_at: now, is_importing: false };
    let canary = canary.seal(&cipher, &layout).map_err(system)?;
    let head = Head::empty(writer, now).seal(&cipher, layout.head()).map_err(system)?;
    let values = [(layout.canary(), canary), (layout.head(), head)];
    let put = |(key, value): &(&str, Vec<u8>)| Write::Put {
        key: (*key).to_owned(),
        value: value.clone(),
        lease: None,
    };
    let absent =
        |(key, _): &(&str, Vec<u8>)| Condition::Modified { key: (*key).to_owned(), revision: 0 };
    runtime.block_on(async {
        // A lost answer may be repeated: the transaction succeeds once, and what is stored decides.
        let stored = cluster
            .insist(async |session| {
                let conditions = values.iter().map(absent).collect();
                let done = session.transact(conditions, values.iter().map(put).collect()).await?;
                let (stored, _) = session.get(layout.canary(), None).await?;
                Ok((done.succeeded, stored))
            })
            .await?;
        let (_, Some(stored)) = stored else {
            return Err(EtcdStoreError::Damaged(
                "the record of the mesh's identity is missing".to_owned(),
            ));
        };
        let (_, found) = open_canary(kek, &layout, cluster.prefix(), mesh, &stored.value)?;
        let is_own = found.mesh() == cipher.mesh();
        Ok(if is_own { Initialized::Created } else { Initialized::Present })
    })
}

/// Opens the canary, and compares it with the key and the name of this mesh. Fails while an import writes the store.
pub(crate) fn open_canary(
    kek: &KeyEncryptionKey,
    layout: &Layout,
    prefix: &str,
    mesh: &str,
    value: &[u8],
) -> Result<(Canary, RecordCipher), EtcdStoreError> {
    match open_any_canary(kek, layout, prefix, mesh, value)? {
        (canary, _) if canary.is_importing => Err(EtcdStoreError::Importing(prefix.to_owned())),
        opened => Ok(opened),
    }
}

/// The same, also of a store that an import writes.
pub(crate) fn open_any_canary(
    kek: &KeyEncryptionKey,
    layout: &Layout,
    prefix: &str,
    mesh: &str,
    value: &[u8],
) -> Result<(Canary, RecordCipher), EtcdStoreError> {
    match Canary::open(kek, layout, value) {
        Ok((canary, _)) if canary.mesh != mesh => {
            Err(EtcdStoreError::OtherMesh { prefix: prefix.to_owned(), found: canary.mesh })
        }
        Ok(opened) => Ok(opened),
        Err(SealedFault::OtherKey(found)) => {
            Err(EtcdStoreError::OtherKey { found, own: KeyId::of(kek).map_err(system)? })
        }
        Err(fault) => Err(EtcdStoreError::Canary { prefix: prefix.to_owned(), fault }),
    }
}

pub(crate) fn system(fault: CipherFault) -> EtcdStoreError {
    EtcdStoreError::System(io::Error::other(fault))
}
