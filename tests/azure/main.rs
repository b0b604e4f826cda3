//! The Azure provider with a fake Azure that is as strict as the real one: what it finds, what it asks for that,
//! and what becomes of what is known when Azure fails, lies, or will not be asked.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod budget;
mod credentials;
mod discovery;
mod dry_run;
mod faults;
mod leadership;
mod mesh;
mod meshes;
mod resource_groups;
mod strict;
mod watch;
