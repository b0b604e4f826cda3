//! The arguments of `ironmesh store …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConfigArgument;

/// A command of `ironmesh store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Create the key-encryption key, and the store of a new mesh in etcd, unless they exist
    ///
    /// With an embedded store it copies the key that the state folder has from an earlier start, or creates one for a
    /// state that does not exist yet. With a store in etcd, run it once for the mesh, and copy the key to each of its
    /// control planes. It never replaces a key or a store.
    Init(StoreInitArguments),
}

/// The arguments of `ironmesh store init`.
#[derive(Debug, Args)]
pub(crate) struct StoreInitArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Write the key to this file, for its owner alone [default with a store in etcd: that of the settings]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}
