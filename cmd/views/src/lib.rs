//! What answers of the control plane look like for people: tables, details, the status, plans.
//!
//! It owns these texts. It has no IO: it takes an answer and the current time, and returns text.

pub mod access;
pub mod certificates;
pub mod configuration;
pub mod cordons;
pub mod endpoints;
pub mod events;
pub mod findings;
pub mod log_level;
pub mod operators;
pub mod plan;
pub mod proxies;
pub mod revocation;
pub mod services;
pub mod sessions;
pub mod status;
pub mod tokens;
pub mod versions;
