//! The agent: what runs on the machine of a proxy. It enrolls the machine and renews its certificate.
//!
//! This crate owns the order of these steps, and the files of an enrolled proxy from then on: it makes the key
//! before it sends the token, decides when a renewal is due, and replaces the certificate and the roots so that a
//! running Envoy reloads them. It never sends a key, trusts no control plane that it has not verified, reads no
//! clock, and needs no right of an operator.
//!
//! ```text
//! join:   NewFolder ─► PendingKey ─► EnrollmentClient ─► files of the proxy ─► folder appears
//! renew:  MachineFolder (locked) ─► due? ─► EnrollmentClient ─► files replaced ─► Envoy reloads them
//! ```
//!
//! Start reading at [`join`] and [`renew`].

mod due;
mod error;
mod join;
mod machine_folder;
mod pending_key;
mod renew;
mod settings;
#[cfg(test)]
mod tests;

pub use due::due_at;
pub use error::AgentError;
pub use join::{EnrolledMachine, MachineJoin, join};
pub use renew::{RenewOutcome, RenewWhen, renew};
pub use settings::{AGENT_SETTINGS, AgentSettings, AgentSettingsError, EnvoySection};
