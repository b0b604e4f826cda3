//! Sidecar drivers: the setup of a proxy on its machine.
//!
//! This crate owns the bootstrap, which is written before a proxy connects. It runs nothing and sees no key. Envoy is the
//! only driver so far; a second one would justify a common trait.

pub mod envoy;
pub mod ports;
