//! The result of loading: findings, a specification, and the revision of both.

use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision};
use xxhash_rust::xxh3::Xxh3;

use crate::document::Document;

/// The result of loading one state of the documents.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The documents, by path.
    pub documents: Arc<[Document]>,
    /// All findings, in order.
    pub findings: Vec<Finding>,
    /// The specification; none if any finding is an error.
    pub specification: Option<Arc<MeshSpecification>>,
    /// The revision of the state, whether it is valid or not.
    pub revision: PolicyRevision,
}

/// The revision of complete documents, which are sorted.
pub fn revision_of(documents: &[Document]) -> PolicyRevision {
    revision(documents, &[])
}

/// A short hash of all input. It includes lengths, so that moving text from one file to the next changes the
/// revision. Unreadable files count by their errors, so that their appearance and their repair are changes
/// too. Files that are not policy do not count.
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
