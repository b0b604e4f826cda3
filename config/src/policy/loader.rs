//! The loader: loads one state of the documents after the other, at the price of what has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification};

use super::draft::Draft;
use super::part::Part;
use super::{Loaded, coverage, reading, references, revision, splits};
use crate::document::Document;

/// Loads one state of the documents after the other. What comes out is the same as if each were loaded
/// by itself; but a document that is as it was is not parsed again, and specifications share what is
/// the same in both.
#[derive(Debug, Default)]
pub struct Loader {
    /// What the documents of the last state say, each by itself.
    parts: BTreeMap<Document, Part>,
    /// The last that came out.
    specification: Arc<MeshSpecification>,
    parsed: u64,
}

impl Loader {
    /// Checks `documents` and makes a specification of them. The order of the documents is no matter.
    pub fn load_documents(&mut self, documents: impl IntoIterator<Item = Document>) -> Loaded {
        self.load(documents.into_iter().collect(), Vec::new())
    }

    /// How many documents have been parsed since the beginning.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }

    /// As [`Loader::load_documents`], with what was found while the documents were read from their
    /// source.
    pub(crate) fn load(
        &mut self,
        mut documents: Vec<Document>,
        unreadable: Vec<Finding>,
    ) -> Loaded {
        documents.sort();
        self.read(&documents);
        let revision = revision(&documents, &unreadable);
        let mut draft = Draft::default();
        for finding in &unreadable {
            // What an unreadable file defines is unknown, so nothing can be said to be missing.
            draft.anything_may_be_defined |= finding.is_error();
        }
        for part in self.parts.values() {
            draft.add(part);
        }
        references::check(&mut draft);
        splits::check(&mut draft);
        coverage::check(&mut draft);

        let mut findings = std::mem::take(&mut draft.findings);
        findings.extend(unreadable);
        findings.sort_by(Finding::order);
        let valid = !findings.iter().any(Finding::is_error);
        let specification = valid.then(|| {
            let specification = draft.into_specification(revision.clone(), &self.specification);
            Arc::new(specification)
        });
        if let Some(specification) = &specification {
            self.specification = Arc::clone(specification);
        }
        Loaded { documents: documents.into(), findings, specification, revision }
    }

    /// Reads the documents that were not read for the last state, and forgets those that are gone.
    fn read(&mut self, documents: &[Document]) {
        let mut known = std::mem::take(&mut self.parts);
        for document in documents {
            let part = known.remove(document).unwrap_or_else(|| {
                self.parsed += 1;
                reading::read(document)
            });
            self.parts.insert(document.clone(), part);
        }
    }
}
