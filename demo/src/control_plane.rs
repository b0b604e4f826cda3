//! The parts of the control plane's admin API that the demo uses.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Problem;
use crate::http_client::get_once;

/// The answer at `/readyz`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) waiting_for: Vec<String>,
    pub(crate) policy: PolicyView,
}

/// The active policy, and the findings of the newest one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PolicyView {
    pub(crate) revision: Option<String>,
    #[serde(default)]
    pub(crate) findings: Vec<FindingView>,
    /// The findings rendered for people, or the reason why the folder is unreadable.
    #[serde(default)]
    pub(crate) rendered: String,
    /// The time since which the folder's content is not active.
    pub(crate) stale_since: Option<String>,
}

impl PolicyView {
    /// Whether the policy in the folder is rejected.
    pub(crate) fn is_rejected(&self) -> bool {
        self.stale_since.is_some() && !self.findings.is_empty()
    }

    /// Whether the folder is missing or unreadable, so that there are no findings.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.stale_since.is_some() && self.findings.is_empty()
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FindingView {
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) message: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// A page of the list at `/v1/proxies`. A demo has far fewer proxies than a page holds.
#[derive(Debug, Clone, Deserialize)]
struct ProxyPage {
    proxies: Vec<ProxyView>,
}

/// A proxy in the list at `/v1/proxies`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ProxyView {
    pub(crate) mesh_address: SocketAddr,
    pub(crate) streams: usize,
    /// The service ports that the proxy has ACKed.
    pub(crate) participation: Vec<(String, u16)>,
}

/// Reads `/readyz`, whether the control plane is ready or not.
pub(crate) async fn readiness(admin: SocketAddr) -> Result<Readiness, Problem> {
    get(admin, "/readyz").await
}

/// All enrolled proxies.
pub(crate) async fn proxies(admin: SocketAddr) -> Result<Vec<ProxyView>, Problem> {
    let page: ProxyPage = get(admin, "/v1/proxies").await?;
    Ok(page.proxies)
}

async fn get<T: DeserializeOwned>(admin: SocketAddr, path: &str) -> Result<T, Problem> {
    let answer = get_once(admin, path).await?;
    Ok(serde_json::from_slice(&answer.body)?)
}
