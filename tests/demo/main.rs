//! `ironmesh demo` as users run it: its output, its ends, and that it leaves nothing.
//!
//! The tests use only its command line, its output, its files and `/proc`. A demo has five Envoys,
//! so one test runs at a time; [`workspace::Workspace`] ensures that.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is a failed test"
)]

mod endings;
mod live;
mod neighbours;
mod parts;
mod preconditions;
mod screen;
mod story;
mod terminal;
mod workspace;
