//! The settings of a machine's own listeners, which `proxy bootstrap` and `agent join` share.

use std::fmt;
use std::net::IpAddr;

use clap::Args;
use ironmesh_catalog::{HostUpstream, LogFolder, Upstream};

/// The settings of a machine's own listeners.
#[derive(Debug, Args)]
pub(crate) struct ListenerArguments {
    /// Listen on this address instead of --address
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Option<IpAddr>,
    /// Forward traffic to applications at this address [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) app_address: Option<IpAddr>,
    /// Offer this service (`NS/NAME` or `NS/NAME:PORT`) or outside host (`api.example.com:443=14443`) on a local
    /// port; may be repeated
    #[arg(long = "upstream", value_name = "NS/NAME=PORT", value_parser = upstream)]
    pub(crate) upstreams: Vec<UpstreamArgument>,
    /// Write file access logs to this folder on the proxy's machine [default: no file access logs]
    #[arg(long, value_name = "DIR")]
    pub(crate) access_log_dir: Option<LogFolder>,
    /// Open Envoy's admin interface to all local users, on loopback port 15000 [default: `admin.sock`, for Envoy's
    /// user only]
    #[arg(long)]
    pub(crate) admin_tcp: bool,
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
