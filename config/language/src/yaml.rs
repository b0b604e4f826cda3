//! SMI resources in YAML, read as if they were written in TOML.
//!
//! YAML becomes trees of the type to which TOML is parsed, whose spans are bytes of the YAML text
//! ([`parse`](mod@parse)). Resources are found in the trees ([`resource`]), and each becomes the equivalent
//! table of the policy language ([`mapping`]). After that, the same readers read the tables as for TOML, and
//! their findings point at lines of YAML.
//!
//! Content of a resource that no table can express is never dropped silently: it is a finding, or, on import,
//! a comment.

mod json;
mod mapping;
mod names;
mod parse;
mod positions;
mod quantity;
mod resource;
mod scalar;
#[cfg(test)]
mod tests;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use ironmesh_catalog::Finding;

use crate::table::Reader;

pub use json::yaml_value;
pub use mapping::ImportDialect;
pub(crate) use mapping::{Mapped, Mapper, Outcome, Workload};
pub(crate) use names::guess as guess_names;
pub(crate) use parse::{Parsed, parse};

/// The content of a YAML document, as a TOML document would have it.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    /// The tables, by their kinds.
    pub(crate) root: DeTable<'a>,
    /// The syntax findings.
    pub(crate) broken: Vec<Finding>,
    /// Names that something unreadable may define.
    pub(crate) may_be_defined: Vec<String>,
}

/// The equivalent tables of `parsed`, by the rules of the SMI specification.
pub(crate) fn tree<'a>(reader: &'a Reader<'a>, parsed: &'a Parsed<'a>) -> Tree<'a> {
    let mapper = Mapper::new(ImportDialect::Smi, [(reader, parsed)]);
    let mut tree = Tree { broken: parsed.findings.clone(), ..Tree::default() };
    if !tree.broken.is_empty() {
        tree.may_be_defined = guess_names(reader.text());
    }
    for outcome in mapper.map(reader, parsed) {
        let Some(Mapped { kind, at, table }) = outcome.mapped else {
            tree.may_be_defined.extend(outcome.name.map(str::to_owned));
            continue;
        };
        let table = Spanned::new(at.clone(), DeValue::Table(table));
        if let Some(DeValue::Array(items)) = tree.root.get_mut(kind.key()).map(Spanned::get_mut) {
            items.push(table);
        } else {
            let items = DeValue::Array(std::iter::once(table).collect());
            tree.root.insert(Spanned::new(at.clone(), kind.key().into()), Spanned::new(at, items));
        }
    }
    tree
}
