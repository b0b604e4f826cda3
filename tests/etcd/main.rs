//! Policy in etcd, with real ones: pushing, pulling and following it, and what becomes of these when etcd
//! is away, says no, or holds what nobody pushed.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod access;
mod atomicity;
mod cluster;
mod documents;
mod following;
mod leadership;
mod members;
mod pushes;
mod races;
mod relay;
mod workspace;
