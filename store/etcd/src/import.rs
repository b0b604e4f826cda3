//! The import of an export into etcd, below a prefix that has no store.
//!
//! The canary says that an import is writing, so no control plane uses the store. Each transaction expects the canary of
//! its own import: another import, which replaces the canary, stops it. The last transaction writes the head, and the
//! canary of a store that is complete. The store is a new one, with a new identity: nothing of an earlier store of the
//! mesh opens in it.

use ironmesh_etcd::{Cluster, Condition, EtcdError, EtcdOptions, Session, SessionError, Write};
use ironmesh_store::{
    KeyEncryptionKey, MAX_COMMIT_BYTES, MAX_COMMIT_CHANGES, MeshId, RecordBytes, RecordCipher,
    RecordVersion, SetDigest, TableName,
};
use jiff::Timestamp;
use tokio::runtime::Runtime;

use crate::canary::Canary;
use crate::head::Head;
use crate::layout::Layout;
use crate::open::{EtcdStoreError, open_any_canary, system};
use crate::store::MAX_RECORD;
use crate::worker::PAGE;

/// The version of all imported records, and the revision of the first head.
const VERSION: RecordVersion = RecordVersion(1);

/// A store that an import writes into etcd.
pub struct EtcdImport {
    runtime: Runtime,
    cluster: Cluster,
    layout: Layout,
    cipher: RecordCipher,
    /// The canary of this import, as it is stored.
    canary: Vec<u8>,
    mesh: String,
    writer: String,
    pending: Vec<Write>,
    pending_bytes: usize,
    records: u64,
    digest: SetDigest,
}

/// An import into etcd failed. What it has stored is no store, and the next import removes it.
#[derive(Debug, thiserror::Error)]
pub enum EtcdImportError {
    /// There is a store.
    #[error(
        "etcd has a store below `{0}` already, and an import never changes one: set another `prefix`, or, if no control \
         plane needs that store any more, remove it with `etcdctl del --prefix {0}/state/`"
    )]
    Exists(String),
    /// There are keys of an unknown program.
    #[error(
        "etcd has {count} keys below `{prefix}/state/` that are no store: remove them, or set another `prefix`"
    )]
    Foreign {
        /// The prefix.
        prefix: String,
        /// The number of keys.
        count: usize,
    },
    /// Another import has begun, or a control plane has written the prefix.
    #[error(
        "another import into the store below `{0}` has begun, or a control plane of an earlier store there still runs: \
         stop it, and import again"
    )]
    Superseded(String),
    /// A record exceeds what etcd stores.
    #[error(
        "the record `{key}` of {table} has {bytes} bytes, and etcd stores records of at most {MAX_RECORD}"
    )]
    TooLarge {
        /// Its table.
        table: TableName,
        /// Its key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] EtcdStoreError),
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl EtcdImport {
    /// The most bytes of a record.
    pub const MAX_RECORD: usize = MAX_RECORD;

    /// Begins an import into an empty prefix, or in place of an import that was interrupted. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if etcd has a store or other keys there, or cannot be used.
    pub fn begin(
        options: EtcdOptions,
        kek: &KeyEncryptionKey,
        mesh: &str,
        writer: &str,
    ) -> Result<Self, EtcdImportError> {
        let mut cluster = Cluster::open(options)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EtcdStoreError::System)?;
        let layout = Layout::new(cluster.prefix());
        let prefix = cluster.prefix().to_owned();
        let (stored, _) = runtime.block_on(cluster.insist(async |session: &mut Session| {
            session.list_in_pages(layout.state(), PAGE).await
        }))?;
        let earlier = stored.iter().find(|one| one.key == layout.canary());
        if let Some(earlier) = earlier {
            match open_any_canary(kek, &layout, &prefix, mesh, &earlier.value)? {
                (canary, _) if canary.is_importing => {}
                _ => return Err(EtcdImportError::Exists(prefix)),
            }
        } else if !stored.is_empty() {
            return Err(EtcdImportError::Foreign { prefix, count: stored.len() });
        }
        let revision = earlier.map_or(0, |earlier| earlier.modified);

        let id = MeshId::generate().map_err(system).map_err(EtcdImportError::Store)?;
        let cipher = RecordCipher::new(kek, id).map_err(system)?;
        let own =
            Canary { mesh: mesh.to_owned(), created_at: Timestamp::now(), is_importing: true };
        let canary = own.seal(&cipher, &layout).map_err(system)?;
        let mut import = Self {
            runtime,
            cluster,
            layout,
            cipher,
            canary,
            mesh: mesh.to_owned(),
            writer: writer.to_owned(),
            pending: Vec::new(),
            pending_bytes: 0,
            records: 0,
            digest: SetDigest::default(),
        };
        let key = import.layout.canary().to_owned();
        let put = put(&key, import.canary.clone());
        import.transact(&Condition::Modified { key, revision }, &[put])?;
        // From here on, an earlier import writes nothing more.
        let (stored, _) =
            import.runtime.block_on(import.cluster.insist(async |session: &mut Session| {
                session.list_in_pages(import.layout.state(), PAGE).await
            }))?;
        let leftovers = stored.into_iter().map(|one| one.key);
        let leftovers: Vec<_> = leftovers.filter(|key| key != import.layout.canary()).collect();
        for part in leftovers.chunks(MAX_COMMIT_CHANGES) {
            let removals = part.iter().map(|key| Write::Delete { key: key.clone() });
            import.transact(&import.is_own(), &removals.collect::<Vec<_>>())?;
        }
        Ok(import)
    }

    /// Stores a record. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if it is too large, if another import has begun, or if etcd cannot be used.
    pub fn put(
        &mut self,
        table: TableName,
        key: String,
        value: &RecordBytes,
    ) -> Result<(), EtcdImportError> {
        let bytes = value.len();
        if bytes > MAX_RECORD {
            return Err(EtcdImportError::TooLarge { table, key, bytes });
        }
        if self.pending.len() >= MAX_COMMIT_CHANGES || self.pending_bytes + bytes > MAX_COMMIT_BYTES
        {
            self.flush()?;
        }
        let stored = self.layout.record(table.0, &key);
        let sealed = self.cipher.seal(&stored, VERSION, value).map_err(system)?;
        self.digest.add(self.cipher.element(&stored, VERSION, &sealed));
        self.records += 1;
        self.pending_bytes += bytes;
        self.pending.push(put(&stored, sealed));
        Ok(())
    }

    /// Makes the store complete, so that control planes use it. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if another import has begun, or if etcd cannot be used.
    pub fn finish(mut self) -> Result<(), EtcdImportError> {
        self.flush()?;
        let now = Timestamp::now();
        let head =
            Head::empty(&self.writer, now).next((self.records, self.digest), &self.writer, now);
        let head = head.seal(&self.cipher, self.layout.head()).map_err(system)?;
        let canary = Canary { mesh: self.mesh.clone(), created_at: now, is_importing: false };
        let canary = canary.seal(&self.cipher, &self.layout).map_err(system)?;
        // A lost answer is settled by the first one, which no control plane replaces.
        let writes = vec![put(self.layout.canary(), canary), put(self.layout.head(), head)];
        self.transact(&self.is_own(), &writes)
    }

    fn flush(&mut self) -> Result<(), EtcdImportError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let writes = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.transact(&self.is_own(), &writes)
    }

    /// The condition that no other import has begun.
    fn is_own(&self) -> Condition {
        Condition::Value { key: self.layout.canary().to_owned(), value: self.canary.clone() }
    }

    /// Makes all writes, if the condition holds. A lost answer may be repeated: whether the first attempt was stored is
    /// read back.
    fn transact(&mut self, condition: &Condition, writes: &[Write]) -> Result<(), EtcdImportError> {
        let last = writes.iter().find_map(|write| match write {
            Write::Put { key, value, .. } => Some((key.clone(), Some(value.clone()))),
            Write::Delete { .. } => None,
        });
        let work = async |session: &mut Session| -> Result<bool, SessionError> {
            let done = session.transact(vec![condition.clone()], writes.to_vec()).await?;
            if done.succeeded {
                return Ok(true);
            }
            let Some((key, expected)) = &last else { return Ok(false) };
            let (found, _) = session.get(key, None).await?;
            Ok(found.map(|found| found.value) == *expected)
        };
        if self.runtime.block_on(self.cluster.insist(work))? {
            Ok(())
        } else {
            Err(EtcdImportError::Superseded(self.cluster.prefix().to_owned()))
        }
    }
}

impl std::fmt::Debug for EtcdImport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdImport").field("records", &self.records).finish_non_exhaustive()
    }
}

fn put(key: &str, value: Vec<u8>) -> Write {
    Write::Put { key: key.to_owned(), value, lease: None }
}
