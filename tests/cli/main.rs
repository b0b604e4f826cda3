//! The command line as an operator meets it: what it prints, where, and with which exit code.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod bench;
mod bootstrap;
mod check;
mod codes;
mod command;
mod explain;
mod first_start;
mod many;
mod metrics;
mod open_files;
mod permissions;
mod plan;
mod proxies;
mod serve;
mod server;
mod storms;
