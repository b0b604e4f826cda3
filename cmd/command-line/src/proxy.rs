//! The arguments of `ironmesh proxy …`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, value_parser};
use ironmesh_api::ProxyFilter;
use ironmesh_catalog::{DriverName, Locality, ProxyName, ServiceName};
use uuid::Uuid;

use crate::listeners::ListenerArguments;
use crate::token::TokenArguments;
use crate::{ConnectionArguments, WatchArgument};

/// A command of `ironmesh proxy`.
#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    /// Enroll a proxy: write its key, certificate and Envoy bootstrap
    Bootstrap(Box<BootstrapArguments>),
    /// List the enrolled proxies, with their NACKs and findings
    List(ListArguments),
    /// Show one proxy in detail
    Show(ShowArguments),
    /// Take a proxy out of service: callers send it no new requests, and it keeps running
    Cordon(CordonArguments),
    /// Return a cordoned or drained proxy to service
    Uncordon(CordonArguments),
    /// Take a proxy out of service, and drain its machine: its agent ends Envoy when the work is done
    Drain(CordonArguments),
    /// Count the proxies by their versions of Envoy and of the agent, and name those below the minimum
    Versions(VersionsArguments),
    /// Revoke proxies for good: end their streams, remove their endpoints, and let servers refuse their certificates
    Revoke(RevokeArguments),
    /// Create, list and revoke one-time tokens, by which machines enroll with `ironmesh agent join`
    Token(Box<TokenArguments>),
    /// Give a proxy other services, without a new enrollment
    SetServices(SetServicesArguments),
}

/// The arguments of `ironmesh proxy bootstrap`.
#[derive(Debug, Args)]
#[command(override_usage = "\
    ironmesh proxy bootstrap [OPTIONS] --service <NS/NAME> --address <IP> --out <DIR>\n       \
    ironmesh proxy bootstrap --renew <DIR> [--force]")]
pub struct BootstrapArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Serve this service; may be repeated. The proxy calls as the account of the first
    #[arg(long = "service", value_name = "NS/NAME", required_unless_present = "renew")]
    pub services: Vec<ServiceName>,
    /// Name the proxy, for people, such as by its hostname [default: SERVICE-N, with the lowest free number]
    #[arg(long, value_name = "NAME", conflicts_with = "count")]
    pub name: Option<ProxyName>,
    /// Receive mesh traffic at this address; with --count, the first address of consecutive ones
    #[arg(long, value_name = "IP", required_unless_present = "renew")]
    pub address: Option<IpAddr>,
    /// The machine's own listeners.
    #[command(flatten)]
    pub listeners: ListenerArguments,
    /// Match endpoints at this further address, such as the private address behind a NAT; may be repeated
    #[arg(long = "known-as", value_name = "IP", conflicts_with = "count")]
    pub known_as: Vec<IpAddr>,
    /// Match endpoints of the Azure virtual machine with this `vmId`
    #[arg(long, value_name = "UUID", conflicts_with = "count")]
    pub azure_vm_id: Option<Uuid>,
    /// Label its endpoints for selection by policy, such as `version=v2`; may be repeated
    #[arg(long = "label", value_name = "NAME=WORD", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Set its locality, such as `eu/eu-1`, for locality-aware load balancing
    #[arg(long, value_name = "REGION[/ZONE[/SUB-ZONE]]")]
    pub locality: Option<Locality>,
    /// Run this sidecar on the machine, such as `envoy` [default: `sidecar.class` of the control plane's settings]
    #[arg(long, value_name = "CLASS")]
    pub sidecar: Option<DriverName>,
    /// Enroll with a new certificate authority that existing proxies reject (IM0704)
    #[arg(long)]
    pub new_authority: bool,
    /// Write this folder, which must not exist yet
    #[arg(long, value_name = "DIR", required_unless_present = "renew")]
    pub out: Option<PathBuf>,
    /// Enroll this many proxies, each in its own folder below DIR: 0001, 0002 and so on
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MAX_COUNT))]
    pub count: Option<u32>,
    /// Renew the certificate in this folder if that is due, on the proxy's machine; needs no other option
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["services", "name", "address", "known_as", "azure_vm_id", "labels", "locality",
            "sidecar", "new_authority", "out", "count", "ListenerArguments"]
    )]
    pub renew: Option<PathBuf>,
    /// With `--renew`: renew although it is not due yet
    #[arg(long, requires = "renew")]
    pub force: bool,
}

/// The most proxies that one command may enroll: twice the number that one control plane serves.
const MAX_COUNT: i64 = 20_000;

/// The arguments of `ironmesh proxy list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List only the proxies that serve this service
    #[arg(long, value_name = "NS/NAME")]
    pub service: Option<ServiceName>,
    /// List only the proxies in this state
    #[arg(long, value_parser = proxy_states())]
    pub state: Option<ProxyFilter>,
    /// List at most this many proxies
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Whether to watch.
    #[command(flatten)]
    pub watch: WatchArgument,
}

/// The arguments of `ironmesh proxy show`.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Show the proxy with this name, or with this UUID, given in full or by at least 4 unique first characters
    #[arg(value_name = "PROXY", value_parser = name_or_uuid)]
    pub id: String,
    /// Print all resources of the proxy and their sync state as JSON, without private keys
    #[arg(long)]
    pub resources: bool,
}

/// The arguments of `ironmesh proxy revoke`.
#[derive(Debug, Args)]
pub struct RevokeArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Revoke the proxies with these names, or with these UUIDs, given in full or by at least 8 unique first characters:
    /// all of them, or none if one is unknown
    #[arg(value_name = "PROXY", value_parser = name_or_uuid, required = true)]
    pub proxies: Vec<String>,
    /// Store this reason, and return it to the proxies
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print the effects of the revocation, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The arguments of `ironmesh proxy cordon`, `uncordon` and `drain`.
#[derive(Debug, Args)]
pub struct CordonArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Change the proxy with this name, or with this UUID, given in full or by at least 4 unique first characters
    #[arg(value_name = "PROXY", value_parser = name_or_uuid)]
    pub id: String,
    /// Store this reason, and show it wherever the cordon is
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print the effects, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The arguments of `ironmesh proxy versions`.
#[derive(Debug, Args)]
pub struct VersionsArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
}

/// The arguments of `ironmesh proxy set-services`.
#[derive(Debug, Args)]
pub struct SetServicesArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Change the proxy with this name, or with this UUID, given in full or by unique first characters
    #[arg(value_name = "PROXY", value_parser = name_or_uuid)]
    pub id: String,
    /// Serve this service; may be repeated. Services that are not named are removed
    #[arg(long = "service", value_name = "NS/NAME", required = true)]
    pub services: Vec<ServiceName>,
}

/// Parses a state of proxies. `--help` lists all of them.
fn proxy_states() -> impl TypedValueParser<Value = ProxyFilter> {
    PossibleValuesParser::new(ProxyFilter::ALL.map(ProxyFilter::as_str)).try_map(|text| {
        let mut all = ProxyFilter::ALL.into_iter();
        all.find(|state| state.as_str() == text).ok_or("an unknown state")
    })
}

/// Parses a name, or a UUID or a part of one.
fn name_or_uuid(text: &str) -> Result<String, String> {
    // A part of a UUID may end with a hyphen.
    let text = text.to_ascii_lowercase();
    let name = text.trim_end_matches('-').parse::<ProxyName>();
    name.map(|_| text).map_err(|error| format!("neither a name nor a UUID: {error}"))
}

/// Parses `NAME=WORD` of a label. The word may be empty.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, word)) if !name.is_empty() => Ok((name.to_owned(), word.to_owned())),
        _ => Err("expected a name and a value, as in `NAME=WORD`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_argument_requires_a_name_and_an_equals_sign() {
        assert_eq!(label("version=v1=x"), Ok(("version".to_owned(), "v1=x".to_owned())));
        assert_eq!(label("version="), Ok(("version".to_owned(), String::new())));
        assert!(label("version").is_err() && label("=v1").is_err());
    }
}
