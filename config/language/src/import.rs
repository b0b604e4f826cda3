//! The importer: translates YAML policy of SMI and Open Service Mesh into TOML policy.
//!
//! A resource that the policy language cannot express becomes a comment with the reason. So does a
//! resource whose meaning changes. The importer never drops anything silently, and never guesses a
//! right of access: where SMI and Open Service Mesh differ in what they allow, the user must choose whose
//! rules applied to the resources (docs/decisions/0023).

mod clients;
mod remarks;
#[cfg(test)]
mod tests;
mod writing;

use ironmesh_catalog::{Finding, Spot};

use self::remarks::Remarks;
use self::writing::Table;
use crate::codes;
use crate::document::Document;
use crate::policy::load_documents;
use crate::table::Reader;
use crate::yaml::{self, Mapper, Outcome};

pub use crate::yaml::ImportDialect;

/// The result of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The policy in TOML, with comments.
    pub toml: String,
    /// The number of resources in the policy.
    pub carried: usize,
    /// The resources, or parts of them, that could not be imported.
    pub left_out: Vec<Remark>,
    /// The resources whose policy differs from the input.
    pub changed: Vec<Remark>,
    /// The objects that the policy refers to and the input does not have.
    pub missing: Vec<String>,
    /// The findings of the policy that was written.
    pub findings: Vec<Finding>,
}

/// A remark about one resource of the input.
#[derive(Debug, Clone)]
pub struct Remark {
    /// The spot of the resource.
    pub spot: Spot,
    /// The resource: its kind, namespace and name.
    pub resource: String,
    /// The text of the remark.
    pub text: String,
}

/// The reason why nothing was imported.
#[derive(Debug, Clone)]
pub enum ImportError {
    /// The input is not YAML.
    Broken(Vec<Finding>),
    /// SMI and Open Service Mesh differ in what the resources at these spots allow; each has an explanation.
    Unclear(Vec<(Spot, String)>),
}

/// Writes the policy of `documents` in TOML, as the document `path`.
///
/// `dialect` may be omitted for input with the same meaning in both.
pub fn import(
    documents: &[Document],
    dialect: Option<ImportDialect>,
    path: &str,
) -> Result<Imported, ImportError> {
    let readers: Vec<_> = documents.iter().map(Reader::yaml).collect();
    let parsed: Vec<_> = readers.iter().map(yaml::parse).collect();
    let broken: Vec<_> = parsed.iter().flat_map(|parsed| parsed.findings.clone()).collect();
    if !broken.is_empty() {
        return Err(ImportError::Broken(broken));
    }
    let sources = || readers.iter().zip(&parsed);
    let mapper = Mapper::new(dialect.unwrap_or(ImportDialect::Smi), sources());
    let mut remarks = Remarks::default();
    let mut tables = Vec::new();
    let mut unclear = Vec::new();
    for (reader, parsed) in sources() {
        let mut outcomes = mapper.map(reader, parsed);
        let findings = reader.take_findings().into_vec();
        for outcome in &mut outcomes {
            let reported = findings.get(outcome.findings.clone()).unwrap_or_default();
            // A policy must not become wider because an unknown key is dropped.
            if reported.iter().any(|finding| finding.code == codes::UNKNOWN_KEY) {
                outcome.mapped = None;
            }
        }
        remarks.add_source(reader.text(), &outcomes, &findings);
        for Outcome { mapped, namespace, name, differences, .. } in outcomes {
            unclear.extend(differences.into_iter().map(|one| (one.spot, one.what)));
            tables.extend(mapped.map(|mapped| (mapped, namespace, name)));
        }
    }
    if dialect.is_none() && !unclear.is_empty() {
        return Err(ImportError::Unclear(unclear));
    }
    let mut tables: Vec<_> = tables
        .into_iter()
        .zip(remarks.take_of_tables())
        .map(|((mapped, namespace, name), remarks)| Table {
            kind: mapped.kind,
            namespace,
            name: name.unwrap_or(""),
            entries: mapped.table,
            remarks,
        })
        .collect();
    tables.extend(clients::services_of_workloads(&tables, mapper.workloads()));

    let mut toml = writing::header(documents, dialect);
    // Files overlap: identical definitions are one policy.
    let mut written: Vec<_> = tables.iter().map(|table| (table.order(), table.written())).collect();
    written.sort();
    written.dedup();
    toml.extend(written.iter().map(|(_, text)| text.as_str()));
    remarks.write_left_out(&mut toml);
    let loaded = load_documents([Document::new(path, toml.as_str())]);
    let (missing, findings): (Vec<_>, Vec<_>) =
        loaded.findings.into_iter().partition(|finding| finding.code == codes::NOT_FOUND);
    let mut missing: Vec<_> = missing.into_iter().map(|finding| finding.message).collect();
    missing.sort();
    missing.dedup();
    writing::missing(&mut toml, &missing);
    let Remarks { left_out, changed, .. } = remarks;
    Ok(Imported { toml, carried: written.len(), left_out, changed, missing, findings })
}
