//! The arguments of `ironmesh log`.

use std::time::Duration;

use clap::{Args, Subcommand};
use ironmesh_catalog::LogDirectives;

use crate::ConnectionArguments;
use crate::duration::log_level_length;

/// A command of `ironmesh log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Show the level of the control plane's log, or change it for a while
    ///
    /// A change ends by itself: the log returns to the level of the settings (`log.level`), or of RUST_LOG, which replaces it.
    /// To end a change early, set the configured level. With several control planes, each has a level of its own.
    Level(LogLevelArguments),
}

/// The arguments of `ironmesh log level`.
#[derive(Debug, Args)]
pub struct LogLevelArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Set this level, such as `debug`, or levels of targets too, such as `info,ironmesh_xds_server=debug` [default: show the
    /// level]
    #[arg(value_name = "LEVEL")]
    pub level: Option<LogDirectives>,
    /// End the change after this time, at most 24 hours [default: 10m]
    #[arg(long = "for", value_name = "TIME", value_parser = log_level_length, requires = "level")]
    pub length: Option<Duration>,
}
