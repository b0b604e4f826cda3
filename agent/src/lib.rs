//! The agent: what runs on the machine of a proxy. It enrolls the machine, renews its certificate, serves service
//! certificates to Envoy, and reports its status.
//!
//! This crate owns the order of these steps, and the files of an enrolled proxy from then on: it makes the key
//! before it sends the token, decides when a renewal is due, and replaces the certificate and the roots so that a
//! running Envoy reloads them. It never sends a key, trusts no control plane that it has not verified, starts and stops
//! no Envoy, and needs no right of an operator.
//!
//! ```text
//! join:   NewFolder ─► PendingKey ─► EnrollmentClient ─► files of the proxy ─► folder appears
//! renew:  MachineFolder (locked) ─► due? ─► EnrollmentClient ─► files replaced ─► Envoy reloads them
//! run:    AgentLock ─► join until enrolled ─► renew whenever due;  socket: activity, metrics
//!                                          └► service certificates ─► SDS socket ─► Envoy
//! status: files + agent socket + Envoy's admin socket ─► MachineStatus
//! ```
//!
//! Start reading at [`join`], [`renew`], [`run`] and [`MachineStatus`].

mod activity;
mod certificates;
mod control_plane;
mod drain;
mod due;
mod error;
mod health;
mod join;
mod leave;
mod listeners;
mod lock;
mod machine_folder;
mod mesh_check;
mod metrics;
mod pending_key;
mod renew;
mod run;
mod serving;
mod settings;
mod socket;
mod status;
mod supervised;
#[cfg(test)]
mod tests;
mod traffic;

pub use activity::{
    AgentActivity, AgentFailure, AgentPhase, ClosedPort, ProbeActivity, ServiceCertificateActivity,
};
pub use control_plane::ProxyControlPlane;
pub use due::due_at;
pub use error::AgentError;
pub use join::{EnrolledMachine, JoinProof, MachineJoin, join};
pub use leave::{EnvoyEnd, leave_mesh};
pub use listeners::{DuplicateLocalPort, ListenerSettings, UpstreamTarget};
pub use renew::{RenewOutcome, RenewWhen, renew};
pub use run::run;
pub use settings::{AgentSettings, SETTINGS_FILE};
pub use status::{EnvoyReport, MachineStatus, ProxyCertificateReport, ServiceCertificateReport};
pub use supervised::run_envoy;
