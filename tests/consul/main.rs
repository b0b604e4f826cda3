//! The Consul provider with real Consuls: what it finds, and what becomes of that when they die, forget, lie or
//! deny; and the same all the way to real Envoys under load.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod agents;
mod answers;
mod bookstore;
mod cluster;
mod example;
mod faults;
mod join_by_tag;
mod liar;
mod locality;
mod registrants;
mod roll;
mod shop;
mod starts;
mod tokens;
mod watching;
