//! Policy in etcd, with real etcds: push, pull, follow and roll back, and their behaviour when etcd
//! fails, denies access, or holds foreign data.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod access;
mod answers;
mod atomicity;
mod documents;
mod following;
mod leadership;
mod members;
mod pushes;
mod races;
mod relay;
mod sessions;
mod store;
mod store_copy;
mod store_import;
mod workspace;
