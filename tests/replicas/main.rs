//! Control planes that share a store in etcd: real etcd members, control planes and Envoys.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "test code: a panic is a failed test"
)]

mod azure;
mod cordon;
mod events;
mod example;
mod load;
mod machine;
mod moves;
mod notes;
mod operators;
mod outages;
mod replicas;
mod reports;
mod sharing;
mod silences;
