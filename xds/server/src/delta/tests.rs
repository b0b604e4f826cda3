//! The delta stream against the rules of the protocol, one test per rule.
//!
//! R1 to R64 and "rule 1" to "rule 10" are those of docs/reference/xds-rules.md, and docs/conformance.md
//! says which tests hold which.

mod answers;
mod client;
mod convergence;
mod limits;
mod order;
mod reconnect;
mod subscriptions;
mod warming;
