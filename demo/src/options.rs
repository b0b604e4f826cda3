//! What the demo is told by the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Zoned;

use crate::program::EnvoyVersion;

/// How the demo runs, and what it needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether it is shown, or checks itself.
    pub mode: Mode,
    /// How results are printed.
    pub output: Output,
    /// Whether colours are unwanted, even on a terminal.
    pub is_colourless: bool,
    /// Whether stdout is a terminal on which a picture can replace the one before.
    pub is_screen: bool,
    /// The executable `ironmesh`.
    pub ironmesh: PathBuf,
    /// Its hidden subcommand that calls [`tether::become_program`](crate::tether::become_program).
    pub tether: &'static str,
    /// Its hidden subcommand that calls [`caretaker::run`](crate::caretaker::run).
    pub caretaker: &'static str,
    /// The Envoy that the environment names, if it names one.
    pub envoy: Option<PathBuf>,
    /// Where programs are looked for: the environment's `PATH`.
    pub search_path: OsString,
    /// The oldest Envoy that the control plane lets in.
    pub oldest_envoy: EnvoyVersion,
    /// The folder for temporary files, in which the working folder is made.
    pub temporary: PathBuf,
    /// What time it is.
    pub now: fn() -> Zoned,
}

/// What the demo does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It runs until it is told to end, and shows what happens.
    Live,
    /// It tells the whole story by itself, and fails unless each step was seen.
    Check,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Text,
    /// For machines.
    Json,
}
