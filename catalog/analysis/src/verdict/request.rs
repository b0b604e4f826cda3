//! A request as the application sends it, and as each sidecar compares it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::http_routes::Treatment;
use ironmesh_catalog::policy::HeaderChanges;
use ironmesh_catalog::reserved_headers::{
    CLIENT_CERTIFICATE, ENVOY_HEADER_PREFIX, SAVED_OVERRIDE_PREFIX,
};
use ironmesh_catalog::service::{EscapedSlashes, Service};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::path::{self, Rejected};

/// A request as the application sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Request {
    /// Its method. Default: `GET`.
    pub method: String,
    /// Its path, with or without a query. Default: `/`.
    pub path: String,
    /// Its headers: name and value, in order. A `host` replaces the service's own hostname.
    pub headers: Vec<(String, String)>,
}

/// Whether a text is a token (RFC 9110, section 5.6.2), as methods and names of headers are.
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

impl Default for Request {
    fn default() -> Self {
        Self { method: "GET".to_owned(), path: "/".to_owned(), headers: Vec::new() }
    }
}

impl Request {
    /// The most headers of a request. Envoy answers more with 431.
    pub const MAX_HEADERS: usize = 100;

    /// The most bytes of method, path and headers together. Envoy answers more with 431.
    pub const MAX_BYTES: usize = 60 << 10;

    /// Why the request is impossible, or no sidecar would accept it; none if it is possible.
    pub fn problem(&self) -> Option<String> {
        let headers = self.headers.iter();
        let sizes = headers.map(|(name, value)| name.len().saturating_add(value.len()));
        let bytes = sizes.fold(self.method.len() + self.path.len(), usize::saturating_add);
        if self.headers.len() > Self::MAX_HEADERS || bytes > Self::MAX_BYTES {
            return Some(format!(
                "the request has {} headers and {bytes} bytes; Envoy takes {} headers and {} bytes at most",
                self.headers.len(),
                Self::MAX_HEADERS,
                Self::MAX_BYTES,
            ));
        }
        if !is_token(&self.method) {
            return Some(format!("`{}` is no method: it is one word, such as GET", self.method));
        }
        if let Some(problem) = path::problem(&self.path) {
            return Some(format!("the path `{}` {problem}", self.path));
        }
        if self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count() > 1 {
            return Some("the request has two hosts: give one".to_owned());
        }
        self.headers.iter().find_map(|(name, value)| {
            if !is_token(name) {
                return Some(format!("`{name}` is no name of a header: it is one word, such as x-tier"));
            }
            if value.contains(|c: char| c.is_ascii_control() && c != '\t') {
                return Some(format!("the header {name} has a value that is not one line"));
            }
            let is_certificate = name.eq_ignore_ascii_case(CLIENT_CERTIFICATE);
            is_certificate.then(|| {
                format!(
                    "the header {name} is set by the server's sidecar, whatever the caller sends: leave it out"
                )
            })
        })
    }

    /// The host that its headers name.
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
    /// Whether its path had an escaped slash on arrival.
    has_escaped_slash: bool,
    pub(super) host: String,
    /// By lower-case name. A caller's sidecar compares each of several values separately.
    headers: Arc<BTreeMap<String, Vec<String>>>,
    /// The results of comparisons, so that each is made once.
    compared: RefCell<BTreeMap<Comparison, bool>>,
}

/// A part of a request and the expression with which a rule compares it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Comparison {
    /// The path.
    Path(Arc<str>),
    /// The path, with segments that some servers read as `.` or `..`.
    Disguise,
    /// The host.
    Host(Arc<str>),
    /// The values of a header: name and expression.
    Header(Arc<str>, Arc<str>),
}

impl Arrival {
    /// The `request` as the caller's sidecar sees it. Its default host is that of the service, and the `called`
    /// service decides about escaped slashes.
    pub(super) fn at_caller(
        request: &Request,
        host_of_service: &str,
        called: &Service,
    ) -> Result<Self, Rejected> {
        let path = path::normalized(&request.path, called.escaped_slashes)?;
        Ok(Self::of(request, path, host_of_service))
    }

    /// The request as it leaves the caller's sidecar after this treatment.
    pub(super) fn after(&self, treatment: &Treatment<'_>) -> Self {
        let rewrite = treatment.rewrite();
        let path = rewrite.and_then(|rewrite| rewrite.path.as_ref());
        let path = path.map_or_else(|| self.path.clone(), |change| change.applied(&self.path));
        let host = rewrite.and_then(|rewrite| rewrite.host.as_deref()).unwrap_or(&self.host);
        let headers = treatment.request_headers().map(|changes| changed(&self.headers, changes));
        let headers = headers.map_or_else(|| Arc::clone(&self.headers), Arc::new);
        Self { headers, ..self.with(path, host.to_owned()) }
    }

    /// The request as the server's sidecar sees it. It normalizes the path again, and decides about escaped
    /// slashes itself.
    pub(super) fn at_server(&self) -> Result<Self, Rejected> {
        let path = path::normalized(&self.path, EscapedSlashes::Keep)?;
        let has_escaped_slash = path::has_escaped_slash(&self.path);
        let headers = Arc::new(served_headers(&self.headers));
        Ok(Self { has_escaped_slash, headers, ..self.with(path, self.host.clone()) })
    }

    /// A `request` from outside the mesh as the server's sidecar sees it.
    pub(super) fn from_outside(request: &Request, path: String, host_of_service: &str) -> Self {
        let arrival = Self::of(request, path, host_of_service);
        Self { headers: Arc::new(served_headers(&arrival.headers)), ..arrival }
    }

    /// The same request with this host.
    pub(super) fn to_host(&self, host: &str) -> Self {
        self.with(self.path.clone(), host.to_owned())
    }

    fn with(&self, path: String, host: String) -> Self {
        let (method, headers) = (self.method.clone(), Arc::clone(&self.headers));
        let has_escaped_slash = self.has_escaped_slash;
        Self { method, path, has_escaped_slash, host, headers, compared: RefCell::default() }
    }

    /// Whether `service` answers 400 before authorization: it checks the path before normalization.
    pub(super) fn is_rejected_by(&self, service: &Service) -> bool {
        service.escaped_slashes == EscapedSlashes::Reject && self.has_escaped_slash
    }

    /// The `request` as a sidecar compares it, with the normalized `path`. Its default host is that of the service.
    pub(super) fn of(request: &Request, path: String, host_of_service: &str) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &request.headers {
            let values = headers.entry(name.to_ascii_lowercase()).or_default();
            values.push(value.trim().to_owned());
        }
        headers.remove("host");
        let to_envoy = [ENVOY_HEADER_PREFIX, SAVED_OVERRIDE_PREFIX];
        headers.retain(|name, _| !to_envoy.iter().any(|prefix| name.starts_with(prefix)));
        let host = request.host().unwrap_or(host_of_service).to_owned();
        let (method, headers) = (request.method.clone(), Arc::new(headers));
        let has_escaped_slash = path::has_escaped_slash(&path);
        Self { method, path, has_escaped_slash, host, headers, compared: RefCell::default() }
    }

    /// Whether the request meets an expression; `meets` is called once per comparison.
    pub(super) fn once(&self, comparison: Comparison, meets: impl FnOnce() -> bool) -> bool {
        let known = self.compared.borrow().get(&comparison).copied();
        known.unwrap_or_else(|| {
            let meets = meets();
            self.compared.borrow_mut().insert(comparison, meets);
            meets
        })
    }

    /// Whether a rule compared the host.
    pub(super) fn has_compared_host(&self) -> bool {
        self.compared.borrow().keys().any(|one| matches!(one, Comparison::Host(_)))
    }

    /// The values of a header, in order.
    pub(super) fn header(&self, name: &str) -> &[String] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The headers as a server's sidecar compares and forwards them: it drops names with an underscore, and joins the
/// values of repeated headers.
fn served_headers(headers: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let kept = headers.iter().filter(|(name, _)| !name.contains('_'));
    kept.map(|(name, values)| (name.clone(), vec![values.join(",")])).collect()
}

fn changed(
    headers: &BTreeMap<String, Vec<String>>,
    HeaderChanges { set, add, remove }: &HeaderChanges,
) -> BTreeMap<String, Vec<String>> {
    let mut headers = headers.clone();
    headers.retain(|name, _| !remove.contains(name.as_str()));
    for (name, value) in set {
        headers.insert(name.to_string(), vec![value.to_string()]);
    }
    for (name, value) in add {
        headers.entry(name.to_string()).or_default().push(value.to_string());
    }
    headers
}
