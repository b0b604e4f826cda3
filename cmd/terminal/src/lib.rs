//! How commands write for people: tables, colors, and the log of commands that run for long.
//!
//! This crate owns formats alone. It never decides what is written, and parses no arguments.

pub mod color;
pub mod log;
pub mod table;
