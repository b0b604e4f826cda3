//! The supervisor of Envoy: the parent process of all Envoys of one proxy folder.
//!
//! This crate owns Envoy's processes: it checks the binary and the bootstrap, starts and restarts Envoy, replaces it by
//! hot restarts, and drains and stops it. It knows no control plane and
//! reads no key: the caller passes in the plan of what to run and the leave request.
//!
//! ```text
//! EnvoyPlan ─► check (binary, version, validation) ─► epoch 0 ─► epoch 1 ─► …     supervisor.sock: SupervisorClient
//!                                                        └─ drained and stopped on SIGTERM
//! ```
//!
//! Start reading at [`supervise`].

mod backoff;
mod base_id;
mod check;
mod client;
mod elf;
mod envoy_admin;
mod error;
pub mod local_http;
mod lock;
mod notify;
mod plan;
mod process;
mod progress;
mod release;
mod run;
mod server;
mod shared_memory;
mod signals;
mod status;
mod supervisor;

pub use client::{ReloadEvents, SupervisorClient, SupervisorClientError};
pub use error::{CheckError, SupervisorError};
pub use notify::Notifier;
pub use plan::{BoxError, EnvoyPlan, LeaveCall, LeaveOutcome, PlanFiles, PlanSource};
pub use progress::ReloadProgress;
pub use status::{EnvoyEpoch, EnvoyState, PreviousEpoch, SupervisorStatus};
pub use supervisor::{SupervisorOptions, supervise};
