//! `ironmesh demo` as people run it: what it shows, what ends it, and that nothing of it is left.
//!
//! The tests know it as a user does: by its command line, its output, its files and `/proc`. A demo
//! has five Envoys, so one test runs at a time; [`workspace::Workspace`] sees to that.

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
