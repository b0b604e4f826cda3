//! How commands write for people: tables, colors, the log of commands that run for long, completions and man pages.
//!
//! This crate owns formats alone. It never decides what is written, and parses no arguments.

pub mod color;
pub mod log;
pub mod manual;
pub mod table;
