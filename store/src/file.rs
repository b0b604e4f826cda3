//! The open database file. One file description, with its lock, stays open for the life of a store, even if
//! the database is closed after a failure and opened again.
//!
//! It never interprets the file's content.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

#[cfg(test)]
pub(crate) mod faults;

/// The database file, open.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    /// The same file description as that of the backend.
    file: File,
    backend: FileBackend,
    #[cfg(test)]
    pub(crate) faults: faults::Faults,
}

impl DatabaseFile {
    /// Opens the file at `path`, which must exist.
    pub(crate) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let file = fs_err::OpenOptions::new().read(true).write(true).open(path)?.into_parts().0;
        if file.metadata()?.len() == 0 {
            // redb would create a new database in it.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "file is empty").into());
        }
        let backend = FileBackend::new(file.try_clone()?)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            backend,
            #[cfg(test)]
            faults: faults::Faults::default(),
        })
    }

    /// The fault of the file's path: whether it still leads to this file.
    pub(crate) fn file_fault(&self) -> Option<DatabaseFileFault> {
        let (here, there) = match (self.file.metadata(), fs_err::metadata(&self.path)) {
            (Ok(here), Ok(there)) => (here, there),
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Some(DatabaseFileFault::Missing);
            }
            (Err(error), _) | (_, Err(error)) => {
                return Some(DatabaseFileFault::Unreachable(error.to_string()));
            }
        };
        let is_same = (here.dev(), here.ino()) == (there.dev(), there.ino());
        (!is_same).then_some(DatabaseFileFault::Replaced)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The fault of the database file's path, while the store has the file open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseFileFault {
    /// No file exists at its path any more.
    Missing,
    /// A different file exists at its path.
    Replaced,
    /// The path cannot be examined, for this reason.
    Unreachable(String),
}

/// The file as redb uses it. redb's `close` releases the lock, which must outlive a database that is closed
/// after a failure. So `close` does nothing here, and the lock ends with the file description.
#[derive(Debug)]
pub(crate) struct SharedFile(pub(crate) Arc<DatabaseFile>);

impl StorageBackend for SharedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        #[cfg(test)]
        self.0.faults.check()?;
        self.0.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        #[cfg(test)]
        self.0.faults.check()?;
        self.0.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.0.faults.check()?;
        self.0.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.query_lock_range(start, end)
    }
}
