//! The arguments of `ironmesh store …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConfigArgument;

/// A command of `ironmesh store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Create the key-encryption key outside the state folder, unless it exists
    ///
    /// Copies the key that the state folder has from an earlier start, or creates one for a state that does not exist
    /// yet. It never replaces a key.
    Init(StoreInitArguments),
}

/// The arguments of `ironmesh store init`.
#[derive(Debug, Args)]
pub(crate) struct StoreInitArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Write the key to this file, for its owner alone
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: PathBuf,
}
