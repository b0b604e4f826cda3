//! Comparison of one request with one match of a route group.
//!
//! It uses the expressions of the compiled RBAC rules and routes, so both agree.

use std::sync::Arc;

use ironmesh_catalog::policy::{HttpMatch, PathRegex};
use regex::bytes::RegexBuilder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::{Arrival, Comparison};

/// A condition of a match that a request does not meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    /// The method is not in the list.
    Method {
        /// The methods that are allowed.
        allowed: Vec<Arc<str>>,
    },
    /// The path does not match.
    Path {
        /// The expression, which must match from the start of the path.
        expression: Arc<str>,
    },
    /// The path has a segment that some servers read as `.` or `..`; no expression covers these.
    DisguisedPath,
    /// A header does not match.
    Header {
        /// Its name.
        name: Arc<str>,
        /// The expression, which must match the whole value.
        expression: Arc<str>,
        /// The values of the request. At a server's sidecar there is one, since it joins repeated headers. At the
        /// caller's own sidecar one matching value of several is enough.
        values: Vec<String>,
    },
}

/// The conditions of `one` that `arrival` does not meet; empty if it matches.
pub(super) fn mismatches(one: &HttpMatch, arrival: &Arrival) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    if !one.methods.is_empty() && !one.methods.iter().any(|method| *method.0 == *arrival.method) {
        let allowed = one.methods.iter().map(|method| Arc::clone(&method.0)).collect();
        mismatches.push(Mismatch::Method { allowed });
    }
    if let Some(path) = &one.path {
        let own = Comparison::Path(Arc::clone(&path.text));
        let is_own = || is_whole(&path.whole_path(), &[&arrival.path]);
        let is_disguised = || is_whole(PathRegex::DISGUISED, &[&arrival.path]);
        if !arrival.once(own, is_own) {
            mismatches.push(Mismatch::Path { expression: Arc::clone(&path.text) });
        } else if arrival.once(Comparison::Disguise, is_disguised) {
            mismatches.push(Mismatch::DisguisedPath);
        }
    }
    for (name, expression) in &one.headers {
        // In Envoy one matching value of several is enough. A server's sidecar joins them before.
        let (values, meets) = if **name == *"host" {
            let whole = || HttpMatch::whole_authority(expression);
            let meets = || is_whole(&whole(), &[&arrival.host]);
            let host = Comparison::Host(Arc::clone(expression));
            (std::slice::from_ref(&arrival.host), arrival.once(host, meets))
        } else {
            let values = arrival.header(name);
            let header = Comparison::Header(Arc::clone(name), Arc::clone(expression));
            (values, arrival.once(header, || is_whole(expression, values)))
        };
        if !meets {
            mismatches.push(Mismatch::Header {
                name: Arc::clone(name),
                expression: Arc::clone(expression),
                values: values.to_vec(),
            });
        }
    }
    mismatches
}

/// Whether `expression` matches one of these texts as a whole, byte by byte, as in RE2. (The loader rejects
/// expressions that RE2 interprets differently; an invalid expression matches nothing.)
fn is_whole(expression: &str, texts: &[impl AsRef<str>]) -> bool {
    if texts.is_empty() {
        return false;
    }
    #[cfg(test)]
    COMPILED.with(|compiled| compiled.set(compiled.get() + 1));
    let whole = format!(r"\A(?:{expression})\z");
    let compiled = RegexBuilder::new(&whole).unicode(false).build();
    compiled
        .is_ok_and(|compiled| texts.iter().any(|text| compiled.is_match(text.as_ref().as_bytes())))
}

#[cfg(test)]
thread_local! {
    /// How many expressions this thread has compiled.
    pub(super) static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
