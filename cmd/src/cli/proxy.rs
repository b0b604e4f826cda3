//! The arguments of `ironmesh proxy …`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, value_parser};
use ironmesh_admin::ProxyFilter;
use ironmesh_catalog::{HostUpstream, Locality, LogFolder, ProxyName, ServiceName, Upstream};
use uuid::Uuid;

use super::ConfigArgument;

/// A command of `ironmesh proxy`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Enroll a proxy: write its key, certificate and Envoy bootstrap
    Bootstrap(Box<BootstrapArguments>),
    /// List the enrolled proxies, with their NACKs and findings
    List(ListArguments),
    /// Show one proxy in detail
    Show(ShowArguments),
    /// Revoke a proxy for good: end its streams, reject it, and remove its endpoints from callers
    Revoke(RevokeArguments),
}

/// The arguments of `ironmesh proxy bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct BootstrapArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Serve this service; may be repeated. The proxy calls as the account of the first
    #[arg(long = "service", value_name = "NS/NAME", required = true)]
    pub(crate) services: Vec<ServiceName>,
    /// Name the proxy, for people, such as by its hostname [default: SERVICE-N, with the lowest free number]
    #[arg(long, value_name = "NAME", conflicts_with = "count")]
    pub(crate) name: Option<ProxyName>,
    /// Receive mesh traffic at this address; with --count, the first address of consecutive ones
    #[arg(long, value_name = "IP")]
    pub(crate) address: IpAddr,
    /// Listen on this address instead of --address
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Option<IpAddr>,
    /// Match endpoints at this further address, such as the private address behind a NAT; may be repeated
    #[arg(long = "known-as", value_name = "IP", conflicts_with = "count")]
    pub(crate) known_as: Vec<IpAddr>,
    /// Match endpoints of the Azure virtual machine with this `vmId`
    #[arg(long, value_name = "UUID", conflicts_with = "count")]
    pub(crate) azure_vm_id: Option<Uuid>,
    /// Forward traffic to applications at this address [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) app_address: Option<IpAddr>,
    /// Offer this service (`NS/NAME` or `NS/NAME:PORT`) or outside host (`api.example.com:443=14443`) on a local
    /// port; may be repeated
    #[arg(long = "upstream", value_name = "NS/NAME=PORT", value_parser = upstream)]
    pub(crate) upstreams: Vec<UpstreamArgument>,
    /// Label its endpoints for selection by policy, such as `version=v2`; may be repeated
    #[arg(long = "label", value_name = "NAME=WORD", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Set its locality, such as `eu/eu-1`, for locality-aware load balancing
    #[arg(long, value_name = "REGION[/ZONE[/SUB-ZONE]]")]
    pub(crate) locality: Option<Locality>,
    /// Write file access logs to this folder on the proxy's machine [default: no file access logs]
    #[arg(long, value_name = "DIR")]
    pub(crate) access_log_dir: Option<LogFolder>,
    /// Open Envoy's admin interface to all local users, on loopback port 15000 [default: `admin.sock`, for Envoy's
    /// user only]
    #[arg(long)]
    pub(crate) admin_tcp: bool,
    /// Enroll with a new certificate authority that existing proxies reject (IM0704)
    #[arg(long)]
    pub(crate) new_authority: bool,
    /// Write this folder, which must not exist yet
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Enroll this many proxies, each in its own folder below DIR: 0001, 0002 and so on
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MAX_COUNT))]
    pub(crate) count: Option<u32>,
}

/// The most proxies that one command may enroll: twice the number that one control plane serves.
const MAX_COUNT: i64 = 20_000;

/// The arguments of `ironmesh proxy list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// List only the proxies that serve this service
    #[arg(long, value_name = "NS/NAME")]
    pub(crate) service: Option<ServiceName>,
    /// List only the proxies in this state
    #[arg(long, value_parser = proxy_states())]
    pub(crate) state: Option<ProxyFilter>,
    /// List at most this many proxies
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
}

/// The arguments of `ironmesh proxy show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Show the proxy with this name, or with this UUID, given in full or by at least 4 unique first characters
    #[arg(value_name = "PROXY", value_parser = name_or_uuid)]
    pub(crate) id: String,
    /// Print all resources of the proxy and their sync state as JSON, without private keys
    #[arg(long)]
    pub(crate) resources: bool,
}

/// The arguments of `ironmesh proxy revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Revoke the proxy with this name, or with this UUID, given in full or by at least 8 unique first characters
    #[arg(value_name = "PROXY", value_parser = name_or_uuid)]
    pub(crate) id: String,
    /// Store this reason, and return it to the proxy
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
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
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, word)) if !name.is_empty() => Ok((name.to_owned(), word.to_owned())),
        _ => Err("expected a name and a value, as in `NAME=WORD`".to_owned()),
    }
}

/// The value of one `--upstream`: the target of a local port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpstreamArgument {
    /// A service.
    Service(Upstream),
    /// A host outside the mesh.
    Host(HostUpstream),
}

impl UpstreamArgument {
    /// The local port.
    pub(crate) fn local_port(&self) -> u16 {
        match self {
            Self::Service(upstream) => upstream.local_port,
            Self::Host(upstream) => upstream.local_port,
        }
    }
}

/// Writes the target as on the command line.
impl fmt::Display for UpstreamArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(Upstream { service, port: Some(port), .. }) => {
                write!(f, "{service}:{port}")
            }
            Self::Service(Upstream { service, .. }) => write!(f, "{service}"),
            Self::Host(host) => f.write_str(&host.authority()),
        }
    }
}

/// Parses `NS/NAME=PORT`, `NS/NAME:PORT=PORT` or `HOST:PORT=PORT`. Service names have no dots; hosts and
/// addresses have dots or are in brackets.
fn upstream(text: &str) -> Result<UpstreamArgument, String> {
    let target = text.split_once('=').map_or(text, |(target, _)| target);
    if target.contains('.') || target.starts_with('[') {
        let host = text.parse().map(UpstreamArgument::Host);
        return host.map_err(|error: ironmesh_catalog::InvalidName| error.to_string());
    }
    service(text).map(UpstreamArgument::Service)
}

fn service(text: &str) -> Result<Upstream, String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("not a port: `{text}`")),
    };
    let (service, local_port) = text.split_once('=').ok_or("expected `NS/NAME=PORT`")?;
    let (service, number) = match service.split_once(':') {
        Some((service, number)) => (service, Some(port(number)?)),
        None => (service, None),
    };
    let service =
        service.parse().map_err(|error: ironmesh_catalog::InvalidName| error.to_string())?;
    Ok(Upstream { service, port: number, local_port: port(local_port)? })
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

    #[test]
    fn upstream_argument_parses_service_or_host_and_local_port() {
        let parsed = service("shop/bookstore=14001").unwrap();
        assert_eq!(
            (parsed.service.to_string(), parsed.port, parsed.local_port),
            ("shop/bookstore".to_owned(), None, 14001)
        );
        assert_eq!(service("bookstore:80=14001").unwrap().port, Some(80));
        let host = upstream("api.example.com:443=14443").unwrap();
        assert!(
            matches!(host, UpstreamArgument::Host(host) if host.authority() == "api.example.com:443")
        );
        for bad in ["bookstore", "bookstore=", "bookstore=0", "bookstore=70000", "Book=1", "a:b=1"]
        {
            assert!(upstream(bad).is_err(), "{bad}");
        }
    }
}
