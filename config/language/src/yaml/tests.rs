//! The findings of YAML documents, and their meaning: equal to those of TOML in [`crate::policy`].

mod hostile;
mod kinds;
mod resources;
mod upstream_traffic_setting;

use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision, Service, Spot};

use crate::{Document, Loaded, load_documents, render};

/// Loads one document.
fn load(text: &str) -> Loaded {
    load_documents([Document::new("p.yaml", text)])
}

/// The findings of one document, as lines with the help behind them.
fn findings(text: &str) -> Vec<String> {
    let line = |finding: Finding| {
        let help = finding.help.as_ref().map_or(String::new(), |help| format!(" / {help}"));
        format!("{finding}{help}")
    };
    load(text).findings.into_iter().map(line).collect()
}

/// The one finding of one document.
fn finding(text: &str) -> String {
    let all = findings(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.into_iter().next().unwrap()
}

/// The specification of a document without findings.
fn specification(text: &str) -> Arc<MeshSpecification> {
    assert_eq!(findings(text), [""; 0]);
    load(text).specification.unwrap()
}

/// The content of a specification, without the spots.
fn meaning(specification: &MeshSpecification) -> MeshSpecification {
    let nowhere = Spot::new(&"".into(), "", 0..0);
    let services = specification.services.iter().map(|(name, service)| {
        (name.clone(), Arc::new(Service { spot: nowhere.clone(), ..Service::clone(service) }))
    });
    let revision = PolicyRevision("".into());
    MeshSpecification { services: services.collect(), revision, ..specification.clone() }
}

/// A resource by its parts.
fn resource(api_version: &str, kind: &str, name: &str, rest: &str) -> String {
    format!("---\napiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: {name}\n{rest}")
}

/// Two services, whose accounts others may name.
const SERVICES: &str = "\
---
apiVersion: v1
kind: Service
metadata:
  name: store
spec:
  ports:
  - name: http-web
    port: 80
---
apiVersion: v1
kind: Service
metadata:
  name: buyer
";

/// A target that all of it is right with.
const TARGET: &str = "\
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata:
  name: buyers
  namespace: default
spec:
  destination:
    kind: ServiceAccount
    name: store
    namespace: default
  sources:
  - kind: ServiceAccount
    name: buyer
    namespace: default
  rules:
  - kind: HTTPRouteGroup
    name: routes
    matches:
    - buy
";

const GROUP: &str = "\
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata:
  name: routes
spec:
  matches:
  - name: buy
    pathRegex: /books
    methods: [GET]
    headers:
    - user-agent: .*Firefox.*
    - x-team: \"[a-z]+\"
";

#[test]
fn yaml_policy_equals_the_same_policy_in_toml() {
    let toml = r#"
[[service]]
name = "store"
ports = [{ name = "http-web", port = 80, protocol = "http" }]
[[service]]
name = "buyer"
[[http_route_group]]
name = "routes"
[[http_route_group.matches]]
name = "buy"
path_regex = "/books"
methods = ["GET"]
headers = { user-agent = ".*Firefox.*", x-team = "[a-z]+" }
[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "routes", matches = ["buy"] }]
"#;
    let from_toml = load_documents([Document::new("p.toml", toml)]).specification.unwrap();
    let from_yaml = specification(&format!("{SERVICES}{TARGET}{GROUP}"));
    assert_eq!(meaning(&from_yaml), meaning(&from_toml));
}

#[test]
fn finding_is_rendered_from_yaml_lines() {
    let text = format!("{SERVICES}{}{GROUP}", TARGET.replace("name: buyer\n", "name: bayer\n"));
    let loaded = load(&text);
    assert_eq!(
        render(&loaded.findings, &loaded.documents, false),
        "\
error[IM0201]: no service runs as `bayer` in namespace `default`
  --> p.yaml:28:11
   |
28 |     name: bayer
   |           ^^^^^ not found
   |
   = help: did you mean `buyer`?
"
    );
}

#[test]
fn duplicate_name_in_yaml_and_toml_is_shown_with_both_locations() {
    let toml = Document::new("a.toml", "[[service]]\nname = \"store\"\n");
    let loaded = load_documents([toml, Document::new("b.yaml", SERVICES)]);
    assert_eq!(
        render(&loaded.findings, &loaded.documents, false),
        "\
error[IM0202]: service `store` is defined twice in namespace `default`
 --> b.yaml:5:9
  |
5 |   name: store
  |         ^^^^^ defined again
  |
 ::: a.toml:2:8
  |
2 | name = \"store\"
  |        ------- first defined here
"
    );
}

#[test]
fn yaml_document_is_parsed_again_only_after_a_change() {
    let mut loader = crate::Loader::default();
    let toml = Document::new("a.toml", "[[service]]\nname = \"other\"\n");
    let yaml = format!("{SERVICES}{TARGET}{GROUP}");
    let first = loader.load_documents([toml.clone(), Document::new("b.yaml", yaml.as_str())]);
    let edited = yaml.replace("/books", "/shelves");
    let second = loader.load_documents([toml, Document::new("b.yaml", edited.as_str())]);
    assert_eq!(loader.parsed(), 3);
    let (first, second) = (first.specification.unwrap(), second.specification.unwrap());
    assert!(!first.http_route_groups.ptr_eq(&second.http_route_groups));
    let other = "other".parse::<ironmesh_catalog::ServiceName>().unwrap();
    assert!(Arc::ptr_eq(&first.services[&other], &second.services[&other]));
}
