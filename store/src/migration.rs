//! The migration of a database of an older format. Values of format 1 get tags, join records of format 2 get versions.
//!
//! It is one transaction, so a database is entirely in one format.

use redb::{ReadableTable as _, TableHandle as _, WriteTransaction};

use crate::database::{
    ENDPOINTS, Failure, JOIN_RECORDS, META, POLICY, RECORD_VERSIONS, Store, Table,
};
use crate::embedded_records::{REVISION, version_key};
use crate::open::{CANARY, FORMAT, FORMAT_KEY, canary_of};
use crate::record_store::{RecordVersion, TableName};

/// The version of a migrated record.
const FIRST: RecordVersion = RecordVersion(1);

impl Store {
    /// Migrates a database of the format `from` to the current format. The caller has verified by the canary that it
    /// has this format.
    pub(crate) fn migrate(&self, from: u32) -> Result<(), Failure> {
        let sealed = self.sealer.seal(META.name(), CANARY, &canary_of(FORMAT))?;
        self.engine.write(|database| {
            let transaction = database.begin_write()?;
            if from == 1 {
                for table in [META, POLICY, ENDPOINTS] {
                    self.tag_values(&transaction, table)?;
                }
            }
            self.add_versions(&transaction, from)?;
            {
                let mut meta = transaction.open_table(META)?;
                let revision = self.tagged_number(META, REVISION, FIRST.0);
                meta.insert(REVISION, revision.as_slice())?;
                meta.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
                meta.insert(CANARY, sealed.as_slice())?;
            }
            Ok(transaction.commit()?)
        })
    }

    fn tag_values(&self, transaction: &WriteTransaction, definition: Table) -> Result<(), Failure> {
        let name = definition.name();
        for (key, value) in all(transaction, definition)? {
            // Versions without tags read the format too, so it has none; the canary is sealed.
            if name != META.name() || ![FORMAT_KEY, CANARY].contains(&key.as_str()) {
                let value = self.authenticator.tagged(name, &key, &value);
                transaction.open_table(definition)?.insert(key.as_str(), value.as_slice())?;
            }
        }
        Ok(())
    }

    /// Gives each join record its first version. One that is not authentic stays as it is, and is quarantined later.
    fn add_versions(&self, transaction: &WriteTransaction, from: u32) -> Result<(), Failure> {
        let name = JOIN_RECORDS.name();
        for (key, stored) in all(transaction, JOIN_RECORDS)? {
            let value = match from {
                1 => Some(stored.as_slice()),
                _ => self.authenticator.verified(name, &key, &stored),
            };
            let Some(value) = value else { continue };
            let record = self.authenticator.tagged_version(name, &key, FIRST, value);
            transaction.open_table(JOIN_RECORDS)?.insert(key.as_str(), record.as_slice())?;
            let index = version_key(TableName("join_records"), &key);
            let version = self.tagged_number(RECORD_VERSIONS, &index, FIRST.0);
            transaction.open_table(RECORD_VERSIONS)?.insert(index.as_str(), version.as_slice())?;
        }
        Ok(())
    }
}

/// All stored values of a table.
fn all(
    transaction: &WriteTransaction,
    definition: Table,
) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let table = transaction.open_table(definition)?;
    let stored = table.iter()?.map(|entry| {
        let (key, value) = entry?;
        Ok((key.value().to_owned(), value.value().to_vec()))
    });
    stored.collect()
}
