//! The options that the command line passes to the demo.

use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Zoned;

use crate::program::DemoEnvoyVersion;

/// The mode of the demo, and the facts about its environment.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Whether the demo runs live or as a check.
    pub mode: DemoMode,
    /// The format of results.
    pub output: DemoOutput,
    /// Whether colors are disabled even on a terminal.
    pub is_colorless: bool,
    /// Whether stdout is a terminal on which a picture can replace the previous one.
    pub is_screen: bool,
    /// The executable `ironmesh`.
    pub ironmesh: PathBuf,
    /// Its hidden subcommand that calls [`tether::become_program`](crate::tether::become_program).
    pub tether: &'static str,
    /// Its hidden subcommand that calls [`caretaker::run`](crate::caretaker::run).
    pub caretaker: &'static str,
    /// The Envoy that the environment names, if any.
    pub envoy: Option<PathBuf>,
    /// The search path for programs: the environment's `PATH`.
    pub search_path: OsString,
    /// The oldest Envoy that the control plane accepts.
    pub oldest_envoy: DemoEnvoyVersion,
    /// The folder for temporary files, in which the demo creates its working folder.
    pub temporary: PathBuf,
    /// The clock.
    pub now: fn() -> Zoned,
}

/// The mode of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoMode {
    /// Runs until a signal ends it, and shows what happens.
    Live,
    /// Plays the whole story, and fails unless each step is verified.
    Check,
}

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoOutput {
    /// Lines or a picture for people.
    Text,
    /// JSON for scripts.
    Json,
}
