//! The load generator: it measures a control plane with many simulated Envoys in one process.
//!
//! It owns the simulated Envoys ([`Fleet`]), the reference server that all figures are compared with ([`floor`]), and
//! the runner that starts and measures a real `ironmesh serve` ([`run`]). It uses the control plane only as an operator
//! does: by its commands, files, ports and admin API. It ends only processes that it started, connects only to loopback
//! addresses unless told otherwise, and bounds the time of each step.
//!
//! ```text
//! Shape ─► MeasuredControlPlane (ironmesh serve) ◄── Fleet ──► Floor (a separate process)
//!                     └──── run: series of changes, storms ────┘
//!                                       ▼
//!                                     Report
//! ```

mod client;
mod consul;
mod envoy;
mod etcd;
mod fleet;
pub mod floor;
pub mod growth;
mod identity;
mod library;
mod measure;
mod measured_control_plane;
mod messages;
mod node;
pub mod noise;
pub mod plots;
mod process;
mod recording;
mod references;
pub mod report;
pub mod run;
mod shape;
mod target;
mod totals;

pub use client::Faults;
pub use consul::Catalog;
pub use envoy::{AckDelay, Holdings};
pub use fleet::Fleet;
pub use identity::{Identity, folders};
pub use library::ResourceContent;
pub use messages::Variant;
pub use process::allow_connections;
pub use shape::Shape;
pub use target::CONTRACT;
pub use totals::{Arrival, Counts, Watch};
