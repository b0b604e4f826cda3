//! Policy: from documents to a validated mesh specification. Pure: what is read where is for
//! [`crate::folder`] to say.
//!
//! Three steps. Each document is parsed and its tables are read into a part; then the parts are put
//! together into a draft, and references, and splits as a graph, are checked across documents; then, if
//! nothing is an error, the draft becomes the specification. Every step tells all that it finds, and
//! none looks at an object whose problem has been told already.

mod coverage;
mod damage;
mod draft;
mod egress;
mod endpoints;
mod exits;
mod http_route;
mod http_route_group;
mod identity_binding;
mod ingress;
mod ingress_backend;
mod labels;
mod level;
mod loader;
mod locality;
mod namespace;
mod nothing_to_call;
mod outside;
mod part;
mod reading;
mod references;
mod regex;
mod retry;
mod service;
mod shadowed;
mod single_tables;
mod splits;
mod tcp_route;
mod telemetry;
#[cfg(test)]
mod tests;
mod traffic_split;
mod traffic_target;
mod treatments;
mod unreachable;
mod upstream_settings;
mod upstream_traffic_setting;
mod without_endpoints;

use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision};
use xxhash_rust::xxh3::Xxh3;

pub use crate::document::Document;
pub(crate) use level::SCOPES;
pub use loader::Loader;
pub use telemetry::log_operators;

/// What one state of the documents says.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The documents, by path.
    pub documents: Arc<[Document]>,
    /// All that is wrong with them, in order.
    pub findings: Vec<Finding>,
    /// What they specify; nothing if any finding is an error.
    pub specification: Option<Arc<MeshSpecification>>,
    /// Which state it is, whether it is valid or not.
    pub revision: PolicyRevision,
}

/// Checks `documents` and makes a specification of them. The order of the documents is no matter.
pub fn load_documents(documents: impl IntoIterator<Item = Document>) -> Loaded {
    Loader::default().load_documents(documents)
}

/// A short hash of all that was read. Lengths go in with the texts, so that text which moves from
/// one file to the next is another revision. Files that could not be read count by what is wrong
/// with them, so that their appearing and their mending are changes too. Files that are not policy do not count.
fn revision(documents: &[Document], unreadable: &[Finding]) -> PolicyRevision {
    let mut hash = Xxh3::new();
    let mut add = |text: &str| {
        hash.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(text.as_bytes());
    };
    for document in documents {
        add(&document.path);
        add(&document.text);
    }
    for finding in unreadable.iter().filter(|finding| finding.is_error()) {
        add(&finding.to_string());
    }
    let digits = format!("{:032x}", hash.digest128());
    PolicyRevision(digits.get(..12).unwrap_or(&digits).into())
}
