//! One request against one match of a route group: the same comparison as in the RBAC and the routes that
//! are compiled of the match, whose expressions these are.

use std::sync::Arc;

use ironmesh_catalog::policy::{HttpMatch, PathRegex};
use regex::bytes::RegexBuilder;
use serde::{Deserialize, Serialize};

use super::request::{Arrival, Comparison};

/// What of a match does not hold of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    /// The method is none of these.
    Method {
        /// The methods that are allowed.
        allowed: Vec<Arc<str>>,
    },
    /// The path does not match.
    Path {
        /// The expression, which must match from the beginning on.
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
        /// What the request has. At a server's sidecar that is one value: repeated headers are joined there.
        /// At the caller's own sidecar, of several values one that matches would do.
        values: Vec<String>,
    },
}

/// What of `one` does not hold of `arrival`; nothing if it lets it through.
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
        // Of several values, one that matches will do in Envoy. A server's sidecar joins them before.
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

/// Whether `expression` matches the whole of one of these texts, byte by byte, as RE2 reads it. (The loader
/// takes no expression that RE2 reads otherwise; one that cannot be read lets nothing through.)
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
