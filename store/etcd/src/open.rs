//! Opening and initializing the state of a mesh in etcd.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::thread;

use ironmesh_etcd::{Cluster, Condition, EtcdError, EtcdOptions, Session, SessionError, Write};
use ironmesh_store::{CipherFault, KeyEncryptionKey, KeyId, MeshId, RecordCipher, SealedFault};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::canary::Canary;
use crate::head::Head;
use crate::layout::Layout;
use crate::mirror::{LoadFault, Mirror};
use crate::shared::{Shared, View};
use crate::store::EtcdStore;
use crate::worker::{PAGE, Worker};

/// The state of a mesh in etcd could not be opened or initialized. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdStoreError {
    /// etcd has no state below the prefix.
    #[error("etcd has no store below `{0}`: run `ironmesh store init` once, with these settings")]
    NotInitialized(String),
    /// The state was sealed under another key-encryption key.
    #[error(
        "the store in etcd was sealed by another key-encryption key (id {found}) than this one (id {own}): use the key \
         of the other control planes"
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
    /// What etcd has is not a state that control planes of the mesh made.
    #[error("etcd was changed by others, or is damaged: {0}: restore etcd from a backup")]
    Damaged(String),
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The system gives no random bytes, or no thread.
    #[error("the store in etcd cannot be opened: {0}")]
    System(#[from] io::Error),
}

/// What [`init`] found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialized {
    /// The store is new.
    Created,
    /// The store was there before.
    Present,
}

impl EtcdStore {
    /// Opens the state of a mesh, and follows it in a thread of its own. Blocks until the state is loaded and verified.
    ///
    /// `writer` is the host name of this control plane, which operators see.
    ///
    /// # Errors
    ///
    /// Fails if etcd cannot be used, or if what it has is not the state of this mesh.
    pub fn open(
        options: EtcdOptions,
        kek: KeyEncryptionKey,
        mesh: &str,
        writer: String,
    ) -> Result<Arc<Self>, EtcdStoreError> {
        let cluster = Cluster::open(options)?;
        let mesh = mesh.to_owned();
        let (sender, receiver) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("store-etcd".to_owned());
        let worker = thread.spawn(move || {
            runtime.block_on(async move {
                match load(cluster, &kek, &mesh, writer).await {
                    Ok((worker, session)) => {
                        // The key has been wiped before the first commit.
                        drop(kek);
                        if sender.send(Ok(Arc::clone(&worker.shared))).is_ok() {
                            Box::pin(worker.run(Some(session))).await;
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
        let shared = receiver.recv().map_err(ended)??;
        Ok(Arc::new(Self { shared, worker: Some(worker) }))
    }
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
    let canary = Canary { mesh: mesh.to_owned(), created_at: now };
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

async fn load(
    mut cluster: Cluster,
    kek: &KeyEncryptionKey,
    mesh: &str,
    writer: String,
) -> Result<(Worker, Session), EtcdStoreError> {
    let layout = Layout::new(cluster.prefix());
    let (canary, stored, revision) = cluster
        .insist(async |session: &mut Session| -> Result<_, SessionError> {
            let (canary, _) = session.get(layout.canary(), None).await?;
            let (stored, revision) = session.list_in_pages(layout.state(), PAGE).await?;
            Ok((canary, stored, revision))
        })
        .await?;
    let canary =
        canary.ok_or_else(|| EtcdStoreError::NotInitialized(cluster.prefix().to_owned()))?;
    let (_, cipher) = open_canary(kek, &layout, cluster.prefix(), mesh, &canary.value)?;
    let mirror = Mirror::load(&cipher, layout, stored)
        .map_err(|fault: LoadFault| EtcdStoreError::Damaged(fault.to_string()))?;
    let session = cluster.session().await?;
    let shared = Shared {
        cipher,
        view: Mutex::new(View { mirror, watches: Vec::new() }),
        queue: Mutex::default(),
        wake: tokio::sync::Notify::new(),
        condition: Mutex::default(),
        quarantined: Mutex::default(),
        has_ended: AtomicBool::new(false),
    };
    Ok((Worker::new(Arc::new(shared), cluster, writer, revision), session))
}

/// Opens the canary, and compares it with the key and the name of this mesh.
fn open_canary(
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

fn system(fault: CipherFault) -> EtcdStoreError {
    EtcdStoreError::System(io::Error::other(fault))
}
