//! What comes of loading: findings, a specification, and the revision by which both are known.

use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision};
use xxhash_rust::xxh3::Xxh3;

use crate::document::Document;

/// The result of loading one state of the documents.
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

/// A short hash of all that was read. Lengths go in with the texts, so that text which moves from
/// one file to the next is another revision. Files that could not be read count by what is wrong
/// with them, so that their appearing and their mending are changes too. Files that are not policy do not count.
pub(super) fn revision(documents: &[Document], unreadable: &[Finding]) -> PolicyRevision {
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
