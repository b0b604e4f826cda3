//! The entries of one table within a transaction: callers read and write authentic values.

use redb::{ReadableTable as _, TableHandle as _};

use crate::database::{Failure, Store, Table};

/// The entries of a table that a transaction changes.
pub(crate) struct Entries<'s, 't> {
    store: &'s Store,
    definition: Table,
    table: redb::Table<'t, &'static str, &'static [u8]>,
    /// The keys that were written or removed.
    replaced: Vec<String>,
}

impl<'s, 't> Entries<'s, 't> {
    pub(crate) fn new(
        store: &'s Store,
        definition: Table,
        table: redb::Table<'t, &'static str, &'static [u8]>,
    ) -> Self {
        Self { store, definition, table, replaced: Vec::new() }
    }

    /// All keys, including those of values that are not authentic.
    pub(crate) fn keys(&self) -> Result<Vec<String>, Failure> {
        let keys = self.table.iter()?.map(|entry| Ok(entry?.0.value().to_owned()));
        keys.collect()
    }

    /// The authentic value at `key`.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let stored = self.table.get(key)?;
        Ok(stored.and_then(|stored| self.store.verified(self.definition, key, stored.value())))
    }

    pub(crate) fn insert(&mut self, key: &str, value: &[u8]) -> Result<(), Failure> {
        let tagged = self.store.authenticator.tagged(self.definition.name(), key, value);
        self.table.insert(key, tagged.as_slice())?;
        self.replaced.push(key.to_owned());
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &str) -> Result<(), Failure> {
        self.table.remove(key)?;
        self.replaced.push(key.to_owned());
        Ok(())
    }

    /// The keys that were written or removed.
    pub(crate) fn into_replaced(self) -> Vec<String> {
        self.replaced
    }
}
