//! The engine: the database, which is opened again after a failure of the disk.
//!
//! redb rejects every operation after one failed write, until the database is opened again. So the engine
//! closes the database after a failure, and operations fail until [`Engine::reopen`] opens it. The caller
//! decides how often to try. The file and its lock stay open throughout ([`crate::file`]). The engine knows
//! no table.

use std::sync::Arc;

use ironmesh_catalog::text::chain;
use parking_lot::RwLock;
use redb::{CommitError, Database, DatabaseError, StorageError, TableError, TransactionError};

use crate::database::Failure;
use crate::file::{DatabaseFile, SharedFile};

/// The database file and, unless a failure has closed it, the database on it.
#[derive(Debug)]
pub(crate) struct Engine {
    file: Arc<DatabaseFile>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    /// The database; none after a failure.
    database: Option<Database>,
    /// The last failure; none after a write succeeds.
    fault: Option<String>,
}

/// The database is closed because of a failure.
#[derive(Debug, thiserror::Error)]
#[error("the store is closed since the disk failed, and is opened again within seconds: {reason}")]
struct Closed {
    reason: String,
}

impl Engine {
    /// Opens the database in `file`.
    pub(crate) fn open(file: DatabaseFile) -> Result<Self, DatabaseError> {
        let file = Arc::new(file);
        let database = open_database(&file)?;
        Ok(Self { file, state: RwLock::new(State { database: Some(database), fault: None }) })
    }

    pub(crate) fn file(&self) -> &DatabaseFile {
        &self.file
    }

    /// Runs `read` on the database. A failure of the disk closes the database.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let state = self.state.read();
        let database = state.database.as_ref().ok_or_else(|| state.closed())?;
        let result = read(database);
        drop(state);
        result.inspect_err(|failure| self.note_failure(failure))
    }

    /// Runs `write` on the database, which must commit a durable transaction if it succeeds.
    pub(crate) fn write<T>(
        &self,
        write: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let result = self.read(write)?;
        self.note_success();
        Ok(result)
    }

    /// Records that a transaction was committed, so the disk accepts writes.
    pub(crate) fn note_success(&self) {
        if self.state.read().fault.is_some() {
            let mut state = self.state.write();
            // Another operation may have failed since.
            if state.database.is_some() {
                state.fault = None;
            }
        }
    }

    /// The reason why operations fail: the last failure, until a write succeeds.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state.read().fault.clone()
    }

    /// Closes the database if the disk has failed.
    fn note_failure(&self, failure: &Failure) {
        if is_disk_failure(failure) {
            let mut state = self.state.write();
            // A later failure only repeats that there was an earlier one, so the first is kept.
            if state.database.take().is_some() {
                state.fault = Some(chain(&**failure));
            }
        }
    }

    /// Opens the database again if a failure has closed it.
    pub(crate) fn reopen(&self) -> Result<(), DatabaseError> {
        let mut state = self.state.write();
        if state.database.is_some() {
            return Ok(());
        }
        match open_database(&self.file) {
            Ok(database) => {
                state.database = Some(database);
                Ok(())
            }
            Err(error) => {
                state.fault = Some(chain(&error));
                Err(error)
            }
        }
    }
}

impl State {
    fn closed(&self) -> Failure {
        Closed { reason: self.fault.clone().unwrap_or_default() }.into()
    }
}

fn open_database(file: &Arc<DatabaseFile>) -> Result<Database, DatabaseError> {
    builder().create_with_backend(SharedFile(Arc::clone(file)))
}

pub(crate) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    // The whole state of a large mesh is some tens of megabytes, read once at start.
    builder.set_cache_size(8 * 1024 * 1024);
    builder
}

/// Whether the error is a failure of the disk, not of the operation.
fn is_disk_failure(failure: &Failure) -> bool {
    storage_error(failure).is_some_and(|error| !matches!(error, StorageError::ValueTooLarge(_)))
}

/// Whether the file is damaged, which no retry changes.
pub(crate) fn is_damage(failure: &Failure) -> bool {
    storage_error(failure).is_some_and(|error| matches!(error, StorageError::Corrupted(_)))
}

fn storage_error(failure: &Failure) -> Option<&StorageError> {
    failure.downcast_ref().or_else(|| {
        if let Some(TransactionError::Storage(storage)) = failure.downcast_ref() {
            return Some(storage);
        }
        if let Some(TableError::Storage(storage)) = failure.downcast_ref() {
            return Some(storage);
        }
        match failure.downcast_ref() {
            Some(CommitError::Storage(storage)) => Some(storage),
            _ => None,
        }
    })
}
