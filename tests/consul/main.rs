//! The Consul provider with real Consuls: discovery, and its behaviour when they die, lose their
//! memory, give wrong answers or deny access. The same with real Envoys under load.

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
mod faulty_agent;
mod host_watch;
mod join_by_tag;
mod locality;
mod mesh;
mod registrants;
mod starts;
mod tokens;
mod watch;
