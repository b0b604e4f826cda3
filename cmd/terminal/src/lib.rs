//! How commands write for people: stdout, tables, colors, redrawn pictures, the log of commands that run for long,
//! completions, man pages, and the pages of findings.
//!
//! This crate owns formats alone. It never decides what is written, and parses no arguments.

pub mod color;
pub mod explained;
pub mod journal_table;
pub mod log;
pub mod manual;
pub mod redraw;
pub mod stdout;
pub mod table;
