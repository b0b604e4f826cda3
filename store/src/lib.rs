//! The persistent state of the control plane, in one file on its own disk.
//!
//! This crate owns the state folder: its database, the permissions of both, and the sealing of every value
//! with a private key. It never issues or checks a certificate, never interprets a record, and reads no
//! clock. It implements traits of the catalog for its users, so that etcd can replace it.
//!
//! ```text
//! KeyEncryptionKey ──► Store::open ──► join records, mesh, policies, journal   (authenticated)
//!                                  └─► authority, service certificates        (sealed)
//! ```
//!
//! Calls block on the disk: each write is one transaction that is durable when the call returns. After a
//! failure of the disk, calls fail until [`Store::recover`] succeeds; [`Store::health`] reports the failure.
//! Start reading at [`Store::open`].

mod authentic;
mod certificates;
mod database;
mod endpoints;
mod engine;
mod entries;
mod file;
mod health;
mod journal;
mod key;
mod migration;
mod open;
mod policies;
mod private_file;
mod quarantine;
mod records;
mod seal;

pub use database::Store;
pub use file::DatabaseFileFault;
pub use health::StoreHealth;
pub use key::{KeyEncryptionKey, KeyError};
pub use open::OpenError;
pub use quarantine::QuarantinedRecord;

#[cfg(test)]
mod tests;
