//! A request as it is asked about, and as it arrives where it is judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::path::{self, Rejected};

/// A request as the application makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its method; `GET` where nothing is said.
    pub method: String,
    /// Its path, with a query or without; `/` where nothing is said.
    pub path: String,
    /// Its headers: name and value, in order. A `host` takes the place of the service's own name.
    pub headers: Vec<(String, String)>,
}

impl Default for Request {
    fn default() -> Self {
        Self { method: "GET".to_owned(), path: "/".to_owned(), headers: Vec::new() }
    }
}

/// A request as the server's sidecar compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) method: String,
    /// Without its query.
    pub(super) path: String,
    pub(super) host: String,
    /// By lower-case name. Several values of one name are compared each by itself.
    headers: BTreeMap<String, Vec<String>>,
}

impl Arrival {
    /// What arrives of `request`, whose host is that of the service where it does not say. Paths are normalized by
    /// the caller's sidecar, and then once more by the server's.
    pub(super) fn of(request: &Request, host_of_service: &str) -> Result<Self, Rejected> {
        let once = path::normalized(&request.path)?;
        let path = path::normalized(&once)?;
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &request.headers {
            let values = headers.entry(name.to_ascii_lowercase()).or_default();
            values.push(value.trim().to_owned());
        }
        let host = headers.remove("host").and_then(|hosts| hosts.into_iter().next());
        let host = host.unwrap_or_else(|| host_of_service.to_owned());
        Ok(Self { method: request.method.clone(), path, host, headers })
    }

    /// The values of a header, in order.
    pub(super) fn header(&self, name: &str) -> &[String] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }
}
