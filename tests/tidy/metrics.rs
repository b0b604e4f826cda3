//! Every metric that the documentation, the alert rules and the dashboard name is one that the control plane has, and each
//! alert has a section of the documentation.
//!
//! The variables of the Ansible collection have the same prefix, and exist, too.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fs_err as fs;

use crate::links::documentation;
use crate::source::{shipped_sources, string_literals};
use crate::workspace::{metadata, root};

const PREFIX: &str = "ironmesh_";

/// The beginning of the metrics of a process.
const PROCESS: &str = "process_";

/// The folder of the alert rules and the dashboard.
const OPERATIONS: &str = "docs/operations";

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
    for page in documentation().into_iter().chain(rules_and_dashboard()) {
        let text = fs::read_to_string(&page).unwrap();
        for name in names(&text, PREFIX).filter(is_metric) {
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

#[test]
fn metrics_of_the_process_in_rules_and_dashboard_exist() {
    let sources = shipped_sources();
    let literals: BTreeSet<_> =
        sources.iter().flat_map(|(_, source)| string_literals(source)).collect();
    let mut count = 0;
    let pages = [root().join("docs/reference/metrics.md")];
    for page in rules_and_dashboard().into_iter().chain(pages) {
        let text = fs::read_to_string(&page).unwrap();
        for name in names(&text, PROCESS).filter(|name| *name != PROCESS) {
            count += 1;
            let stem = name.strip_suffix("_total").unwrap_or(name);
            assert!(literals.contains(stem), "{}: {name}", page.display());
        }
    }
    assert!(count > 10, "only {count} metrics found");
}

#[test]
fn every_alert_has_a_severity_and_a_section() {
    let rules = fs::read_to_string(root().join(OPERATIONS).join("alerts.yml")).unwrap();
    let page = fs::read_to_string(root().join(OPERATIONS).join("prometheus.md")).unwrap();
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut alerts = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let (alert, rest) = rule.split_once('\n').unwrap();
        let value = |key: &str| {
            let lines = rest.lines().filter_map(|line| line.trim().strip_prefix(key));
            lines.collect::<String>().trim().to_owned()
        };
        let (severity, time) = (value("severity:"), value("for:"));
        assert!(["critical", "warning"].contains(&&*severity), "{alert}: {severity}");
        let anchor = alert.to_lowercase();
        assert_eq!(value("page:"), format!("{OPERATIONS}/prometheus.md#{anchor}"));
        let row = format!("| [{alert}](#{anchor}) | {time} | {severity} |\n");
        assert!(page.contains(&row), "no row {row}");
        assert!(value("summary:").len() > 10 && value("description:").len() > 10, "{alert}");
        alerts.push(alert);
    }
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!(headings, alerts);
}

/// The files of the operations folder that Prometheus and Grafana import.
fn rules_and_dashboard() -> Vec<PathBuf> {
    let files = ["alerts.yml", "alerts_test.yml", "dashboard.json"];
    files.map(|file| root().join(OPERATIONS).join(file)).into()
}

/// The words of a text that begin with this prefix, as metrics do.
fn names<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // The names of packages have a version.
    words.filter(move |word| {
        word.strip_prefix(prefix)
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
    texts
        .flat_map(|text| names(&text.unwrap(), PREFIX).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}
