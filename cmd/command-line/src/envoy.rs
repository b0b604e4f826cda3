//! The arguments of `ironmesh envoy …`.

use clap::Subcommand;

use crate::agent::AgentConfigArgument;

/// A command of `ironmesh envoy`.
#[derive(Debug, Subcommand)]
pub enum EnvoyCommand {
    /// Run Envoy until SIGTERM or SIGINT: check, start, restart, hot restart and drain it
    ///
    /// SIGHUP reloads, as `ironmesh envoy reload` does. SIGTERM and SIGINT drain Envoy and end it; a second one ends
    /// it at once. The command needs no control plane. It waits until the machine is enrolled.
    Run(AgentConfigArgument),
    /// Replace the running Envoy by a hot restart, after a new binary, bootstrap or setting
    ///
    /// A new Envoy takes over the ports, and the old one finishes its HTTP requests. Established TCP connections go
    /// on until `parent_shutdown_time`, and then end. If the new Envoy fails, the old one serves on, and the command
    /// exits with 1.
    Reload(AgentConfigArgument),
}
