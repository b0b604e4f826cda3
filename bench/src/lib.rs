//! The load generator: many simulated Envoys in one process, and what they measure of a control
//! plane.
//!
//! It owns how an Envoy asks and answers ([`Fleet`]), the floor that everything is compared with
//! ([`floor`]), and the runner that starts a real `ironmesh serve` and measures it ([`run`]). It
//! knows the control plane as an operator does: by its commands, files and ports. It ends only what
//! it started, talks to loopback addresses unless it is pointed elsewhere, and is bounded in time.
//!
//! ```text
//! Shape ─► Subject (ironmesh serve) ◄── Fleet ──► Floor (a process of its own)
//!                     └──── run: series of changes, storms ────┘
//!                                       ▼
//!                                     Report
//! ```

mod client;
mod consul;
mod envoy;
mod fleet;
pub mod floor;
mod identity;
mod library;
mod measure;
mod messages;
mod node;
mod process;
mod references;
pub mod report;
pub mod run;
mod shape;
mod subject;
mod totals;

pub use client::Faults;
pub use consul::Catalog;
pub use envoy::{AckDelay, Holdings};
pub use fleet::Fleet;
pub use identity::{Identity, folders};
pub use library::Known;
pub use messages::Variant;
pub use process::allow_connections;
pub use shape::Shape;
pub use totals::{Arrival, Counts, Watch};
