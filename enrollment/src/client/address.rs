//! The address of a control plane's enrollment listener, as people write it.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// The port of the machines' API.
const DEFAULT_PORT: u16 = 15129;

/// Host and port of the machines' API of one replica: `https://HOST:PORT`, where the scheme and the port are
/// optional.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlPlaneAddress {
    /// The host name or the IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for ControlPlaneAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for ControlPlaneAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress { text: text.to_owned() };
        let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = full.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if uri.scheme_str() != Some("https") || !is_bare || host.is_empty() {
            return Err(invalid());
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => DEFAULT_PORT,
            Some(port) => {
                let port = port.strip_prefix(':').ok_or_else(invalid)?;
                port.parse().map_err(|_| invalid())?
            }
            None => return Err(invalid()),
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// A text that is no address of a control plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address `{text}` is malformed: it is `https://HOST:PORT`, with port 15129 by default")]
pub struct InvalidAddress {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_a_host_with_optional_scheme_and_port() {
        for (text, shown) in [
            ("https://cp.example:15129", "cp.example:15129"),
            ("https://cp.example/", "cp.example:15129"),
            ("cp.example", "cp.example:15129"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("https://[fd00::1]:15129", "[fd00::1]:15129"),
            ("[fd00::1]", "[fd00::1]:15129"),
        ] {
            assert_eq!(text.parse::<ControlPlaneAddress>().unwrap().to_string(), shown);
        }
        for bad in
            ["", "http://cp", "cp:", "cp:70000", "https://cp/path", "a@cp", "https://", "cp?x"]
        {
            bad.parse::<ControlPlaneAddress>().unwrap_err();
        }
    }
}
