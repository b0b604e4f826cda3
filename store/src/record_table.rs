//! Typed tables over a store of records, and the form in which records are stored: JSON with a schema number.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, JoinToken, Login, OperatorRecord, Silence};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Error as JsonError, Value};

use crate::record_store::{
    ExpectedVersion, RecordAddress, RecordBytes, RecordChange, RecordError, RecordStore, TableName,
    Versioned,
};
use crate::record_watch::RecordWatch;

/// A type of stored records.
///
/// It keeps the fields that it does not know ([`ironmesh_catalog::UnknownFields`]), so that an older version of the
/// program does not remove them.
pub trait Record: Serialize + DeserializeOwned {
    /// Its table.
    const TABLE: TableName;

    /// The number of its form, which new fields increase. A newer form has the fields of this one with their
    /// meaning; a change of meaning needs a new format of the whole store.
    const SCHEMA: u64;

    /// Its key in the table.
    fn key(&self) -> String;
}

impl Record for JoinRecord {
    const TABLE: TableName = TableName("join_records");
    const SCHEMA: u64 = 3;

    fn key(&self) -> String {
        self.id.to_string()
    }
}

impl Record for JoinToken {
    const TABLE: TableName = TableName("join_tokens");
    const SCHEMA: u64 = 1;

    fn key(&self) -> String {
        self.id.to_string()
    }
}

impl Record for OperatorRecord {
    const TABLE: TableName = TableName("operators");
    const SCHEMA: u64 = 1;

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Record for Login {
    const TABLE: TableName = TableName("logins");
    const SCHEMA: u64 = 1;

    fn key(&self) -> String {
        self.id.to_string()
    }
}

impl Record for Silence {
    const TABLE: TableName = TableName("silences");
    const SCHEMA: u64 = 1;

    fn key(&self) -> String {
        self.id.to_string()
    }
}

impl RecordChange {
    /// Stores a record in place of one of the expected version.
    pub fn put<R: Record>(record: &R, expected: ExpectedVersion) -> Result<Self, RecordError> {
        let key = record.key();
        match encode(record) {
            Ok(json) => Ok(Self { table: R::TABLE, key, expected, value: Some(json.into()) }),
            Err(error) => {
                let record = RecordAddress { table: R::TABLE, key };
                Err(RecordError::Invalid { record, source: error.into() })
            }
        }
    }

    /// Removes the record of the expected version at a key.
    pub fn remove<R: Record>(key: impl Into<String>, expected: ExpectedVersion) -> Self {
        Self { table: R::TABLE, key: key.into(), expected, value: None }
    }
}

/// The table of one type of records in a store.
#[derive(Debug)]
pub struct RecordTable<R> {
    store: Arc<dyn RecordStore>,
    records: PhantomData<fn() -> R>,
}

impl<R: Record> RecordTable<R> {
    /// The table in this store.
    pub fn new(store: Arc<dyn RecordStore>) -> Self {
        Self { store, records: PhantomData }
    }

    /// The store of the table.
    pub fn store(&self) -> &dyn RecordStore {
        &*self.store
    }

    /// The record at a key. One that cannot be decoded is quarantined.
    pub fn get(&self, key: &str) -> Result<Option<Versioned<R>>, RecordError> {
        let Some(stored) = self.store.get(R::TABLE, key)? else { return Ok(None) };
        match self.decode(key, &stored) {
            None => Err(RecordError::quarantined(R::TABLE, key)),
            record => Ok(record),
        }
    }

    /// All records, in the order of the keys. Those that cannot be decoded are quarantined and omitted.
    pub fn list(&self) -> Result<Vec<Versioned<R>>, RecordError> {
        let stored = self.store.list(R::TABLE)?.into_iter();
        Ok(stored.filter_map(|(key, stored)| self.decode(&key, &stored)).collect())
    }

    /// The keys of the quarantined records.
    pub fn quarantined(&self) -> BTreeSet<String> {
        self.store.quarantined(R::TABLE)
    }

    /// Watches the table: first its current state, then what changes.
    pub fn watch(&self) -> Result<RecordWatch, RecordError> {
        self.store.watch(R::TABLE)
    }

    fn decode(&self, key: &str, stored: &Versioned<RecordBytes>) -> Option<Versioned<R>> {
        let record = decode::<R>(&stored.value).ok().filter(|record| record.key() == key);
        if record.is_none() {
            self.store.quarantine(R::TABLE, key);
        }
        Some(Versioned { value: record?, version: stored.version })
    }
}

/// The field with the number of a record's form. Records of the first versions have none.
const SCHEMA: &str = "schema";

/// The JSON of a record. A record of a newer version keeps its schema number, since it keeps its fields.
fn encode<R: Record>(record: &R) -> Result<Vec<u8>, JsonError> {
    let mut json = serde_json::to_value(record)?;
    if let Value::Object(fields) = &mut json {
        let kept = fields.get(SCHEMA).and_then(Value::as_u64).unwrap_or_default();
        fields.insert(SCHEMA.to_owned(), kept.max(R::SCHEMA).into());
    }
    serde_json::to_vec(&json)
}

/// The record of this JSON. The schema number of a newer version stays among the unknown fields.
fn decode<R: Record>(json: &[u8]) -> Result<R, JsonError> {
    let mut json: Value = serde_json::from_slice(json)?;
    if let Value::Object(fields) = &mut json {
        let is_newer = |schema: &Value| schema.as_u64().is_some_and(|number| number > R::SCHEMA);
        if !fields.get(SCHEMA).is_some_and(is_newer) {
            fields.remove(SCHEMA);
        }
    }
    serde_json::from_value(json)
}
