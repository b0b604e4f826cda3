//! What a running control plane says of itself at its admin port, as far as the demo needs it.

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

/// The policy in force, and what is wrong with the newest one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PolicyView {
    pub(crate) revision: Option<String>,
    #[serde(default)]
    pub(crate) findings: Vec<FindingView>,
    /// The findings, drawn for people; or why the folder cannot be read.
    #[serde(default)]
    pub(crate) drawn: String,
    /// Since when the folder holds something else than what is in force.
    pub(crate) stale_since: Option<String>,
}

impl PolicyView {
    /// Whether what is in the folder now is refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.stale_since.is_some() && !self.findings.is_empty()
    }

    /// Whether the folder is gone, or cannot be read: so there are no findings in it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.stale_since.is_some() && self.findings.is_empty()
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FindingView {
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) message: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// One of the list at `/v1/proxies`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ProxyView {
    pub(crate) mesh_address: SocketAddr,
    pub(crate) streams: usize,
    /// The service ports that it has in force.
    pub(crate) participation: Vec<(String, u16)>,
}

/// What `/readyz` says, whether it is ready or not.
pub(crate) async fn readiness(admin: SocketAddr) -> Result<Readiness, Problem> {
    ask(admin, "/readyz").await
}

/// All proxies that have joined.
pub(crate) async fn proxies(admin: SocketAddr) -> Result<Vec<ProxyView>, Problem> {
    ask(admin, "/v1/proxies").await
}

async fn ask<T: DeserializeOwned>(admin: SocketAddr, path: &str) -> Result<T, Problem> {
    let answer = get_once(admin, path).await?;
    Ok(serde_json::from_slice(&answer.body)?)
}
