//! The loader: loads successive states of the documents, at the cost of their changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, ObjectRef, PolicyRevision, Spot};

use super::draft::Draft;
use super::loaded::{Loaded, revision};
use super::outline::Outline;
use super::part::Part;
use super::{
    coverage, exits, ingress, namespace, nothing_to_call, outside, reading, references, shadowed,
    splits, telemetry, treatments, unreachable, upstream_settings, upstreams, without_endpoints,
};
use crate::document::Document;
use crate::limits;

/// Loads successive states of the documents. The result is the same as that of a full load. But an unchanged
/// document is not parsed again, changes without effect on other documents cause no check across documents,
/// and specifications share equal objects.
#[derive(Debug, Default)]
pub struct Loader {
    /// The parts of the documents of the last state.
    parts: BTreeMap<Document, Part>,
    /// The findings of the last check; `None` if the next state must be checked in any case.
    findings: Option<Vec<Finding>>,
    /// The findings of reading the documents of the last state from their source.
    unreadable: Vec<Finding>,
    /// The last result.
    specification: Arc<MeshSpecification>,
    parsed: u64,
    checked: u64,
}

impl Loader {
    /// Checks `documents`, and makes a specification of them. Their order has no effect.
    pub fn load_documents(&mut self, documents: impl IntoIterator<Item = Document>) -> Loaded {
        self.load(documents.into_iter().collect(), Vec::new())
    }

    /// The number of documents parsed since the beginning.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }

    /// The number of checks across documents since the beginning.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// As [`Loader::load_documents`], with the findings of reading the documents from their source. The
    /// content decides whether a document has changed, not a time stamp, which a checkout or a copy may set.
    pub fn load(&mut self, mut documents: Vec<Document>, mut unreadable: Vec<Finding>) -> Loaded {
        let bytes = documents.iter().map(|document| document.text.len()).sum();
        if let Some(finding) = limits::excess(documents.len(), bytes) {
            documents.clear();
            unreadable.push(finding);
        }
        documents.sort();
        let revision = revision(&documents, &unreadable);
        let edited = self.read(&documents);
        let is_read = !unreadable.iter().any(Finding::is_error);
        let known = self.findings.take().filter(|_| is_read && self.unreadable == unreadable);
        self.unreadable.clone_from(&unreadable);
        let (findings, specification) = match edited.zip(known) {
            Some((edited, known)) if hold(&known, &edited) => {
                let mut specification = MeshSpecification::clone(&self.specification);
                specification.revision = revision.clone();
                for part in edited.iter().filter_map(|document| self.parts.get(document)) {
                    part.put_into(&mut specification);
                }
                (known, Some(specification))
            }
            _ => self.check(unreadable, &revision),
        };
        self.findings = is_read.then(|| findings.clone());
        let specification = specification.map(Arc::new);
        if let Some(specification) = &specification {
            self.specification = Arc::clone(specification);
        }
        Loaded { documents: documents.into(), findings, specification, revision }
    }

    /// Checks all documents against each other.
    fn check(
        &mut self,
        unreadable: Vec<Finding>,
        revision: &PolicyRevision,
    ) -> (Vec<Finding>, Option<MeshSpecification>) {
        self.checked += 1;
        let mut draft = Draft::default();
        for finding in &unreadable {
            // An unreadable file may define any name, so no name can be reported as missing.
            draft.anything_may_be_defined |= finding.is_error();
        }
        for part in self.parts.values() {
            draft.add(part);
        }
        references::check(&mut draft);
        splits::check(&mut draft);
        outside::check(&mut draft);
        treatments::check(&mut draft);
        exits::check(&mut draft);
        coverage::check(&mut draft);
        shadowed::check(&mut draft);
        unreachable::check(&mut draft);
        nothing_to_call::check(&mut draft);
        without_endpoints::check(&mut draft);
        namespace::check(&mut draft);
        upstream_settings::check(&mut draft);
        ingress::check(&mut draft);
        telemetry::check(&mut draft);
        upstreams::check(&mut draft);

        let mut findings = std::mem::take(&mut draft.findings);
        findings.extend(unreadable);
        let mut findings = findings.in_order();
        self.name_objects(&mut findings);
        let valid = !findings.iter().any(Finding::is_error);
        let specification =
            valid.then(|| draft.into_specification(revision.clone(), &self.specification));
        (findings, specification)
    }

    /// Names the object of policy at the spot of each finding, or else its file.
    fn name_objects(&self, findings: &mut [Finding]) {
        let outlines = self.parts.iter().map(|(document, part)| (&*document.path, &part.outline));
        let outlines: BTreeMap<&str, &Outline> = outlines.collect();
        for finding in findings.iter_mut().filter(|finding| finding.objects.is_empty()) {
            let Some(spot) = &finding.spot else { continue };
            let outline = outlines.get(&*spot.file);
            let object = outline.and_then(|outline| outline.object_at(spot.bytes.0)).cloned();
            let object = object.unwrap_or_else(|| ObjectRef::File(spot.file.to_string()));
            finding.objects.push(object);
        }
    }

    /// Reads the documents that changed since the last state, and drops those that are gone. Returns those
    /// that it read, if the changes have no effect on other documents.
    fn read(&mut self, documents: &[Document]) -> Option<Vec<Document>> {
        let mut known = std::mem::take(&mut self.parts);
        let paths = |document: &Document| Arc::clone(&document.path);
        let same_paths = known.keys().map(paths).eq(documents.iter().map(paths));
        let mut edited = Vec::new();
        for document in documents {
            let part = known.remove(document).unwrap_or_else(|| {
                self.parsed += 1;
                edited.push(document.clone());
                reading::read(document)
            });
            self.parts.insert(document.clone(), part);
        }
        // The remaining parts are the earlier versions of the edited documents, in the order of paths.
        let edits =
            edited.iter().filter_map(|document| self.parts.get(document)).zip(known.values());
        let is_quiet =
            same_paths && edits.into_iter().all(|(new, old)| new.differs_in_endpoints_only(old));
        is_quiet.then_some(edited)
    }
}

/// Whether the last findings still hold if these documents changed only in endpoints.
fn hold(findings: &[Finding], edited: &[Document]) -> bool {
    // Lines may have moved, so the spots may be wrong.
    let is_edited = |spot: &Spot| edited.iter().any(|document| document.path == spot.file);
    findings.iter().all(|finding| {
        let mut spots = finding.spot.iter().chain(finding.related.iter().map(|(spot, _)| spot));
        !finding.is_error() && !spots.any(is_edited)
    })
}
