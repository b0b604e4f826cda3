//! The mesh on real systemd hosts: units, reboots, power losses and cut networks.
//!
//! Each test boots a [`fleet::Fleet`] of its own: containers with systemd, on a network apart from this machine's.
//! They need root, and the Debian system that `scripts/get-debian.sh` builds.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod agents;
mod ansible;
mod bookstore;
mod fleet;
mod guest;
mod guide;
mod joining;
mod leftovers;
mod load;
mod network;
mod outage;
mod packages;
mod power;
mod skew;
