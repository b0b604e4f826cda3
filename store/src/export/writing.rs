//! Writing an export, from one snapshot of the store.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use super::items::{self, LOCAL, Manifest, SHARED};
use super::key::ExportKey;
use super::sealed_stream::SealedWriter;
use super::{REPLACEABLE_TABLES, items::table_name};
use crate::database::Failure;
use crate::embedded_snapshot::StoreSnapshot;
use crate::record_store::{RecordAddress, TableName};

/// Sees the value of one record.
pub type SnapshotVisitor<'v> = &'v mut dyn FnMut(TableName, &str, &[u8]) -> io::Result<()>;

/// The shared records of a store at one moment. Later commits do not change it.
pub trait RecordSnapshot: fmt::Debug + Send + Sync {
    /// Visits all records, and returns the places of those that are not authentic.
    ///
    /// # Errors
    ///
    /// Fails if the visitor does, if the store cannot be read, or if it has tables that this version does not know.
    fn visit(&self, visitor: SnapshotVisitor<'_>) -> Result<Vec<RecordAddress>, ExportError>;
}

/// An export could not be written. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store has records that are not authentic and cannot be made again.
    #[error(
        "the store has records that are not authentic, such as {first} ({count} in all): restore them from a backup, or \
         revoke and enroll these proxies again, then export again"
    )]
    NotAuthentic {
        /// The first of them.
        first: RecordAddress,
        /// How many there are.
        count: usize,
    },
    /// The store has data that only a newer version knows.
    #[error(
        "the store has the table `{0}`, which this version does not know: use the newer version that wrote it"
    )]
    UnknownTable(String),
    /// The store has no mesh yet.
    #[error("the store has no mesh yet: no control plane has started with it")]
    Empty,
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[source] Failure),
    /// The output cannot be written.
    #[error("the export cannot be written")]
    Output(#[source] io::Error),
}

/// A consistent export, before it is written.
#[derive(Debug)]
pub struct Export {
    /// Seals it.
    pub key: Arc<ExportKey>,
    /// What it says of itself.
    pub manifest: Manifest,
    /// The records that all control planes share.
    pub shared: Arc<dyn RecordSnapshot>,
    /// What one control plane keeps for itself.
    pub local: Arc<StoreSnapshot>,
}

impl Export {
    /// Writes it, and returns the number of its records. Records that are made again, such as journal entries, are omitted if
    /// they are not authentic.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be exported, or the output not be written.
    pub fn write(&self, output: impl Write) -> Result<u64, ExportError> {
        let mut sealed = SealedWriter::new(&self.key, output).map_err(ExportError::Output)?;
        items::write_manifest(&mut sealed, &self.manifest).map_err(ExportError::Output)?;
        let (mut count, mut has_authority) = (0, false);
        let refused = self.shared.visit(&mut |table, key, value| {
            count += 1;
            has_authority |= table == crate::certificates::AUTHORITY;
            items::write_item(&mut sealed, SHARED, (table.0, key), value)
        })?;
        let mut lost = refused.iter().filter(|one| !REPLACEABLE_TABLES.contains(&one.table));
        if let Some(first) = lost.next().cloned() {
            return Err(ExportError::NotAuthentic { first, count: 1 + lost.count() });
        }
        if !has_authority {
            return Err(ExportError::Empty);
        }
        self.local.visit_local(|table, key, value| {
            count += 1;
            items::write_item(&mut sealed, LOCAL, (&table_name(table), key), value)
        })?;
        items::write_end(&mut sealed, count).map_err(ExportError::Output)?;
        sealed.finish().map_err(ExportError::Output)?;
        Ok(count)
    }
}
