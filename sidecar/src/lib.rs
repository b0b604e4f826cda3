//! Sidecar drivers: what runs beside the applications of a machine, and how it is set up.
//!
//! This crate owns the machine's half of the seam: from a [`Workload`], what the control plane enrolled, a
//! [`SidecarDriver`] makes a [`Patch`], what the machine needs. It also owns the ports of a machine. It runs nothing,
//! does no IO and sees no key. docs/decisions/0065 describes both halves.
//!
//! ```text
//! Workload + DriverSettings + overlay ──► SidecarDriver::patch ──► Patch: files, process, environment
//! ```

mod driver;
pub mod envoy;
mod patch;
pub mod ports;
mod program_version;
mod registry;
mod workload;

pub use driver::{DRIVERS, DriverSettings, SidecarDriver};
pub use patch::{
    File, InterceptionRule, Patch, PatchError, ProcessCommand, SidecarProcess, Validation,
};
pub use program_version::{InvalidProgramVersion, ProgramVersion};
pub use registry::{Registry, UnknownDriver};
pub use workload::{Admin, Workload};
