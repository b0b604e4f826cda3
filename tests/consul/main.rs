//! The Consul provider with real Consuls: what it finds, and what becomes of that when they die, forget, lie or
//! deny.

#![expect(clippy::unwrap_used, reason = "test code: a panic is a failed test")]

mod agents;
mod answers;
mod cluster;
mod example;
mod joined;
mod liar;
mod tokens;
mod watching;
