//! The condition of the store while it is in use: whether the disk takes writes, whether the file is where it
//! should be, and which records are not used.

use std::path::PathBuf;

use ironmesh_catalog::StoreError;

use crate::database::{META, Store};
use crate::file::DatabaseFileFault;
use crate::quarantine::QuarantinedRecord;

/// What is wrong with a store that is in use; nothing where all of it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Why the disk failed, until a write succeeds again.
    pub failure: Option<String>,
    /// What is wrong with the place of the database file.
    pub place: Option<DatabaseFileFault>,
    /// The records that are not used.
    pub quarantined: Vec<QuarantinedRecord>,
}

impl Store {
    /// The condition of the store. It looks at the place of the file, and at nothing else on the disk.
    pub fn health(&self) -> StoreHealth {
        StoreHealth {
            failure: self.engine.fault(),
            place: self.engine.file().file_fault(),
            quarantined: self.quarantine.lock().records(),
        }
    }

    /// The path of the database file.
    pub fn path(&self) -> PathBuf {
        self.engine.file().path().to_owned()
    }

    /// Opens the database again after a failure of the disk, and proves by a write that the failure is over.
    /// Does nothing where there was no failure. The caller chooses how often it is tried.
    pub fn recover(&self) -> Result<(), StoreError> {
        if self.engine.fault().is_none() {
            return Ok(());
        }
        let recover = || {
            self.engine.reopen()?;
            // As large as most values, so that a disk with a few free bytes does not pass.
            self.put_raw(META, PROBE, &vec![0xa5; PROBE_LENGTH])?;
            self.remove_all(META, &[PROBE.to_owned()])
        };
        recover().map_err(|e| StoreError::new("write to the store again", e))
    }
}

/// The key of the value that proves that the disk takes writes.
const PROBE: &str = "probe";
const PROBE_LENGTH: usize = 64 * 1024;
