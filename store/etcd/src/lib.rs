//! The shared state of a mesh in etcd: sealed records. A client of etcd without the key-encryption key can neither read
//! them nor change them unnoticed.
//!
//! This crate owns the keys below `<prefix>/state/` and `<prefix>/leases/`, and the rules by which a write counts as a
//! commit. It never interprets a record, nor what control planes publish of themselves. Its cryptography is in `ironmesh-store`, and etcd's client in `ironmesh-etcd`.
//!
//! ```text
//! etcd ──► pages, then a watch ──► Mirror (verified) ──► readers
//!   ▲                                │       └──► LocalCopy, on the disk of this machine
//!   └── one transaction ◄── Batch ◄──┘◄── commits
//! ```

mod batch;
mod canary;
mod commits;
mod condition;
mod head;
mod import;
mod layout;
mod loading;
mod local_copy;
mod mirror;
mod open;
mod peer_chunks;
mod peer_exchange;
mod publication_seal;
mod records;
mod settling;
mod shared;
mod snapshot;
mod store;
mod worker;

pub use condition::StoreCondition;
pub use import::{EtcdImport, EtcdImportError};
pub use layout::Layout;
pub use local_copy::CopyError;
pub use open::{EtcdStoreError, EtcdStoreOptions, Initialized, check_user, has_store, init};
pub use peer_chunks::PeerStates;
pub use peer_exchange::{MAX_CHUNK, PeerExchange};
pub use store::EtcdStore;

#[cfg(test)]
mod tests;
