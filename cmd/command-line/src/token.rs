//! The arguments of `ironmesh proxy token`.

use std::net::IpAddr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand, value_parser};
use ironmesh_catalog::{DriverName, IpRange, Locality, ServiceName, TokenState};
use uuid::Uuid;

use crate::ConnectionArguments;
use crate::duration::token_lifetime;
use crate::proxy::label;

/// The arguments of `ironmesh proxy token`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct TokenArguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Option<TokenCommand>,
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Let the proxy serve this service; may be repeated. The proxy calls as the account of the first
    #[arg(long = "service", value_name = "NS/NAME", required = true)]
    pub services: Vec<ServiceName>,
    /// Label its endpoints for selection by policy, such as `version=v2`; may be repeated
    #[arg(long = "label", value_name = "NAME=WORD", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Set its locality, such as `eu/eu-1`, for locality-aware load balancing
    #[arg(long, value_name = "REGION[/ZONE[/SUB-ZONE]]")]
    pub locality: Option<Locality>,
    /// Match endpoints at this further address, such as the private address behind a NAT; may be repeated
    #[arg(long = "known-as", value_name = "IP", conflicts_with = "count")]
    pub known_as: Vec<IpAddr>,
    /// Match endpoints of the Azure virtual machine with this `vmId`
    #[arg(long, value_name = "UUID", conflicts_with = "count")]
    pub azure_vm_id: Option<Uuid>,
    /// Allow only machines that connect from this range, such as `10.0.0.0/16`, and proxies with an address in it
    /// [default: any address]
    #[arg(long, value_name = "CIDR")]
    pub address: Option<IpRange>,
    /// Run this sidecar on the machine, such as `envoy` [default: `sidecar.class` of the control plane's settings]
    #[arg(long, value_name = "CLASS")]
    pub sidecar: Option<DriverName>,
    /// Create it although all connected proxies reject the certificate authority, which is known to be new
    #[arg(long)]
    pub new_authority: bool,
    /// Expire after this time, such as `12h` or `7d`, which is the most
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = token_lifetime)]
    pub ttl: Duration,
    /// Create this many tokens, each for one machine
    #[arg(long, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..=1000))]
    pub count: u32,
}

/// A command of `ironmesh proxy token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List the tokens, and the proxies that they enrolled
    List(TokenListArguments),
    /// Revoke a token: no machine can enroll by it any more
    ///
    /// The proxy that it enrolled, if any, keeps its certificate: see `ironmesh proxy revoke`.
    Revoke(TokenRevokeArguments),
}

/// The arguments of `ironmesh proxy token list`.
#[derive(Debug, Args)]
pub struct TokenListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List only the tokens for this service
    #[arg(long, value_name = "NS/NAME")]
    pub service: Option<ServiceName>,
    /// List only the tokens in this state
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(TokenState::ALL.map(TokenState::word))
            .try_map(|word| word.parse::<TokenState>())
    )]
    pub state: Option<TokenState>,
}

/// The arguments of `ironmesh proxy token revoke`.
#[derive(Debug, Args)]
pub struct TokenRevokeArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Revoke the token with this id, the 16 digits after `imt1_`, given in full or by at least 8 unique first ones
    // A text: an error of the parser would repeat a whole token.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Store this reason
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}
