//! The export of a whole mesh into one file, and what reads it: docs/decisions/0094-export-and-import.md.
//!
//! An export has all shared records, and what the control plane keeps for itself: its policies and endpoints. It is
//! sealed under a key that is derived from the key-encryption key, so it reveals as little as the store itself.

mod file;
mod items;
mod key;
mod reading;
mod sealed_stream;
mod writing;

use crate::database::{ENDPOINTS, POLICY, Table};
use crate::record_store::TableName;

pub use file::{ExportFile, ExportFileError};
pub use items::{LocalTable, Manifest, TransferItem};
pub use key::ExportKey;
pub use reading::{ImportFileError, ImportSource, ImportSummary};
pub use sealed_stream::ExportFault;
pub use writing::{Export, ExportError, RecordSnapshot, SnapshotVisitor};

/// All tables of records that control planes share.
pub const SHARED_TABLES: [TableName; 14] = [
    crate::mesh_state::MESH,
    crate::certificates::AUTHORITY,
    crate::certificates::SERVICE_CERTIFICATES,
    crate::mesh_state::REVOCATION_LISTS,
    crate::tcp_accesses::TCP_ACCESSES,
    crate::accepted_removals::ACCEPTED_REMOVALS,
    crate::journal::JOURNAL,
    crate::journal::JOURNAL_END,
    <ironmesh_catalog::JoinRecord as crate::record_table::Record>::TABLE,
    <crate::proxy_names::NamedProxy as crate::record_table::Record>::TABLE,
    <ironmesh_catalog::JoinToken as crate::record_table::Record>::TABLE,
    <ironmesh_catalog::OperatorRecord as crate::record_table::Record>::TABLE,
    <ironmesh_catalog::Login as crate::record_table::Record>::TABLE,
    <ironmesh_catalog::Silence as crate::record_table::Record>::TABLE,
];

/// The tables whose records are made again if one is missing, by the control plane or by an operator: one that is not
/// authentic is not exported. In any other table, it makes the export fail.
pub(crate) const REPLACEABLE_TABLES: [TableName; 6] = [
    crate::certificates::SERVICE_CERTIFICATES,
    crate::mesh_state::REVOCATION_LISTS,
    crate::journal::JOURNAL,
    crate::accepted_removals::ACCEPTED_REMOVALS,
    <ironmesh_catalog::Login as crate::record_table::Record>::TABLE,
    <ironmesh_catalog::Silence as crate::record_table::Record>::TABLE,
];

/// The tables of values that one control plane keeps for itself.
pub(crate) const LOCAL_TABLES: [(LocalTable, Table); 2] =
    [(LocalTable::Policy, POLICY), (LocalTable::Endpoints, ENDPOINTS)];

#[cfg(test)]
mod tests;
