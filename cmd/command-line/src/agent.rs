//! The arguments of `ironmesh agent …`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use ironmesh_agent::SETTINGS_FILE;
use ironmesh_catalog::ProxyName;
use ironmesh_enrollment::{CaHash, ControlPlaneAddress, MetadataService};

use crate::listeners::ListenerArguments;

/// A command of `ironmesh agent`.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Enroll this machine: write its key, certificate and Envoy bootstrap
    ///
    /// The key is made on this machine and never leaves it. `ironmesh proxy token` prints a one-time token, the CA hash
    /// and this command. A machine in Azure that policy lets join needs no token (`--azure`). If the response of the control plane is lost, repeat the command within 5 minutes.
    Join(Box<JoinArguments>),
    /// Run the agent: enroll this machine if it is not enrolled, and renew its certificate
    ///
    /// The settings are in agent.toml. The join token comes from its `token_file`, or from the systemd credential
    /// `join-token`; with `join = "azure"`, Azure attests the machine. A control plane that cannot be reached, or a rejected token, does not end the agent.
    Run(AgentConfigArgument),
    /// Leave the mesh for good: drain and end Envoy, then revoke the proxy
    ///
    /// The machine needs a new token to join again, or in Azure a reimage. To stop it for a while, stop `ironmesh envoy run` instead.
    Leave(AgentConfigArgument),
    /// Show the certificate, the Envoy and the agent of this machine, problems first
    ///
    /// Needs no running agent. Exits with 0 if there are no problems, otherwise with 1.
    Status(AgentConfigArgument),
}

/// The flag that names the settings file of the machine.
#[derive(Debug, Args)]
pub struct AgentConfigArgument {
    /// Read settings from this file
    #[arg(long, value_name = "FILE", env = "IRONMESH_AGENT_CONFIG", default_value = SETTINGS_FILE)]
    pub config: PathBuf,
}

/// The arguments of `ironmesh agent join`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("proof").args(["token_file", "azure"]).required(true))]
pub struct JoinArguments {
    /// Enroll with the control plane at this address; further replicas may follow. The default port is 15129
    #[arg(value_name = "https://HOST:PORT", required = true)]
    pub control_plane: Vec<ControlPlaneAddress>,
    /// Read the token from this file, or from stdin if it is `-`
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Prove by Azure's attested document which machine this is, instead of by a token
    #[arg(long)]
    pub azure: bool,
    /// For tests: a stand-in of Azure's metadata service on this machine
    #[arg(long, value_name = "URL", requires = "azure", hide = true)]
    pub azure_metadata: Option<MetadataService>,
    /// Trust the control plane whose CA has this hash; may be repeated while the CA is rotated
    #[arg(long = "ca-hash", value_name = "sha256:HEX", required = true)]
    pub ca_hashes: Vec<CaHash>,
    /// Write this folder, which must not exist yet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Receive mesh traffic at this address, which the token must allow or Azure must show [default: the address from which the control
    /// plane sees this machine]
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Name the proxy, for display [default: SERVICE-N]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ProxyName>,
    /// The machine's own listeners.
    #[command(flatten)]
    pub listeners: ListenerArguments,
}
