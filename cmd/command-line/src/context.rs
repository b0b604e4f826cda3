//! The names of contexts and the addresses of servers.

use std::str::FromStr;

use ironmesh_catalog::OperatorName;

/// The name of a context: that of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextName(pub String);

impl FromStr for ContextName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The same characters are safe in the name of a file.
        text.parse::<OperatorName>().map_err(|invalid| invalid.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

/// The address of a server: its host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress(pub String, pub u16);

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || "write it as `HOST:PORT`, such as `cp1.example.com:15130`".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| malformed())?;
        if host.is_empty() || port == 0 {
            Err(malformed())
        } else {
            Ok(Self(host.to_owned(), port))
        }
    }
}
