//! Faults by a random schedule, on three machines with a member of etcd and a control plane each.
//!
//! The machines are network namespaces on a bridge (`network.rs`). A fourth one has the proxies: two real Envoys under
//! load and many simulated ones. Operators and machines change the mesh all the time (`operators.rs`), and the history of
//! their calls must be linearizable (`history.rs`). A seed decides the schedule (`schedule.rs`); which call meets which
//! fault is up to the machine.
//!
//! `CHAOS_SEED=7` repeats a schedule, `CHAOS_SECONDS=1800` sets its length, `CHAOS_PROXIES=100` the number of simulated
//! proxies. With `CHAOS_PREDECESSOR=PROGRAM`, control planes are of that version of `ironmesh` until the schedule upgrades
//! them. It needs root.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unchecked_time_subtraction,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod faults;
mod history;
mod machines;
mod network;
mod operators;
mod relay;
mod run;
mod schedule;
mod usage;
