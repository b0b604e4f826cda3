//! The import of an export into an embedded store that does not exist yet.
//!
//! It is made in a folder beside the place of the database, and gets its name when it is complete. An import that was
//! interrupted leaves that folder, and the next one removes it. A lock on the state folder lets one import run at a time: two
//! that begin at once would use one folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::database::{ENDPOINTS, Failure, POLICY, Store};
use crate::export::{LocalTable, TransferItem};
use crate::high_water::HIGH_WATER;
use crate::key::KeyEncryptionKey;
use crate::mesh_state::put;
use crate::open::{DATABASE, IMPORT, OpenError};
use crate::private_file;
use crate::record_store::{
    MAX_COMMIT_BYTES, MAX_COMMIT_CHANGES, RecordChange, RecordError, RecordStore as _,
};

/// A new embedded store, which nothing uses before [`EmbeddedImport::finish`].
#[derive(Debug)]
pub struct EmbeddedImport {
    store: Store,
    folder: PathBuf,
    draft: PathBuf,
    /// The locked state folder. The lock ends with this file, also if the process is killed.
    _lock: File,
    pending: Vec<RecordChange>,
    pending_bytes: usize,
}

/// An import failed. There is no new store.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedImportError {
    /// There is a store.
    #[error(
        "there is a store already, and an import never changes one: if it is that of a mesh that you do not need any more, \
         move it away first: `{}`", .0.display()
    )]
    Exists(PathBuf),
    /// Another import runs.
    #[error("another `ironmesh store import` runs for the same state folder: `{}`", .0.display())]
    Concurrent(PathBuf),
    /// The state folder cannot be used.
    #[error("cannot write the state folder `{}`", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The new store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record cannot be stored.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A value cannot be stored.
    #[error("the store cannot be written")]
    Value(#[source] Failure),
}

impl EmbeddedImport {
    /// Begins an import into the state folder `folder`. `load_key` reads the key-encryption key.
    ///
    /// # Errors
    ///
    /// Fails if the folder has a store, or cannot be used.
    pub fn begin(folder: &Path, kek: KeyEncryptionKey) -> Result<Self, EmbeddedImportError> {
        if Store::database_exists(folder) {
            return Err(EmbeddedImportError::Exists(folder.join(DATABASE)));
        }
        let draft = folder.join(IMPORT);
        let unusable = |source| EmbeddedImportError::Unusable { path: folder.to_owned(), source };
        if !fs_err::exists(folder).map_err(unusable)? {
            private_file::create_folder(folder).map_err(unusable)?;
            if let Some(parent) = folder.parent() {
                private_file::give_to_owner_of(parent, folder).map_err(unusable)?;
            }
        }
        let lock = File::open(folder).map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => EmbeddedImportError::Concurrent(folder.to_owned()),
            TryLockError::Error(source) => unusable(source),
        })?;
        // An import that has ended meanwhile.
        if Store::database_exists(folder) {
            return Err(EmbeddedImportError::Exists(folder.join(DATABASE)));
        }
        if fs_err::exists(&draft).map_err(unusable)? {
            if Store::is_in_use(&draft) {
                return Err(EmbeddedImportError::Concurrent(folder.to_owned()));
            }
            fs_err::remove_dir_all(&draft).map_err(unusable)?;
        }
        let store = Store::open(&draft, kek)?;
        let (folder, pending) = (folder.to_owned(), Vec::new());
        Ok(Self { store, folder, draft, _lock: lock, pending, pending_bytes: 0 })
    }

    /// Stores an item of the export.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be stored.
    pub fn put(&mut self, item: TransferItem) -> Result<(), EmbeddedImportError> {
        match item {
            TransferItem::Shared(table, key, value) => {
                let bytes = value.len();
                if self.pending.len() >= MAX_COMMIT_CHANGES
                    || self.pending_bytes + bytes > MAX_COMMIT_BYTES
                {
                    self.commit()?;
                }
                self.pending_bytes += bytes;
                self.pending.push(put(table, key, value));
            }
            TransferItem::Local(table, key, value) => {
                let table = match table {
                    LocalTable::Policy => POLICY,
                    LocalTable::Endpoints => ENDPOINTS,
                };
                self.store.put(table, &key, &value).map_err(EmbeddedImportError::Value)?;
            }
        }
        Ok(())
    }

    /// Gives the complete store its place.
    ///
    /// # Errors
    ///
    /// Fails if a store was created there meanwhile, or the disk fails.
    pub fn finish(mut self) -> Result<(), EmbeddedImportError> {
        self.commit()?;
        let Self { store, folder, draft, .. } = self;
        // This writes the high-water mark, and closes the database.
        drop(store);
        let place = |source| EmbeddedImportError::Unusable { path: folder.clone(), source };
        let path = folder.join(DATABASE);
        if fs_err::exists(&path).map_err(place)? {
            return Err(EmbeddedImportError::Exists(path));
        }
        private_file::give_to_owner_of(&folder, &draft.join(DATABASE)).map_err(place)?;
        private_file::publish_new(&draft.join(DATABASE), &path).map_err(|error| {
            match error.kind() {
                io::ErrorKind::AlreadyExists => EmbeddedImportError::Exists(path.clone()),
                _ => place(error),
            }
        })?;
        // An import is a new history: the mark of an earlier database of this folder says nothing about it.
        let mark = draft.join(HIGH_WATER);
        if fs_err::exists(&mark).map_err(place)? {
            private_file::give_to_owner_of(&folder, &mark).map_err(place)?;
            private_file::replace(&mark, &folder.join(HIGH_WATER)).map_err(place)?;
        }
        // The store is complete; the next import would remove an empty folder.
        let _ = fs_err::remove_dir_all(&draft);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), RecordError> {
        if !self.pending.is_empty() {
            self.store.commit(&self.pending)?;
            self.pending.clear();
            self.pending_bytes = 0;
        }
        Ok(())
    }
}
