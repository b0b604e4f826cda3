//! The settings of a machine's own listeners, as flags and `agent.toml` write them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ironmesh_catalog::{
    CertificateSource, HostUpstream, InvalidName, LogFolder, NodeMetadata, Upstream,
};

/// The settings of a machine's own listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The address on which the proxy listens for the mesh. Default: the one to which callers connect.
    pub bind: Option<IpAddr>,
    /// The address of the applications. Default: 127.0.0.1.
    pub app_address: Option<IpAddr>,
    /// The targets of local ports.
    pub upstreams: Vec<UpstreamTarget>,
    /// The folder for access logs. Default: none.
    pub access_log_dir: Option<LogFolder>,
}

/// Two upstreams have the same local port: Envoy would reject one of the listeners.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "two upstreams have the local port {port}: `{first}` and `{second}`; give each upstream its own port"
)]
pub struct DuplicateLocalPort {
    port: u16,
    first: UpstreamTarget,
    second: UpstreamTarget,
}

impl ListenerSettings {
    /// The node metadata of a proxy with these listeners.
    ///
    /// # Errors
    ///
    /// Fails if two upstreams have the same local port.
    pub fn node_metadata(&self) -> Result<NodeMetadata, DuplicateLocalPort> {
        let mut ports = BTreeMap::new();
        let (mut upstreams, mut hosts) = (Vec::new(), Vec::new());
        for upstream in &self.upstreams {
            let port = upstream.local_port();
            if let Some(first) = ports.insert(port, upstream) {
                let (first, second) = (first.clone(), upstream.clone());
                return Err(DuplicateLocalPort { port, first, second });
            }
            match upstream {
                UpstreamTarget::Service(upstream) => upstreams.push(upstream.clone()),
                UpstreamTarget::Host(host) => hosts.push(host.clone()),
            }
        }
        Ok(NodeMetadata {
            bind: self.bind,
            app_address: self.app_address,
            upstreams,
            hosts,
            access_log_dir: self.access_log_dir.clone(),
            certificates: CertificateSource::default(),
            // The bootstrap says its own version, and its addresses.
            bootstrap_version: 0,
            control_plane: Vec::new(),
            unknown: Vec::new(),
        })
    }
}

/// The target of a local port: a service (`NS/NAME=PORT`, `NS/NAME:PORT=PORT`) or a host outside the mesh
/// (`HOST:PORT=PORT`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamTarget {
    /// A service.
    Service(Upstream),
    /// A host outside the mesh.
    Host(HostUpstream),
}

impl UpstreamTarget {
    fn local_port(&self) -> u16 {
        match self {
            Self::Service(upstream) => upstream.local_port,
            Self::Host(upstream) => upstream.local_port,
        }
    }
}

/// Writes the target, without the local port.
impl fmt::Display for UpstreamTarget {
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

impl FromStr for UpstreamTarget {
    type Err = String;

    /// Service names have no dots; hosts and addresses have dots or are in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let target = text.split_once('=').map_or(text, |(target, _)| target);
        if target.contains('.') || target.starts_with('[') {
            let host = text.parse().map(Self::Host);
            return host.map_err(|error: InvalidName| error.to_string());
        }
        service(text).map(Self::Service)
    }
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
    let service = service.parse().map_err(|error: InvalidName| error.to_string())?;
    Ok(Upstream { service, port: number, local_port: port(local_port)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_names_service_or_host_and_local_port() {
        let parsed = service("shop/bookstore=14001").unwrap();
        assert_eq!(
            (parsed.service.to_string(), parsed.port, parsed.local_port),
            ("shop/bookstore".to_owned(), None, 14001)
        );
        assert_eq!(service("bookstore:80=14001").unwrap().port, Some(80));
        let host = "api.example.com:443=14443".parse().unwrap();
        assert!(
            matches!(host, UpstreamTarget::Host(host) if host.authority() == "api.example.com:443")
        );
        for bad in ["bookstore", "bookstore=", "bookstore=0", "bookstore=70000", "Book=1", "a:b=1"]
        {
            assert!(bad.parse::<UpstreamTarget>().is_err(), "{bad}");
        }
    }
}
