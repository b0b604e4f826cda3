//! The file that a machine needs to renew its certificate: where, and since when it has the present one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of the file in the folder of a proxy.
pub const ENROLLMENT: &str = "enrollment.json";

/// The content of the file. An operator may edit its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollmentState {
    /// Where the replicas of the control plane serve the machines' API, as `https://HOST:PORT`.
    pub addresses: Vec<String>,
    /// When the certificate was issued. Its own validity begins with its issuer, long before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Timestamp>,
    /// The hashes of all CAs of the mesh since the enrollment, also of those that were replaced. By them settings with an
    /// older hash are still those of this mesh.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ca_hashes: Vec<String>,
}

impl EnrollmentState {
    /// The content for these hosts and ports.
    pub fn new(addresses: &[(String, u16)], issued_at: Option<Timestamp>) -> Self {
        let address = |(host, port): &(String, u16)| {
            let is_ipv6 = host.contains(':');
            if is_ipv6 {
                format!("https://[{host}]:{port}")
            } else {
                format!("https://{host}:{port}")
            }
        };
        Self {
            addresses: addresses.iter().map(address).collect(),
            issued_at,
            ca_hashes: Vec::new(),
        }
    }

    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enrollment_state_is_read_back() {
        let addresses = [("cp.example".to_owned(), 15129), ("fd00::1".to_owned(), 1)];
        for issued_at in [None, Some("2026-01-01T00:00:00Z".parse().unwrap())] {
            let state = EnrollmentState::new(&addresses, issued_at);
            assert_eq!(state.addresses, ["https://cp.example:15129", "https://[fd00::1]:1"]);
            assert_eq!(EnrollmentState::parse(&state.to_json()).unwrap(), state);
        }
    }
}
