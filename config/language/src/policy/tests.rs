//! Findings of policy documents by kind of object. Tests compare their one-line form with the help.

mod across;
mod again;
mod egress;
mod endpoints;
mod external;
mod health;
mod http_route;
mod http_route_group;
mod http_route_message;
mod identity_binding;
mod large;
mod namespace;
mod needless;
mod service;
mod syntax;
mod tcp_route;
mod telemetry;
mod traffic_split;
mod traffic_target;
mod upstream_traffic_setting;
mod upstreams;

use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification};

use super::*;

/// Loads one document.
fn load_one(text: &str) -> Loaded {
    load_documents([Document::new("p.toml", text)])
}

/// The findings of one document, as lines.
fn findings(text: &str) -> Vec<String> {
    lines(&load_one(text))
}

fn lines(loaded: &Loaded) -> Vec<String> {
    let help =
        |finding: &Finding| finding.help.as_ref().map_or(String::new(), |h| format!(" / {h}"));
    loaded.findings.iter().map(|finding| format!("{finding}{}", help(finding))).collect()
}

/// The one finding of one document.
fn finding(text: &str) -> String {
    let all = findings(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.into_iter().next().unwrap()
}

/// The specification of a document without findings.
fn specification(text: &str) -> Arc<MeshSpecification> {
    let loaded = load_one(text);
    assert_eq!(lines(&loaded), [""; 0]);
    loaded.specification.unwrap()
}

/// A service that others can refer to, with one port.
fn with_service(name: &str, text: &str) -> String {
    format!(
        "{text}\n[[service]]\nname = \"{name}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n"
    )
}

/// The example of the design, without its endpoints from Consul.
const BOOKSTORE: &str = include_str!("tests/bookstore.toml");

#[test]
fn bookstore_example_loads_without_findings() {
    let specification = specification(BOOKSTORE);
    let services: Vec<String> = specification.services.keys().map(ToString::to_string).collect();
    let names = ["bookbuyer", "bookstore", "bookstore-v1", "bookstore-v2"];
    assert_eq!(services, names.map(|name| format!("default/{name}")));
    let account = "bookstore".parse().unwrap();
    assert_eq!(
        specification.services.values().filter(|service| service.account == account).count(),
        3
    );
    let split = specification.traffic_splits.values().next().unwrap();
    assert_eq!(split.backends.iter().map(|backend| backend.weight).sum::<u32>(), 100);
    let v1 = specification
        .services
        .get(&"bookstore-v1".parse::<ironmesh_catalog::ServiceName>().unwrap())
        .unwrap();
    assert_eq!(v1.ports[0].target, 8080);
    assert_eq!(v1.spot.to_string(), "p.toml:7:8");
}

#[test]
fn empty_document_list_is_a_policy_without_grants() {
    let loaded = load_documents([]);
    assert!(loaded.findings.is_empty());
    assert!(loaded.specification.unwrap().traffic_targets.is_empty());
}

#[test]
fn revision_depends_on_content_not_order_and_has_twelve_digits() {
    let (a, b) = (Document::new("a.toml", "# a"), Document::new("b.toml", "# b"));
    let revision = |documents: &[Document]| load_documents(documents.to_vec()).revision;
    assert_eq!(revision(&[a.clone(), b.clone()]), revision(&[b.clone(), a.clone()]));
    assert_ne!(revision(&[a.clone(), b]), revision(&[a.clone(), Document::new("b.toml", "# c")]));
    let digits = revision(&[a]).to_string();
    assert!(digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{digits}");
}

#[test]
fn policy_of_five_thousand_traffic_targets_loads() {
    use std::fmt::Write;
    let mut text = String::new();
    for n in 0..1000 {
        writeln!(
            text,
            "[[service]]\nname = \"s{n}\"\nports = [{{ port = 80, protocol = \"http\" }}]"
        )
        .unwrap();
        writeln!(text, "[[http_route_group]]\nname = \"g{n}\"\nmatches = [{{ name = \"m\" }}]")
            .unwrap();
        for source in 0..5 {
            writeln!(
                text,
                "[[traffic_target]]\nname = \"t{n}-{source}\"\ndestination = {{ name = \"s{n}\" }}\n\
                 sources = [{{ name = \"s{source}\" }}]\nrules = [{{ kind = \"HTTPRouteGroup\", name = \"g{n}\" }}]"
            )
            .unwrap();
        }
    }
    assert_eq!(specification(&text).traffic_targets.len(), 5000);
}
