//! The command line as an operator meets it: what it prints, where, and with which exit code.

#![expect(clippy::unwrap_used, reason = "test code")]

mod check;
mod command;
mod serve;
