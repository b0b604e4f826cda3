//! The xDS server in a simulated network: partitions, restarts, delays, and clients that come and
//! go.
//!
//! The real server with real mutual TLS runs in turmoil: hosts, a network that a test can break,
//! and one virtual clock. The clients are models of Envoy (`proxy.rs`), which assert at all times
//! that every reference resolves. Nothing waits for a real clock.
//!
//! A scenario has a fixed seed for the network and the clients. A failed scenario prints its seed;
//! `SIM_SEED=7` repeats it, and `SIM_RUNS=100` runs that many seeds from there. The order in which
//! `tokio::select!` polls stays random, unless everything is built with `RUSTFLAGS="--cfg
//! tokio_unstable"`.
//!
//! `mesh.rs` has the world of a scenario: servers (hub, listener and a publisher of sets) and
//! proxies (connect, subscribe, answer, keep resources) on hosts that can be restarted.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unchecked_time_subtraction,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod contents;
mod mesh;
mod proxy;
mod random;
mod server;

mod connections;
mod delays;
mod partitions;
mod replicas;
mod restarts;
mod slow;
mod walk;
