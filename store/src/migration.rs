//! The migration of a database of an older format. Values of format 1 get tags, join records of format 2 get versions,
//! and what control planes share becomes records, which it is not in format 3.
//!
//! It is one transaction, so a database is entirely in one format.

use imbl::OrdMap;
use ironmesh_catalog::{ServicePort, TcpAccess, TcpAccesses};
use redb::{ReadableTable as _, TableHandle as _, WriteTransaction};
use zeroize::Zeroizing;

use crate::certificates::{AUTHORITY, SERVICE_CERTIFICATES};
use crate::database::{ENDPOINTS, Failure, META, POLICY, RECORD_VERSIONS, Store, Table};
use crate::embedded_records::{REVISION, definition};
use crate::journal::JOURNAL;
use crate::mesh_state::{CURRENT, MESH, REVOCATION_LISTS};
use crate::open::{CANARY, FORMAT, FORMAT_KEY, canary_of};
use crate::record_store::{RecordBytes, RecordVersion, TableName};
use crate::tcp_accesses;

const JOIN_RECORDS: TableName = TableName("join_records");

/// The keys of format 3: the names of the mesh in [`META`], and two values in [`POLICY`].
const OLD_MESH: &str = "mesh";
const OLD_ACCESSES: &str = "tcp_accesses";
const OLD_LISTS: &str = "revocation_lists";

impl Store {
    /// Migrates a database of the format `from` to the current format. The caller has verified by the canary that it
    /// has this format, and has loaded its revision.
    pub(crate) fn migrate(&self, from: u32) -> Result<(), Failure> {
        let sealed = self.sealer.seal(META.name(), CANARY, &canary_of(FORMAT))?;
        let version = RecordVersion(self.revisions.lock().used + 1);
        self.engine.write(|database| {
            let transaction = database.begin_write()?;
            let migration = Migration { store: self, transaction: &transaction, version };
            if from == 1 {
                for table in [META, POLICY, ENDPOINTS] {
                    migration.tag_values(table)?;
                }
            }
            if from < 3 {
                migration.add_versions(from)?;
            }
            migration.make_records()?;
            {
                let mut meta = transaction.open_table(META)?;
                let revision = self.tagged_number(META, REVISION, version.0);
                meta.insert(REVISION, revision.as_slice())?;
                meta.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
                meta.insert(CANARY, sealed.as_slice())?;
            }
            Ok(transaction.commit()?)
        })?;
        self.load_revision()?;
        Ok(())
    }
}

/// A migration in one transaction.
struct Migration<'m> {
    store: &'m Store,
    transaction: &'m WriteTransaction,
    /// The version of all records that it writes.
    version: RecordVersion,
}

impl Migration<'_> {
    fn tag_values(&self, definition: Table) -> Result<(), Failure> {
        let name = definition.name();
        for (key, value) in self.all(definition)? {
            // Versions without tags read the format too, so it has none; the canary is sealed.
            if name != META.name() || ![FORMAT_KEY, CANARY].contains(&key.as_str()) {
                let value = self.store.authenticator.tagged(name, &key, &value);
                self.transaction.open_table(definition)?.insert(key.as_str(), value.as_slice())?;
            }
        }
        Ok(())
    }

    /// Gives each join record its first version. One that is not authentic stays as it is, and is quarantined later.
    fn add_versions(&self, from: u32) -> Result<(), Failure> {
        let stored = self.all(definition(JOIN_RECORDS))?;
        if from == 1 {
            let values = stored.into_iter().map(|(key, value)| (key, value.into()));
            return self.put_all(JOIN_RECORDS, values);
        }
        self.put_all(JOIN_RECORDS, self.authentic(JOIN_RECORDS, stored))
    }

    /// Makes records of the values that all control planes share. One that is not authentic stays as it is, and is
    /// quarantined later, except for the values of policy, which counted as missing.
    fn make_records(&self) -> Result<(), Failure> {
        for table in [AUTHORITY, SERVICE_CERTIFICATES] {
            let stored = self.all(definition(table))?.into_iter();
            let opened = stored.filter_map(|(key, sealed)| {
                let value = self.store.sealer.unseal(table.0, &key, &sealed).ok()?;
                Some((key, value))
            });
            self.put_all(table, opened)?;
        }
        self.put_all(JOURNAL, self.authentic(JOURNAL, self.all(definition(JOURNAL))?))?;

        if let Some(stored) = self.take(META, OLD_MESH)? {
            let names = self.store.authenticator.verified(META.name(), OLD_MESH, &stored);
            if let Some(names) = names {
                self.put(MESH, CURRENT, names)?;
            } else {
                // The names have no default: as a record without a version they are refused at every start.
                let mut names = self.transaction.open_table(definition(MESH))?;
                names.insert(CURRENT, stored.as_slice())?;
            }
        }
        if let Some(lists) = self.take_verified(POLICY, OLD_LISTS)? {
            self.put(REVOCATION_LISTS, CURRENT, &lists)?;
        }
        if let Some(json) = self.take_verified(POLICY, OLD_ACCESSES)? {
            let (withdrawals, ports): (u64, Vec<(ServicePort, TcpAccess)>) =
                serde_json::from_slice(&json)?;
            let ports: OrdMap<_, _> = ports.into_iter().collect();
            let accesses = TcpAccesses { ports, withdrawals };
            for change in tcp_accesses::changes(&TcpAccesses::default(), &accesses)? {
                self.put(change.table, &change.key, &change.value.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// The authentic values of format 3 among these.
    fn authentic(
        &self,
        table: TableName,
        stored: Vec<(String, Vec<u8>)>,
    ) -> impl Iterator<Item = (String, RecordBytes)> {
        stored.into_iter().filter_map(move |(key, stored)| {
            let value = self.store.authenticator.verified(table.0, &key, &stored)?;
            let value = Zeroizing::new(value.to_vec());
            Some((key, value))
        })
    }

    fn put(&self, table: TableName, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.put_all(table, [(key.to_owned(), Zeroizing::new(value.to_vec()))])
    }

    fn put_all(
        &self,
        table: TableName,
        values: impl IntoIterator<Item = (String, RecordBytes)>,
    ) -> Result<(), Failure> {
        let codec = self.store.codec();
        let mut records = self.transaction.open_table(definition(table))?;
        let mut versions = self.transaction.open_table(RECORD_VERSIONS)?;
        for (key, value) in values {
            let record = codec.encode(table, &key, self.version, &value)?;
            records.insert(key.as_str(), record.as_slice())?;
            let (index, version) = codec.encode_version(table, &key, self.version);
            versions.insert(index.as_str(), version.as_slice())?;
        }
        Ok(())
    }

    /// Removes a value, and returns it as it was stored.
    fn take(&self, definition: Table, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut table = self.transaction.open_table(definition)?;
        Ok(table.remove(key)?.map(|stored| stored.value().to_vec()))
    }

    fn take_verified(&self, definition: Table, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let stored = self.take(definition, key)?;
        let name = definition.name();
        let verified = stored
            .as_deref()
            .and_then(|stored| self.store.authenticator.verified(name, key, stored));
        Ok(verified.map(<[u8]>::to_vec))
    }

    /// All stored values of a table.
    fn all(&self, definition: Table) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let table = self.transaction.open_table(definition)?;
        let stored = table.iter()?.map(|entry| {
            let (key, value) = entry?;
            Ok((key.value().to_owned(), value.value().to_vec()))
        });
        stored.collect()
    }
}
