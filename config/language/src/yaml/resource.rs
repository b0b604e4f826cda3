//! Resources: the YAML documents with a kind and an API version, and the items of lists.

use std::ops::Range;

use ironmesh_catalog::{Finding, Spot};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parse::Parsed;
use crate::codes;
use crate::table::{FindingReported, Reader, Table, Value};

/// One resource of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resource<'a> {
    pub(super) reader: &'a Reader<'a>,
    written: &'a Spanned<DeValue<'a>>,
    entries: &'a DeTable<'a>,
}

/// The resources of `parsed`, in order. Other documents are reported.
pub(super) fn resources<'a>(
    reader: &'a Reader<'a>,
    parsed: &'a Parsed<'a>,
) -> Vec<Result<Resource<'a>, FindingReported>> {
    let mut found = Vec::new();
    let mut open: Vec<_> = parsed.documents.iter().rev().collect();
    while let Some(written) = open.pop() {
        let DeValue::Table(entries) = written.get_ref() else {
            let message = "a YAML document must be a resource";
            let spot = reader.spot(written.span());
            let finding = Finding::error(codes::UNKNOWN_RESOURCE, Some(spot), message);
            let finding = finding.label(written.get_ref().type_str());
            found.push(Err(
                reader.report(finding.help("it has `apiVersion`, `kind` and `metadata`"))
            ));
            continue;
        };
        // `kubectl get -o yaml` writes a `List`; clients of Go write a `TrafficTargetList`.
        let is_list = entries.get("kind").and_then(|kind| kind.get_ref().as_str());
        let items = entries.get("items").and_then(|items| items.get_ref().as_array());
        match items {
            Some(items) if is_list.is_some_and(|kind| kind.ends_with("List")) => {
                open.extend(items.iter().rev());
            }
            _ => found.push(Ok(Resource { reader, written, entries })),
        }
    }
    found
}

impl<'a> Resource<'a> {
    /// The span of the resource.
    pub(super) fn span(&self) -> Range<usize> {
        self.written.span()
    }

    /// The span of its kind; that of its beginning, if it has none.
    pub(super) fn at(&self) -> Range<usize> {
        match self.entries.get_key_value("kind") {
            Some((key, kind)) => key.span().start..kind.span().end,
            None => self.span(),
        }
    }

    /// The spot of [`Resource::at`].
    pub(super) fn spot(&self) -> Spot {
        self.reader.spot(self.at())
    }

    /// Whether it has neither a kind nor an API version.
    pub(super) fn has_no_type(&self) -> bool {
        !self.entries.contains_key("kind") && !self.entries.contains_key("apiVersion")
    }

    /// Its kind, if it names one.
    pub(super) fn kind(&self) -> Option<&'a str> {
        self.string("kind")
    }

    /// The group of its API version, which is empty for the core of Kubernetes, and the version in it.
    pub(super) fn api_version(&self) -> Option<(&'a str, &'a str)> {
        let written = self.string("apiVersion")?;
        Some(written.split_once('/').unwrap_or(("", written)))
    }

    /// The span of its API version.
    pub(super) fn api_version_spot(&self) -> Spot {
        let at = self.entries.get("apiVersion").map_or_else(|| self.at(), Spanned::span);
        self.reader.spot(at)
    }

    /// Its name, if it has one.
    pub(super) fn name(&self) -> Option<&'a str> {
        self.metadata_value("name")?.get_ref().as_str()
    }

    /// Its namespace, or the default namespace.
    pub(super) fn namespace(&self) -> &'a str {
        let written = self.metadata_value("namespace").and_then(|value| value.get_ref().as_str());
        written.unwrap_or("default")
    }

    /// A key of its metadata.
    pub(super) fn metadata_value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get("metadata")?.get_ref().as_table()?.get(key)
    }

    /// A table in it, by the keys that lead there.
    pub(super) fn below(&self, keys: &[&str]) -> Option<&'a DeTable<'a>> {
        keys.iter().try_fold(self.entries, |table, key| table.get(*key)?.get_ref().as_table())
    }

    /// The whole resource, as a table to read.
    pub(super) fn table(&self, what: &'static str) -> Table<'a> {
        Table::new(self.reader, self.entries, self.at(), what)
    }

    /// Its content: `spec`, or the whole resource in versions without one.
    pub(super) fn spec(
        &self,
        what: &'static str,
        has_spec: bool,
    ) -> Result<Table<'a>, FindingReported> {
        let mut table = self.table(what);
        for key in ["apiVersion", "kind", "metadata", "status"] {
            table.get(key);
        }
        // Clients of that time wrote `spec` for the old versions, too.
        if !has_spec && table.get("spec").is_none() {
            return Ok(table);
        }
        let spec = table.required("spec", |value: Value<'a>| value.table(what));
        table.finish();
        spec
    }

    fn string(&self, key: &str) -> Option<&'a str> {
        self.entries.get(key)?.get_ref().as_str()
    }

    /// Rejects keys without a value: `matches:` with nothing below it may mean "all", or its content may be
    /// lost. Metadata and status are not read.
    pub(super) fn reject_nulls(&self, nulls: &[Range<usize>]) -> Result<(), FindingReported> {
        let span = self.span();
        let apart = ["metadata", "status"].map(|key| self.entries.get(key).map(Spanned::span));
        let first = nulls.partition_point(|at| at.start < span.start);
        let mut result = Ok(());
        for at in nulls.iter().skip(first).take_while(|at| at.start < span.end) {
            let is_read = !apart.iter().flatten().any(|apart| apart.contains(&at.start));
            let key = self.reader.text().get(at.clone()).unwrap_or("");
            if is_read && !["metadata", "status"].contains(&key) {
                let message = format!("`{key}` has no value");
                let spot = self.reader.spot(at.clone());
                let finding = Finding::error(codes::INVALID_VALUE, Some(spot), message);
                let help = "give it a value, or remove it: an empty value never means all";
                result = Err(self.reader.report(finding.label("no value").help(help)));
            }
        }
        result
    }
}
