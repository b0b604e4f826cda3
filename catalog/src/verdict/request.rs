//! A request as it is asked about, and as it arrives where it is judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::path::{self, Rejected};
use crate::service::{EscapedSlashes, Service};

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

impl Request {
    /// The host that it says it is for.
    pub(super) fn host(&self) -> Option<&str> {
        let host = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        host.map(|(_, host)| host.trim())
    }
}

/// A request as a sidecar compares it.
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
    /// What the caller's sidecar sees of `request`, whose host is that of the service where it does not say.
    /// Of escaped slashes the service that is `called` says what becomes.
    pub(super) fn at_caller(
        request: &Request,
        host_of_service: &str,
        called: &Service,
    ) -> Result<Self, Rejected> {
        let path = path::normalized(&request.path, called.escaped_slashes)?;
        Ok(Self::of(request, path, host_of_service))
    }

    /// What the server's sidecar sees of what arrived at the caller's: paths are normalized once more. What
    /// it does with escaped slashes is for it to say.
    pub(super) fn at_server(&self) -> Result<Self, Rejected> {
        let path = path::normalized(&self.path, EscapedSlashes::Keep)?;
        Ok(Self { path, ..self.clone() })
    }

    /// Whether `service` answers it with 400, before it asks who calls.
    pub(super) fn is_rejected_by(&self, service: &Service) -> bool {
        service.escaped_slashes == EscapedSlashes::Reject && path::has_escaped_slash(&self.path)
    }

    fn of(request: &Request, path: String, host_of_service: &str) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &request.headers {
            let values = headers.entry(name.to_ascii_lowercase()).or_default();
            values.push(value.trim().to_owned());
        }
        headers.remove("host");
        let host = request.host().unwrap_or(host_of_service).to_owned();
        Self { method: request.method.clone(), path, host, headers }
    }

    /// The values of a header, in order.
    pub(super) fn header(&self, name: &str) -> &[String] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }
}
