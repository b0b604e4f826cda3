//! The persistent state of the control plane, in one file on its own disk.
//!
//! This crate owns the state folder: its database, the permissions of both, and the sealing of every value
//! with a private key. It never issues or checks a certificate, never interprets a record, and reads no
//! clock. It implements traits for its users, so that etcd can replace it: [`RecordStore`] for versioned records, and
//! those of the catalog.
//!
//! ```text
//! KeyEncryptionKey ──► Store::open ──► RecordStore: join records              (authenticated, with versions)
//!                                  ├─► mesh, policies, endpoints, journal       (authenticated)
//!                                  └─► authority, service certificates          (sealed)
//! ```
//!
//! Calls block on the disk: each write is one transaction that is durable when the call returns. After a
//! failure of the disk, calls fail until [`Store::recover`] succeeds; [`Store::health`] reports the failure.
//! Start reading at [`Store::open`].

mod acl;
mod authentic;
mod certificates;
mod database;
mod embedded_records;
mod endpoints;
mod engine;
mod entries;
mod file;
mod health;
mod high_water;
mod journal;
mod key;
mod migration;
mod open;
mod policies;
mod private_file;
mod quarantine;
mod record_store;
mod record_table;
mod record_watch;
mod seal;
mod single_values;

pub use database::Store;
pub use file::DatabaseFileFault;
pub use health::StoreHealth;
pub use high_water::HighWaterFault;
pub use key::{KeyEncryptionKey, KeyError, KeyOrigin};
pub use open::OpenError;
pub use quarantine::QuarantinedRecord;
pub use record_store::{
    ExpectedVersion, KeyedRecords, RecordAddress, RecordChange, RecordError, RecordStore,
    RecordVersion, TableName, Versioned,
};
pub use record_table::{Record, RecordTable};
pub use record_watch::{RecordWatch, RecordWatchSender, TableChanges};

#[cfg(test)]
mod tests;
