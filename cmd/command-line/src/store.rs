//! The arguments of `ironmesh store …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{ConfigArgument, ConnectionArguments};

/// A command of `ironmesh store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Create the key-encryption key, and the store of a new mesh in etcd, unless they exist
    ///
    /// With an embedded store it copies the key that the state folder has from an earlier start, or creates one for a
    /// state that does not exist yet. With a store in etcd, run it once for the mesh, and copy the key to each of its
    /// control planes. It never replaces a key or a store.
    Init(StoreInitArguments),
    /// Write the whole mesh into a new file, sealed with its key-encryption key
    ///
    /// The file has the authority, tokens, join records, revocations, certificates, journal and retained policies of one
    /// moment; what changes later is not in it. To move a mesh, stop its control planes first and use `--offline`: proxies
    /// keep running meanwhile. Then run `ironmesh store import` with the settings of the new store.
    ///
    /// Example: `ironmesh store export --offline mesh.export`
    Export(StoreExportArguments),
    /// Read a mesh from an export into the store of the settings, which must not exist yet
    ///
    /// The control plane must be stopped, and the settings must name the key-encryption key of the exported mesh. A file
    /// that is not whole, changed, or sealed with a different key is rejected before anything is written. An import that
    /// was interrupted can be repeated.
    ///
    /// Example: `ironmesh store import mesh.export --config etcd.toml`
    Import(StoreImportArguments),
}

/// The arguments of `ironmesh store export`.
#[derive(Debug, Args)]
pub struct StoreExportArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// The file, which must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Open the store directly, while no control plane runs with this state folder
    #[arg(long)]
    pub offline: bool,
}

/// The arguments of `ironmesh store import`.
#[derive(Debug, Args)]
pub struct StoreImportArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// The file that `ironmesh store export` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The arguments of `ironmesh store init`.
#[derive(Debug, Args)]
pub struct StoreInitArguments {
    /// The settings file.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Write the key to this file, for its owner alone [default with a store in etcd: that of the settings]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}
