//! A request as it is asked about, and as it arrives where it is judged.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

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
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) method: String,
    /// Without its query.
    pub(super) path: String,
    pub(super) host: String,
    /// By lower-case name. Several values of one name are compared each by itself.
    headers: Arc<BTreeMap<String, Vec<String>>>,
    /// What has been compared, so that it is compared once.
    known: RefCell<BTreeMap<Comparison, bool>>,
}

/// A part of a request, and the expression of a rule that is about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Comparison {
    /// The path.
    Path(Arc<str>),
    /// The path, with what some servers read as another one.
    Disguise,
    /// The host.
    Host(Arc<str>),
    /// The values of a header: name and expression.
    Header(Arc<str>, Arc<str>),
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
        Ok(self.otherwise(path, self.host.clone()))
    }

    /// The same with another host.
    pub(super) fn to_host(&self, host: &str) -> Self {
        self.otherwise(self.path.clone(), host.to_owned())
    }

    fn otherwise(&self, path: String, host: String) -> Self {
        let (method, headers) = (self.method.clone(), Arc::clone(&self.headers));
        Self { method, path, host, headers, known: RefCell::default() }
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
        let (method, headers) = (request.method.clone(), Arc::new(headers));
        Self { method, path, host, headers, known: RefCell::default() }
    }

    /// Whether the request meets an expression, which is asked of `meets` once.
    pub(super) fn once(&self, comparison: Comparison, meets: impl FnOnce() -> bool) -> bool {
        let known = self.known.borrow().get(&comparison).copied();
        known.unwrap_or_else(|| {
            let meets = meets();
            self.known.borrow_mut().insert(comparison, meets);
            meets
        })
    }

    /// Whether an expression on the host has been compared.
    pub(super) fn has_compared_host(&self) -> bool {
        self.known.borrow().keys().any(|one| matches!(one, Comparison::Host(_)))
    }

    /// The values of a header, in order.
    pub(super) fn header(&self, name: &str) -> &[String] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }
}
