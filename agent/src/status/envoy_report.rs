//! The running Envoy, by its admin interface.

use ironmesh_agent_envoy::local_http::LocalAddress;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::local::{LocalRequestError, get, get_json};
use super::server_info::ServerInfo;

/// The statistic that is 1 while Envoy has an xDS stream.
const CONNECTED: &str = "control_plane.connected_state";

/// The running Envoy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvoyReport {
    /// Its version, such as `1.40.0`.
    pub version: String,
    /// Its state: `live`, `initializing`, `pre_initializing` or `draining`.
    pub state: String,
    /// Its epoch: how many hot restarts led to it.
    pub epoch: u32,
    /// How long this epoch has run, in seconds.
    pub uptime_seconds: u64,
    /// Whether it has an xDS stream.
    pub is_connected: bool,
    /// The certificates that it presents and trusts, by their expiry.
    pub certificates: Vec<ServiceCertificateReport>,
}

/// A certificate that Envoy has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificateReport {
    /// Its SPIFFE ID.
    pub uri: String,
    /// When it begins to be valid.
    pub valid_from: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// Envoy's response to `/certs`.
#[derive(Debug, Deserialize)]
struct Certificates {
    #[serde(default)]
    certificates: Vec<Loaded>,
}

#[derive(Debug, Deserialize)]
struct Loaded {
    #[serde(default)]
    cert_chain: Vec<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default)]
    subject_alt_names: Vec<Name>,
    valid_from: Timestamp,
    expiration_time: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Name {
    #[serde(default)]
    uri: String,
}

impl EnvoyReport {
    /// Reads the report; none with a problem if there is no Envoy.
    pub(super) async fn collect(
        admin: &LocalAddress,
        now: Timestamp,
        problems: &mut Vec<String>,
    ) -> Option<Self> {
        match read(admin).await {
            Ok(report) => {
                if report.state != "live" {
                    problems.push(format!("Envoy is not live: its state is {}", report.state));
                }
                for expired in report.certificates.iter().filter(|one| one.expires_at <= now) {
                    problems.push(format!(
                        "Envoy uses a certificate of {} that expired at {:.0}: calls by mutual TLS fail",
                        expired.uri, expired.expires_at
                    ));
                }
                if !report.is_connected {
                    problems.push("Envoy has no xDS stream to the control plane: it keeps its last configuration".to_owned());
                }
                Some(report)
            }
            Err(error) if error.is_absent() => {
                problems.push(
                    "Envoy does not run, or has no admin interface: see `systemctl status ironmesh-envoy`, or the log of `ironmesh envoy run`".to_owned(),
                );
                None
            }
            Err(error) => {
                problems.push(format!("Envoy does not answer: {error}"));
                None
            }
        }
    }
}

async fn read(admin: &LocalAddress) -> Result<EnvoyReport, LocalRequestError> {
    let info = ServerInfo::read(admin).await?;
    let loaded: Certificates = get_json(admin, "/certs").await?;
    let stats = get(admin, &format!("/stats?filter=^{}$", CONNECTED.replace('.', "%5C."))).await?;
    let stats = String::from_utf8_lossy(stats.as_ref());
    let mut certificates: Vec<_> = loaded.certificates.into_iter().filter_map(report).collect();
    certificates.sort_by(|a, b| (a.expires_at, &a.uri).cmp(&(b.expires_at, &b.uri)));
    certificates.dedup();
    Ok(EnvoyReport {
        version: version(&info.version),
        state: info.state.to_lowercase(),
        epoch: info.epoch(),
        uptime_seconds: info.uptime_seconds(),
        is_connected: stats.lines().any(|line| line == format!("{CONNECTED}: 1")),
        certificates,
    })
}

/// The leaf of a loaded certificate that has a SPIFFE ID.
fn report(loaded: Loaded) -> Option<ServiceCertificateReport> {
    let leaf = loaded.cert_chain.into_iter().next()?;
    let name = leaf.subject_alt_names.into_iter().find(|name| name.uri.starts_with("spiffe://"))?;
    Some(ServiceCertificateReport {
        uri: name.uri,
        valid_from: leaf.valid_from,
        expires_at: leaf.expiration_time,
    })
}

/// The version number in `HASH/1.40.0/Clean/RELEASE/BoringSSL`.
fn version(text: &str) -> String {
    text.split('/').nth(1).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_number_in_envoys_text() {
        assert_eq!(version("abc/1.40.0/Clean/RELEASE/BoringSSL"), "1.40.0");
        assert_eq!(version("1.40"), "1.40");
    }
}
