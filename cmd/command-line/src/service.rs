//! The arguments of `ironmesh service`, and of `ironmesh policy access` and `policy show`.

use clap::{Args, Subcommand};
use ironmesh_catalog::{Name, ServiceName};

use crate::{ConnectionArguments, WatchArgument};

/// A command of `ironmesh service`.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// List the services of policy: their ports, mode and endpoints
    List(ServiceListArguments),
    /// Show one service: its ports, account, traffic splits, endpoints and callers
    Show(ServiceShowArguments),
}

/// The arguments of `ironmesh service list`.
#[derive(Debug, Args)]
pub struct ServiceListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List only the services of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Name>,
    /// Whether to watch.
    #[command(flatten)]
    pub watch: WatchArgument,
}

/// The arguments of `ironmesh service show`.
#[derive(Debug, Args)]
pub struct ServiceShowArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Show this service
    #[arg(value_name = "NS/NAME")]
    pub service: ServiceName,
}

/// The arguments of `ironmesh policy show`.
#[derive(Debug, Args)]
pub struct PolicyShowArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Print the documents of this stored revision, or of one that begins so [default: the active one]
    #[arg(value_name = "REVISION")]
    pub revision: Option<String>,
}

/// The arguments of `ironmesh policy access`.
#[derive(Debug, Args)]
pub struct AccessArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Show only the access to services of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Name>,
}
