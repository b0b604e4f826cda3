//! The health of the store while it is in use: the disk, the path of the file, and quarantined records.

use std::path::PathBuf;

use ironmesh_catalog::StoreError;

use crate::database::{Failure, META, Store};
use crate::file::DatabaseFileFault;
use crate::high_water::HighWaterFault;
use crate::quarantine::QuarantinedRecord;
use crate::record_store::RecordStore as _;

/// The faults of a store that is in use; all are empty if it is healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// The failure of the disk, until a write succeeds again.
    pub failure: Option<String>,
    /// The fault of the database file's path.
    pub place: Option<DatabaseFileFault>,
    /// The fault that the high-water mark revealed.
    pub high_water: Option<HighWaterFault>,
    /// The quarantined records.
    pub quarantined: Vec<QuarantinedRecord>,
}

impl Store {
    /// The health of the store. It examines the path of the file, and nothing else on the disk.
    pub fn health(&self) -> StoreHealth {
        StoreHealth {
            failure: self.failure(),
            place: self.engine.file().file_fault(),
            high_water: self.high_water.fault(),
            quarantined: self.quarantine.lock().records(),
        }
    }

    /// The path of the database file.
    pub fn path(&self) -> PathBuf {
        self.engine.file().path().to_owned()
    }

    /// Opens the database again after a failure of the disk, and proves by a write that the failure is over.
    /// Does nothing if there was no failure. The caller decides how often to try.
    pub fn recover(&self) -> Result<(), StoreError> {
        if self.failure().is_none() {
            return Ok(());
        }
        let recover = || {
            self.engine.reopen()?;
            // As large as most values, so that a disk with a few free bytes does not pass.
            self.put_raw(META, PROBE, &vec![0xa5; PROBE_LENGTH])?;
            self.remove_all(META, &[PROBE.to_owned()])?;
            Ok(self.record_high_water()?)
        };
        recover().map_err(|e: Failure| StoreError::new("write to the store again", e))
    }

    /// The failure of the disk at the database or its high-water mark, until a write succeeds again.
    fn failure(&self) -> Option<String> {
        self.engine.fault().or_else(|| self.high_water.failure())
    }
}

/// The key of the value that proves that the disk accepts writes.
const PROBE: &str = "probe";
const PROBE_LENGTH: usize = 64 * 1024;
