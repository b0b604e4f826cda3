//! The engine in a simulated network: partitions, restarts, delays, and clients that come and go.
//!
//! What runs is the real engine with real mutual TLS, in turmoil: hosts with a network between them
//! that a test can break, and one virtual clock. The clients are models of Envoy (`proxy.rs`), which
//! assert at all times that nothing refers to what they were not offered. Nothing waits for a real clock.
//!
//! A story runs with a fixed seed, which decides about the network and about the clients. One that
//! fails says its seed; `SIM_SEED=7` runs that one, and `SIM_RUNS=100` so many from there on. (The order
//! in which `tokio::select!` looks at what is ready is chance all the same, unless everything is built
//! with `RUSTFLAGS="--cfg tokio_unstable"`.)
//!
//! ```text
//! a story → Mesh → Server: Hub, listener, a publisher of sets    (a host, can be restarted)
//!                  Proxy: connects, subscribes, answers, keeps   (a host, can be restarted)
//! ```

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
