//! The database: its tables, and access to single values.
//!
//! It owns the storage of values, and never interprets them.

use std::error::Error;
use std::fmt;

use parking_lot::Mutex;
use redb::{ReadableDatabase as _, TableDefinition, TableHandle as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authentic::Authenticator;
use crate::embedded_records::Revisions;
use crate::engine::Engine;
use crate::entries::Entries;
use crate::high_water::HighWater;
use crate::quarantine::Quarantine;
use crate::record_store::RecordStore as _;
use crate::seal::Sealer;

/// The embedded state store: one file, held by one process at a time.
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) sealer: Sealer,
    pub(crate) authenticator: Authenticator,
    pub(crate) quarantine: Mutex<Quarantine>,
    pub(crate) revisions: Mutex<Revisions>,
    pub(crate) high_water: HighWater,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The next start compares with it. A failure leaves an earlier mark, which is lower.
        let _ = self.record_high_water();
    }
}

pub(crate) type Table = TableDefinition<'static, &'static str, &'static [u8]>;

/// The reason why an operation failed; the caller adds the operation.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The database's description of itself: its format, the canary, the revision.
pub(crate) const META: Table = TableDefinition::new("meta");
/// The retained policies.
pub(crate) const POLICY: Table = TableDefinition::new("policy");

/// The endpoints that the guard accepted last, by provider and service.
pub(crate) const ENDPOINTS: Table = TableDefinition::new("endpoints");

/// The version of each record, by its table and key.
pub(crate) const RECORD_VERSIONS: Table = TableDefinition::new("record_versions");

/// The tables of values. Opening a database creates those that it lacks; a first commit creates a table of records.
pub(crate) const TABLES: [Table; 4] = [META, POLICY, ENDPOINTS, RECORD_VERSIONS];

impl Store {
    pub(crate) fn new(
        engine: Engine,
        sealer: Sealer,
        authenticator: Authenticator,
        high_water: HighWater,
    ) -> Self {
        let (quarantine, revisions) = Default::default();
        Self { engine, sealer, authenticator, quarantine, revisions, high_water }
    }

    /// Creates the missing tables, since an older version may have written the database.
    pub(crate) fn make_tables(&self) -> Result<(), Failure> {
        let known: Vec<_> = self.engine.read(|database| {
            let transaction = database.begin_read()?;
            Ok(transaction.list_tables()?.map(|table| table.name().to_owned()).collect())
        })?;
        let is_new = |table: &Table| !known.iter().any(|name| name == table.name());
        let new: Vec<_> = TABLES.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.engine.write(|database| {
            let transaction = database.begin_write()?;
            for table in new {
                transaction.open_table(table)?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// Removes a table, as in a database of a version without this table.
    #[cfg(test)]
    pub(crate) fn drop_table(&self, table: Table) {
        let dropped = self.engine.write(|database| {
            let transaction = database.begin_write()?;
            transaction.delete_table(table)?;
            Ok(transaction.commit()?)
        });
        dropped.unwrap();
    }

    /// The stored bytes at a place, sealed or tagged.
    pub(crate) fn get_raw(&self, table: Table, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.engine.read(|database| {
            let table = database.begin_read()?.open_table(table)?;
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        })
    }

    /// The authentic value at a place. A value that is not authentic is quarantined, and counts as missing.
    pub(crate) fn get_value(&self, table: Table, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let stored = self.get_raw(table, key)?;
        Ok(stored.and_then(|stored| self.verified(table, key, &stored)))
    }

    /// All stored bytes of `table`, in the order of the keys.
    #[cfg(test)]
    pub(crate) fn all_raw(&self, table: Table) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        self.all_raw_within(table, "")
    }

    /// All authentic values of `table` with their keys, in the order of the keys.
    pub(crate) fn all(&self, table: Table) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        self.all_within(table, "")
    }

    /// The authentic values of `table` under keys with `prefix`, in the order of the keys.
    pub(crate) fn all_within(
        &self,
        table: Table,
        prefix: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let stored = self.all_raw_within(table, prefix)?.into_iter();
        let verified = stored.filter_map(|(key, stored)| {
            let value = self.verified(table, &key, &stored)?;
            Some((key, value))
        });
        Ok(verified.collect())
    }

    fn all_raw_within(
        &self,
        table: Table,
        prefix: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        self.engine.read(|database| {
            let table = database.begin_read()?.open_table(table)?;
            let mut within = Vec::new();
            for entry in table.range(prefix..)? {
                let (key, value) = entry?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                within.push((key.value().to_owned(), value.value().to_vec()));
            }
            Ok(within)
        })
    }

    /// The value of the stored bytes, which is quarantined if it is not authentic.
    pub(crate) fn verified(&self, table: Table, key: &str, stored: &[u8]) -> Option<Vec<u8>> {
        let value = self.authenticator.verified(table.name(), key, stored);
        if value.is_none() {
            self.quarantine.lock().add(table.name(), key);
        }
        value.map(<[u8]>::to_vec)
    }

    /// Stores bytes in one transaction, which is durable when this returns.
    pub(crate) fn put_raw(&self, table: Table, key: &str, stored: &[u8]) -> Result<(), Failure> {
        self.engine.write(|database| {
            let transaction = database.begin_write()?;
            transaction.open_table(table)?.insert(key, stored)?;
            Ok(transaction.commit()?)
        })?;
        self.quarantine.lock().remove(table.name(), key);
        Ok(())
    }

    /// Stores one value in one transaction, which is durable when this returns.
    pub(crate) fn put(&self, table: Table, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.put_raw(table, key, &self.authenticator.tagged(table.name(), key, value))
    }

    /// Removes several values, by their keys, in one transaction.
    pub(crate) fn remove_all(&self, table: Table, keys: &[String]) -> Result<(), Failure> {
        self.change(table, |entries| {
            for key in keys {
                entries.remove(key)?;
            }
            Ok(keys.len())
        })?;
        Ok(())
    }

    /// Runs `change` on `table` in one transaction, which is durable when this returns. `change` returns how
    /// much it wrote; if that is nothing, the disk is not touched.
    pub(crate) fn change(
        &self,
        table: Table,
        change: impl FnOnce(&mut Entries<'_, '_>) -> Result<usize, Failure>,
    ) -> Result<usize, Failure> {
        let mut replaced = Vec::new();
        let run = |database: &redb::Database| -> Result<usize, Failure> {
            let transaction = database.begin_write()?;
            let mut entries = Entries::new(self, table, transaction.open_table(table)?);
            let written = change(&mut entries)?;
            replaced = entries.into_replaced();
            if written == 0 {
                transaction.abort()?;
            } else {
                transaction.commit()?;
            }
            Ok(written)
        };
        let written = self.engine.read(run)?;
        if written > 0 {
            self.engine.note_success();
            let mut quarantine = self.quarantine.lock();
            for key in &replaced {
                quarantine.remove(table.name(), key);
            }
        }
        Ok(written)
    }

    pub(crate) fn get_json<T: DeserializeOwned>(
        &self,
        table: Table,
        key: &str,
    ) -> Result<Option<T>, Failure> {
        let json = self.get_value(table, key)?;
        Ok(json.map(|json| serde_json::from_slice(&json)).transpose()?)
    }

    pub(crate) fn put_json<T: Serialize + ?Sized>(
        &self,
        table: Table,
        key: &str,
        value: &T,
    ) -> Result<(), Failure> {
        self.put(table, key, &serde_json::to_vec(value)?)
    }
}
