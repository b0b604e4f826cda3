//! Loads the state with which a store opens: that of etcd, compared with the copy of this machine, or the copy alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ironmesh_etcd::{Cluster, Session, SessionError};
use ironmesh_store::{KeyEncryptionKey, RecordCipher};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::condition::StoreCondition;
use crate::head::Head;
use crate::layout::Layout;
use crate::local_copy::{LocalCopy, Unsaved};
use crate::mirror::{LoadFault, Mirror};
use crate::open::{EtcdStoreError, EtcdStoreOptions, open_canary};
use crate::shared::{Shared, View};
use crate::worker::{PAGE, Worker};

/// A loaded state.
pub(crate) struct Loaded {
    pub(crate) worker: Worker,
    pub(crate) copy: Option<LocalCopy>,
}

pub(crate) async fn load(
    options: EtcdStoreOptions,
    kek: &KeyEncryptionKey,
) -> Result<Loaded, EtcdStoreError> {
    let EtcdStoreOptions { etcd, mesh, writer, copy, accepts_older } = options;
    let mut cluster = Cluster::open(etcd)?;
    let layout = Layout::new(cluster.prefix());
    let copied = match &copy {
        Some(folder) => Some(Copied::read(folder, kek, &layout, (cluster.prefix(), &mesh))?),
        None => None,
    };
    let (copy, copied) = copied.map_or((None, None), |copied| (Some(copied.file), copied.state));
    let loaded = load_etcd(&mut cluster, kek, &layout, &mesh).await;
    let (state, revision, condition) = match (loaded, copied) {
        (Ok((state, revision)), copied) => {
            if let Some((cipher, copy)) = &copied {
                compare(copy.head(), cipher, &state, accepts_older)?;
            }
            (state, revision, StoreCondition::default())
        }
        // The worker tries again, and reports what it finds.
        (Err(error), Some((cipher, mut mirror))) if !error.is_of_other_mesh() => {
            mirror.demand_load();
            let unavailable = Some((Timestamp::now(), error.to_string()));
            ((cipher, mirror), 0, StoreCondition { unavailable, ..StoreCondition::default() })
        }
        (Err(error), _) => return Err(error),
    };
    let (cipher, mirror) = state;
    let unsaved = copy.as_ref().map(|_| Unsaved::all(&mirror));
    let shared = Shared {
        cipher,
        view: Mutex::new(View { mirror, unsaved, watches: Vec::new() }),
        queue: Mutex::default(),
        wake: tokio::sync::Notify::new(),
        condition: Mutex::new(condition),
        quarantined: Mutex::default(),
        has_ended: AtomicBool::new(false),
    };
    Ok(Loaded { worker: Worker::new(Arc::new(shared), cluster, writer, revision), copy })
}

/// The copy of this machine, and the state in it; none if it is empty.
struct Copied {
    file: LocalCopy,
    state: Option<(RecordCipher, Mirror)>,
}

impl Copied {
    fn read(
        folder: &Path,
        kek: &KeyEncryptionKey,
        layout: &Layout,
        (prefix, mesh): (&str, &str),
    ) -> Result<Self, EtcdStoreError> {
        let file = LocalCopy::open(folder)?;
        let damaged =
            |reason: String| EtcdStoreError::Copy { path: LocalCopy::path(folder), reason };
        let values = file.read().map_err(|error| damaged(error.to_string()))?;
        if values.is_empty() {
            return Ok(Self { file, state: None });
        }
        let canary = values.iter().find(|one| one.key == layout.canary());
        let Some(canary) = canary else {
            return Err(damaged(format!(
                "it is that of a store below another prefix than `{prefix}`"
            )));
        };
        let (_, cipher) = open_canary(kek, layout, prefix, mesh, &canary.value)?;
        let mirror = Mirror::load(&cipher, layout.clone(), values);
        let mirror = mirror.map_err(|fault| damaged(fault.to_string()))?;
        Ok(Self { file, state: Some((cipher, mirror)) })
    }
}

/// The state that etcd has now, and its revision.
async fn load_etcd(
    cluster: &mut Cluster,
    kek: &KeyEncryptionKey,
    layout: &Layout,
    mesh: &str,
) -> Result<((RecordCipher, Mirror), i64), EtcdStoreError> {
    let (canary, stored, revision) = cluster
        .insist(async |session: &mut Session| -> Result<_, SessionError> {
            let (canary, _) = session.get(layout.canary(), None).await?;
            let (stored, revision) = session.list_in_pages(layout.state(), PAGE).await?;
            Ok((canary, stored, revision))
        })
        .await?;
    let canary =
        canary.ok_or_else(|| EtcdStoreError::NotInitialized(cluster.prefix().to_owned()))?;
    let (_, cipher) = open_canary(kek, layout, cluster.prefix(), mesh, &canary.value)?;
    let mirror = Mirror::load(&cipher, layout.clone(), stored)
        .map_err(|fault: LoadFault| EtcdStoreError::Damaged(fault.to_string()))?;
    Ok(((cipher, mirror), revision))
}

/// Compares the state of etcd with the copy of this machine, whose head and cipher are given.
fn compare(
    copy: &Head,
    cipher: &RecordCipher,
    (found_cipher, found): &(RecordCipher, Mirror),
    accepts_older: bool,
) -> Result<(), EtcdStoreError> {
    let (found, known) = (found.head(), copy.revision);
    if cipher.mesh() != found_cipher.mesh() {
        return Err(EtcdStoreError::NewMesh { known });
    }
    let is_same = found.revision == known && found.commit == copy.commit;
    let is_older = !is_same && !found.follows(copy, false);
    if is_older && !accepts_older {
        return Err(EtcdStoreError::Older { found: found.revision, known });
    }
    Ok(())
}
