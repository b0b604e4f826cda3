//! The persistent state of the control plane, in one file on its own disk.
//!
//! This crate owns the state folder: its database, the permissions of both, and the sealing of every value
//! with a private key. It never issues or checks a certificate, never interprets a record, and reads no
//! clock. What all control planes of a mesh share is a record, so that etcd can replace the embedded store.
//!
//! ```text
//! KeyEncryptionKey ──► Store::open ──┬─► policies, endpoints: what this control plane reads again
//!                                    └─► RecordStore ──┬─► RecordTable: join records, names of proxies, tokens
//!                                                      └─► MeshState: names, certificates, TCP accesses,
//!                                                                     revocation lists, journal
//! ```
//!
//! All values are authenticated; records have versions, and those with private keys are sealed.
//!
//! Calls block on the disk: each write is one transaction that is durable when the call returns. After a
//! failure of the disk, calls fail until [`Store::recover`] succeeds; [`Store::health`] reports the failure.
//! Start reading at [`Store::open`].

mod accepted_removals;
mod acl;
mod authentic;
mod certificates;
mod database;
mod embedded_codec;
mod embedded_import;
mod embedded_records;
mod embedded_snapshot;
mod endpoints;
mod engine;
mod entries;
mod export;
mod file;
mod health;
mod high_water;
mod identity;
mod journal;
mod key;
mod mesh_state;
mod mesh_watch;
mod migration;
mod open;
mod policies;
mod private_file;
mod proxy_names;
mod quarantine;
mod record_cipher;
mod record_store;
mod record_table;
mod record_watch;
mod seal;
mod set_digest;
mod tcp_accesses;

pub use accepted_removals::AcceptedRemovals;
pub use database::Store;
pub use embedded_import::{EmbeddedImport, EmbeddedImportError};
pub use embedded_snapshot::StoreSnapshot;
pub use export::{
    Export, ExportError, ExportFault, ExportFile, ExportFileError, ExportKey, ImportFileError,
    ImportSource, ImportSummary, LocalTable, Manifest, RecordSnapshot, SHARED_TABLES,
    SnapshotVisitor, TransferItem,
};
pub use file::DatabaseFileFault;
pub use health::StoreHealth;
pub use high_water::HighWaterFault;
pub use identity::{KeyId, MeshId};
pub use key::{KeyEncryptionKey, KeyError, KeyOrigin};
pub use mesh_state::MeshState;
pub use mesh_watch::{MeshChanges, MeshWatch};
pub use open::OpenError;
pub use proxy_names::NamedProxy;
pub use quarantine::QuarantinedRecord;
pub use record_cipher::{CipherFault, RecordCipher, SealedFault};
pub use record_store::{
    ExpectedVersion, KeyedRecords, MAX_COMMIT_BYTES, MAX_COMMIT_CHANGES, Order, RecordAddress,
    RecordBytes, RecordChange, RecordError, RecordStore, RecordVersion, RecordVisitor, TableName,
    Versioned, check_changes, commit_parts,
};
pub use record_table::{Record, RecordTable};
pub use record_watch::{RecordWatch, RecordWatchSender, TableChanges};
pub use set_digest::{SetDigest, SetElement};

#[cfg(test)]
mod tests;
