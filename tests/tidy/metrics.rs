//! Every metric that the documentation names is one that the control plane has.
//!
//! The variables of the Ansible collection have the same prefix, and exist, too.

use std::collections::BTreeSet;

use fs_err as fs;

use crate::links::documentation;
use crate::source::{shipped_sources, string_literals};
use crate::workspace::{metadata, root};

const PREFIX: &str = "ironmesh_";

/// What the exposition format appends to a name.
const SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_info"];

#[test]
fn metrics_in_documentation_exist() {
    let sources = shipped_sources();
    let literals: BTreeSet<_> =
        sources.iter().flat_map(|(_, source)| string_literals(source)).collect();
    let crates: BTreeSet<_> =
        metadata().packages.iter().map(|package| package.name.replace('-', "_")).collect();
    let variables = variables();
    let is_metric = |name: &&str| !crates.contains(*name) && !variables.contains(*name);
    let (mut unknown, mut count) = (Vec::new(), 0);
    for page in documentation() {
        let text = fs::read_to_string(&page).unwrap();
        for name in names(&text).filter(is_metric) {
            count += 1;
            let stem = name.trim_start_matches(PREFIX);
            let stem = SUFFIXES.iter().find_map(|end| stem.strip_suffix(end)).unwrap_or(stem);
            // The exposition format appends the unit, too.
            let without_unit = stem.strip_suffix("_seconds").unwrap_or(stem);
            // A pattern such as `ironmesh_endpoints_services_…` names several.
            let exists = |literal: &&str| match stem.strip_suffix('_') {
                Some(pattern) => literal.starts_with(pattern),
                None => [stem, without_unit].contains(literal),
            };
            if !literals.iter().any(exists) {
                unknown.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(count > 10, "only {count} metrics found");
    assert!(unknown.is_empty(), "unknown metrics:\n{}", unknown.join("\n"));
}

/// The words of a text that begin as metrics do.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // The names of packages have a version.
    words.filter(|word| {
        word.strip_prefix(PREFIX)
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// The variables and groups of the Ansible collection, which begin as metrics do.
fn variables() -> BTreeSet<String> {
    let collection = root().join("deploy-ansible");
    let roles = fs::read_dir(collection.join("roles")).unwrap();
    let specs = roles.map(|role| role.unwrap().path().join("meta/argument_specs.yml"));
    let others = ["playbooks/vars/playbooks.yml", "inventories/static/hosts.yml"];
    let texts = specs.chain(others.map(|file| collection.join(file))).map(fs::read_to_string);
    texts.flat_map(|text| names(&text.unwrap()).map(str::to_owned).collect::<Vec<_>>()).collect()
}
