//! The arguments of `ironmesh proxy …`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use ironmesh_catalog::{HostUpstream, Locality, LogFolder, ServiceName, Upstream};
use uuid::Uuid;

use super::ConfigArgument;

#[derive(Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Enroll a proxy: write its key, certificate and Envoy bootstrap
    Bootstrap(Box<BootstrapArguments>),
    /// List the proxies that have joined
    List(ListArguments),
    /// Tell all that is known of one proxy
    Show(ShowArguments),
    /// Shut a proxy out for good: its streams end, nobody calls it any more, and it is not let in again
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BootstrapArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// A service that the proxy serves; the first is who it is when it calls others
    #[arg(long = "service", value_name = "NS/NAME", required = true)]
    pub(crate) services: Vec<ServiceName>,
    /// The address at which other proxies reach it; with --count that of the first, from which the
    /// others count up
    #[arg(long, value_name = "IP")]
    pub(crate) address: IpAddr,
    /// The address on which it listens, where that is another
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Option<IpAddr>,
    /// An address by which providers know its machine, where that is another: its own behind a NAT, say
    #[arg(long = "known-as", value_name = "IP", conflicts_with = "count")]
    pub(crate) known_as: Vec<IpAddr>,
    /// The `vmId` of its machine in Azure, by which endpoints found there are tied to it
    #[arg(long, value_name = "UUID", conflicts_with = "count")]
    pub(crate) azure_vm_id: Option<Uuid>,
    /// The address on which its applications listen [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) app_address: Option<IpAddr>,
    /// A service that its applications call by a local port; `NS/NAME:PORT` for one port of several.
    /// Or a host or an address outside of the mesh, with its port: `api.example.com:443=14443`
    #[arg(long = "upstream", value_name = "NS/NAME=PORT", value_parser = upstream)]
    pub(crate) upstreams: Vec<Declared>,
    /// Something to say of its endpoints, by which policy may select: the version that they run, say
    #[arg(long = "label", value_name = "NAME=WORD", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Where it is, by which calls may go to who is near: `eu/eu-1`, or a part of that
    #[arg(long, value_name = "REGION[/ZONE[/SUB-ZONE]]")]
    pub(crate) locality: Option<Locality>,
    /// Folder on the proxy's machine for access logs. Without it, the proxy writes no file access logs
    #[arg(long, value_name = "DIR")]
    pub(crate) access_log_dir: Option<LogFolder>,
    /// Put Envoy's admin interface on port 15000 of a loopback address, for every user of its machine;
    /// without it, it is the socket `admin.sock` in the folder, for Envoy's own user
    #[arg(long)]
    pub(crate) admin_tcp: bool,
    /// Enroll with a new certification authority that existing clients reject (IM0704)
    #[arg(long)]
    pub(crate) new_authority: bool,
    /// The folder to write, which must not be there yet
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Let in this many proxies, each with a folder of its own in DIR: 0001, 0002 and so on
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MAX_COUNT))]
    pub(crate) count: Option<u32>,
}

/// How many proxies may be let in at once: twice what one control plane is to serve.
const MAX_COUNT: i64 = 20_000;

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The UUID of the proxy, or its first 4 characters or more, if no other UUID begins with them
    #[arg(value_name = "UUID", value_parser = uuid_or_part)]
    pub(crate) id: String,
    /// Print all resources of the proxy as JSON, with the state of each; without private keys
    #[arg(long)]
    pub(crate) resources: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// The UUID of the proxy, or its first 8 characters or more, if no other UUID begins with them
    #[arg(value_name = "UUID", value_parser = uuid_or_part)]
    pub(crate) id: String,
    /// Why: kept, and told to the proxy and to whoever looks at it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Reads a UUID, or a part of one as it is printed.
fn uuid_or_part(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    if text.is_empty() || !text.chars().all(is_part) {
        return Err("a UUID has the digits 0 to 9 and a to f, and hyphens".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

/// Reads `NAME=WORD`, where the word may be empty.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, word)) if !name.is_empty() => Ok((name.to_owned(), word.to_owned())),
        _ => Err("expected a name and a value, as in `NAME=WORD`".to_owned()),
    }
}

/// What a local port is declared to stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declared {
    /// A service.
    Service(Upstream),
    /// A host outside of the mesh.
    Host(HostUpstream),
}

impl Declared {
    /// The local port.
    pub(crate) fn local_port(&self) -> u16 {
        match self {
            Self::Service(upstream) => upstream.local_port,
            Self::Host(upstream) => upstream.local_port,
        }
    }
}

/// What the port stands for, as it is written on the command line.
impl fmt::Display for Declared {
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

/// Reads `NS/NAME=PORT`, `NS/NAME:PORT=PORT` or `HOST:PORT=PORT`. Names of services have no dots, hosts and
/// addresses have some or are in brackets.
fn upstream(text: &str) -> Result<Declared, String> {
    let outside = text.split_once('=').map_or(text, |(outside, _)| outside);
    if outside.contains('.') || outside.starts_with('[') {
        let host = text.parse().map(Declared::Host);
        return host.map_err(|error: ironmesh_catalog::InvalidName| error.to_string());
    }
    service(text).map(Declared::Service)
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
        let read = service("shop/bookstore=14001").unwrap();
        assert_eq!(
            (read.service.to_string(), read.port, read.local_port),
            ("shop/bookstore".to_owned(), None, 14001)
        );
        assert_eq!(service("bookstore:80=14001").unwrap().port, Some(80));
        let host = upstream("api.example.com:443=14443").unwrap();
        assert!(matches!(host, Declared::Host(host) if host.authority() == "api.example.com:443"));
        for bad in ["bookstore", "bookstore=", "bookstore=0", "bookstore=70000", "Book=1", "a:b=1"]
        {
            assert!(upstream(bad).is_err(), "{bad}");
        }
    }
}
