//! Local ports for hosts and addresses outside the mesh.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{Hostname, InvalidName};

/// A local port for a host or an address outside the mesh.
///
/// Written `api.example.com:443=14443`, `10.1.2.3:5432=15432` or `[2001:db8::1]:5432=15432`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostUpstream {
    /// The host.
    pub host: OutsideHost,
    /// Its port.
    pub port: u16,
    /// The port on which the proxy listens for the application.
    pub local_port: u16,
}

impl HostUpstream {
    /// The names of the fields that this version reads.
    pub const FIELDS: &[&str] = &["host", "port", "local_port"];

    /// The host with its port, as in a request.
    pub fn authority(&self) -> String {
        OutsideAuthority { host: self.host.clone(), port: self.port }.to_string()
    }
}

impl FromStr for HostUpstream {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName { text: text.to_owned(), problem };
        let (outside, local_port) = text.split_once('=').ok_or_else(|| invalid("has no `=`"))?;
        let OutsideAuthority { host, port } = outside.parse()?;
        let local_port = number(local_port).ok_or_else(|| invalid("has no local port"))?;
        Ok(Self { host, port, local_port })
    }
}

/// The number of a port.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number: &u16| *number > 0)
}

/// A host outside the mesh with its port, as in a request.
///
/// Written `api.example.com:443`, `10.1.2.3:5432` or `[2001:db8::1]:5432`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutsideAuthority {
    /// The host.
    pub host: OutsideHost,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for OutsideAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            OutsideHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl FromStr for OutsideAuthority {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName { text: text.to_owned(), problem };
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| invalid("has a host without a port"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self {
            host: OutsideHost::try_from(host.to_owned())?,
            port: number(port).ok_or_else(|| invalid("has no port"))?,
        })
    }
}

impl TryFrom<String> for OutsideAuthority {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<OutsideAuthority> for String {
    fn from(authority: OutsideAuthority) -> Self {
        authority.to_string()
    }
}

/// A host outside the mesh: a name without a wildcard, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OutsideHost {
    /// A name, which the proxy resolves.
    Name(Hostname),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for OutsideHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl TryFrom<String> for OutsideHost {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let name = Hostname::new(&text)?;
        if name.is_wildcard() {
            return Err(InvalidName { text, problem: "is many hosts, where one is expected" });
        }
        Ok(Self::Name(name))
    }
}

impl From<OutsideHost> for String {
    fn from(host: OutsideHost) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_upstream_parses_host_or_address_with_local_port() {
        for (text, authority) in [
            ("api.example.com:443=14443", "api.example.com:443"),
            ("10.1.2.3:5432=15432", "10.1.2.3:5432"),
            ("[2001:db8::1]:5432=15432", "[2001:db8::1]:5432"),
        ] {
            let read: HostUpstream = text.parse().unwrap();
            assert_eq!(read.authority(), authority);
        }
        for bad in [
            "api.example.com=14443",
            "api.example.com:443",
            "api.example.com:0=1",
            "api.example.com:443=0",
            "*.example.com:443=1",
            "api:443=1",
            ":443=1",
        ] {
            assert!(bad.parse::<HostUpstream>().is_err(), "{bad}");
        }
    }
}
