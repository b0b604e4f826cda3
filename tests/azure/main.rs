//! The Azure provider with a fake Azure as strict as the real one: discovery, the number of
//! requests, and its behaviour when Azure fails, gives wrong answers or denies access.

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
mod guide;
mod join;
mod leadership;
mod machines;
mod mesh;
mod meshes;
mod resource_groups;
mod strict;
mod watch;
