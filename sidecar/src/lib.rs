//! Sidecar drivers: how a proxy of a certain make is set up on its machine.
//!
//! This crate owns what is written for a proxy before it ever connects: its bootstrap. It runs
//! nothing and sees no key. Envoy is the only make so far; what drivers have in common becomes a
//! trait when there is a second one.

pub mod envoy;
pub mod ports;
