//! How the embedded store protects a record: its version and value have a tag, and values with private keys are
//! sealed under it.
//!
//! The tag covers the table, the key, the version and the value. The table of versions has the version of each record
//! once more. So a record that is edited, moved, removed or replaced by an older copy of itself does not match.

use redb::{ReadableTable, TableHandle as _};
use zeroize::Zeroizing;

use crate::authentic::Authenticator;
use crate::database::{Failure, RECORD_VERSIONS};
use crate::record_store::{RecordBytes, RecordVersion, TableName, Versioned};
use crate::seal::Sealer;

/// The tables whose records have private keys.
const SEALED: [&str; 2] = ["authority", "service_certificates"];

/// Protects records, and verifies those that it reads.
pub(crate) struct RecordCodec<'s> {
    pub(crate) sealer: &'s Sealer,
    pub(crate) authenticator: &'s Authenticator,
}

/// What is stored at a key.
pub(crate) enum Stored {
    Absent,
    Present(Versioned<RecordBytes>),
    /// It is not authentic, or has a version that is not its last one.
    Refused,
}

impl RecordCodec<'_> {
    /// A record as it is stored.
    pub(crate) fn encode(
        &self,
        table: TableName,
        key: &str,
        version: RecordVersion,
        value: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let tagged = |value: &[u8]| self.authenticator.tagged_version(table.0, key, version, value);
        Ok(if SEALED.contains(&table.0) {
            tagged(&self.sealer.seal(table.0, key, value)?)
        } else {
            tagged(value)
        })
    }

    /// The entry of a record in the table of versions: its key and its value.
    pub(crate) fn encode_version(
        &self,
        table: TableName,
        key: &str,
        version: RecordVersion,
    ) -> (String, Vec<u8>) {
        let index = version_key(table, key);
        let name = RECORD_VERSIONS.name();
        let tagged = self.authenticator.tagged(name, &index, &version.0.to_be_bytes());
        (index, tagged)
    }

    /// What is stored at a key, given the tables of records and of versions.
    pub(crate) fn read(
        &self,
        table: TableName,
        key: &str,
        records: &impl ReadableTable<&'static str, &'static [u8]>,
        versions: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<Stored, Failure> {
        let record = records.get(key)?;
        self.verify(table, key, record.as_ref().map(redb::AccessGuard::value), versions)
    }

    /// What these bytes are, which the table of records has at a key.
    pub(crate) fn verify(
        &self,
        table: TableName,
        key: &str,
        record: Option<&[u8]>,
        versions: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<Stored, Failure> {
        let index = version_key(table, key);
        let version = versions.get(index.as_str())?;
        let (Some(record), Some(version)) = (record, &version) else {
            let is_absent = record.is_none() && version.is_none();
            return Ok(if is_absent { Stored::Absent } else { Stored::Refused });
        };
        let name = RECORD_VERSIONS.name();
        let last = self.authenticator.verified(name, &index, version.value()).and_then(number);
        Ok(match self.decode(table, key, record) {
            Some(record) if Some(record.version.0) == last => Stored::Present(record),
            _ => Stored::Refused,
        })
    }

    fn decode(&self, table: TableName, key: &str, stored: &[u8]) -> Option<Versioned<RecordBytes>> {
        let (version, value) = self.authenticator.verified_version(table.0, key, stored)?;
        let value = if SEALED.contains(&table.0) {
            self.sealer.unseal(table.0, key, value).ok()?
        } else {
            Zeroizing::new(value.to_vec())
        };
        Some(Versioned { value, version })
    }
}

/// The key of a record's version in the table of versions.
pub(crate) fn version_key(table: TableName, key: &str) -> String {
    format!("{table}/{key}")
}

/// A stored number.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
