//! The invariants of an import, for any input. `tests/golden` compares its output.

use ironmesh_catalog::{MeshSpecification, PolicyRevision, Service, Spot};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::sync::Arc;

use super::*;
use crate::Loaded;

/// A resource with the given `spec` as JSON, which is also YAML.
fn resource(api_version: &str, kind: &str, (namespace, name): (&str, &str), spec: &str) -> String {
    let metadata = match namespace {
        "" => format!("{{ name: {name} }}"),
        _ => format!("{{ name: {name}, namespace: {namespace} }}"),
    };
    format!("---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {metadata}\n{spec}\n")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

const NAMES: [&str; 4] = ["store", "store", "buyer", "a"];
const NAMESPACES: [&str; 3] = ["", "default", "shop"];
/// Expressions with every character that TOML and YAML must quote.
const EXPRESSIONS: [&str; 8] = [
    "/books",
    "/books/[0-9]+$",
    r"/a\.b|/c",
    "/it's",
    "/say-\"x\"",
    r#"/both'"\d"#,
    "/# no comment",
    "/: {x}, [y]",
];

fn name() -> impl Strategy<Value = (&'static str, &'static str)> {
    (select(&NAMESPACES[..]), select(&NAMES[..]))
}

fn service() -> impl Strategy<Value = String> {
    let port = select(
        &[
            "{ name: http-a, port: 80 }",
            "{ name: tcp-b, port: 81, targetPort: 8081 }",
            "{ name: c, port: 82, appProtocol: grpc, protocol: TCP, nodePort: 30082 }",
            "{ name: main, port: 83, targetPort: main }",
        ][..],
    );
    let selector = select(&["{}", "{ app: store }", "{ app: none }"][..]);
    let ports = prop::collection::btree_set(port, 0..4);
    (name(), ports, selector).prop_map(|(name, ports, selector)| {
        let ports = list(ports.into_iter().map(str::to_owned));
        let spec = format!("spec: {{ type: ClusterIP, selector: {selector}, ports: {ports} }}");
        resource("v1", "Service", name, &spec)
    })
}

fn workload() -> impl Strategy<Value = String> {
    let account = select(&["", "serviceAccountName: buyer, "][..]);
    (select(&NAMESPACES[..]), account).prop_map(|(namespace, account)| {
        let ports = "ports: [{ name: main, containerPort: 8083 }]";
        let template = format!(
            "{{ metadata: {{ labels: {{ app: store }} }}, spec: {{ {account}containers: [{{ {ports} }}] }} }}"
        );
        resource("apps/v1", "Deployment", (namespace, "work"), &format!("spec: {{ template: {template} }}"))
    })
}

fn group() -> impl Strategy<Value = String> {
    let one = (
        select(&EXPRESSIONS[..]),
        subsequence(&["GET", "POST", "*"][..], 0..3),
        subsequence(&["x-a", "host", "odd.name"][..], 0..3),
    );
    let version = select(&["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"][..]);
    let matches = prop::collection::vec(one, 1..4);
    (name(), version, matches, any::<bool>()).prop_map(|(name, version, matches, is_list)| {
        let matches = matches.into_iter().enumerate().map(|(n, (path, methods, headers))| {
            let mut parts = vec![format!("name: m{n}"), format!("pathRegex: {}", quoted(path))];
            if !methods.is_empty() {
                parts.push(format!("methods: {}", list(methods.into_iter().map(quoted))));
            }
            if !headers.is_empty() {
                let headers = headers.into_iter().map(|name| format!("{name}: {}", quoted(path)));
                let headers: Vec<_> = headers.collect();
                parts.push(if is_list {
                    let tables = headers.into_iter().map(|header| format!("{{ {header} }}"));
                    format!("headers: {}", list(tables))
                } else {
                    format!("headers: {{ {} }}", headers.join(", "))
                });
            }
            format!("{{ {} }}", parts.join(", "))
        });
        let matches = list(matches);
        let said = match version {
            "v1alpha1" | "v1alpha2" => format!("matches: {matches}"),
            _ => format!("spec: {{ matches: {matches} }}"),
        };
        resource(&format!("specs.smi-spec.io/{version}"), "HTTPRouteGroup", name, &said)
    })
}

fn tcp_route() -> impl Strategy<Value = String> {
    let spec = select(
        &["spec: {}", "spec: { matches: { ports: [] } }", "spec: { matches: { ports: [81] } }"][..],
    );
    (name(), spec)
        .prop_map(|(name, spec)| resource("specs.smi-spec.io/v1alpha4", "TCPRoute", name, spec))
}

fn target() -> impl Strategy<Value = String> {
    let source =
        (select(&NAMES[..]), select(&["default", "shop"][..])).prop_map(|(name, namespace)| {
            format!("{{ kind: ServiceAccount, name: {name}, namespace: {namespace} }}")
        });
    let rule = (
        select(&["HTTPRouteGroup", "TCPRoute", "UDPRoute"][..]),
        select(&NAMES[..]),
        any::<bool>(),
    )
        .prop_map(|(kind, name, has_matches)| {
            let is_http = kind == "HTTPRouteGroup";
            let matches = if has_matches && is_http { ", matches: [m0]" } else { "" };
            format!("{{ kind: {kind}, name: {name}{matches} }}")
        });
    let version = select(&["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"][..]);
    let (sources, rules) = (prop::collection::vec(source, 0..4), prop::collection::vec(rule, 1..3));
    (name(), select(&NAMES[..]), version, sources, rules).prop_map(
        |(name, to, version, sources, rules)| {
            let (sources, rules) = (list(sources), list(rules));
            let destination = format!("{{ kind: ServiceAccount, name: {to} }}");
            let said = match version {
                "v1alpha1" => {
                    format!("destination: {destination}\nsources: {sources}\nspecs: {rules}")
                }
                _ => format!(
                    "spec: {{ destination: {destination}, sources: {sources}, rules: {rules} }}"
                ),
            };
            resource(&format!("access.smi-spec.io/{version}"), "TrafficTarget", name, &said)
        },
    )
}

fn split() -> impl Strategy<Value = String> {
    let weight = select(&["0", "1", "90", "500m", "1.5"][..]);
    let version = select(&["v1alpha1", "v1alpha2", "v1alpha4"][..]);
    let backends = prop::collection::btree_map(select(&NAMES[..]), weight, 1..3);
    (name(), select(&NAMES[..]), version, backends).prop_map(
        |(name, service, version, backends)| {
            let backends = backends.into_iter();
            let backends =
                list(backends.map(|(service, weight)| {
                    format!("{{ service: {service}, weight: {weight} }}")
                }));
            let spec = format!("spec: {{ service: {service}, backends: {backends} }}");
            resource(&format!("split.smi-spec.io/{version}"), "TrafficSplit", name, &spec)
        },
    )
}

/// Arbitrary resources; most have an error.
fn anything() -> impl Strategy<Value = String> {
    let resource = prop_oneof![
        4 => service(),
        1 => workload(),
        2 => group(),
        1 => tcp_route(),
        2 => target(),
        1 => split(),
    ];
    prop::collection::vec(resource, 0..10).prop_map(|resources| resources.concat())
}

/// Policy in which most references resolve to exactly one object.
fn sound() -> impl Strategy<Value = String> {
    let other =
        prop_oneof![1 => service(), 1 => group(), 1 => tcp_route(), 6 => target(), 2 => split()];
    prop::collection::vec(other, 1..4).prop_map(|resources| {
        let named = ["store", "buyer", "a"].into_iter().flat_map(|name| {
            let here = |namespace| (namespace, name);
            let ports = "spec: { ports: [{ name: http-a, port: 80 }, { name: tcp-b, port: 81 }] }";
            let matches = "spec: { matches: [{ name: m0, methods: [GET] }] }";
            [
                resource("v1", "Service", here("default"), ports),
                resource("v1", "Service", here("shop"), ports),
                resource("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", here("default"), matches),
                resource("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", here("shop"), matches),
                resource("specs.smi-spec.io/v1alpha4", "TCPRoute", here("default"), "spec: {}"),
                resource("specs.smi-spec.io/v1alpha4", "TCPRoute", here("shop"), "spec: {}"),
            ]
        });
        let others = resources.into_iter().enumerate().map(|(n, text)| {
            let head = text.find("metadata: { name: ").unwrap() + "metadata: { name: ".len();
            format!("{}n{n}-{}", &text[..head], &text[head..])
        });
        named.chain(others).collect::<String>()
    })
}

fn policy() -> impl Strategy<Value = String> {
    prop_oneof![anything(), sound()]
}

/// The content of a specification, without the spots.
fn meaning(loaded: &Loaded) -> Option<MeshSpecification> {
    let specification = loaded.specification.as_ref()?;
    let nowhere = Spot::new(&"".into(), "", 0..0);
    let services = specification.services.iter().map(|(name, service)| {
        (name.clone(), Arc::new(Service { spot: nowhere.clone(), ..Service::clone(service) }))
    });
    let (services, revision) = (services.collect(), PolicyRevision("".into()));
    Some(MeshSpecification { services, revision, ..MeshSpecification::clone(specification) })
}

proptest! {
    #[test]
    fn imported_toml_has_the_meaning_of_its_yaml(text in policy()) {
        let yaml = Document::new("p.yaml", text.as_str());
        let direct = load_documents([yaml.clone()]);
        let imported = import(&[yaml], Some(ImportDialect::Smi), "p.toml").unwrap();
        let again = load_documents([Document::new("p.toml", imported.toml.as_str())]);
        let others: Vec<_> =
            again.findings.iter().filter(|finding| finding.code != codes::NOT_FOUND).cloned().collect();
        prop_assert_eq!(&others, &imported.findings);
        if direct.specification.is_some() {
            prop_assert!(imported.left_out.is_empty(), "{:#?}\n{}", imported.left_out, text);
            prop_assert_eq!(meaning(&again), meaning(&direct), "{}\n{}", text, imported.toml);
        } else {
            let reported = imported.left_out.len() + imported.missing.len()
                + imported.findings.iter().filter(|finding| finding.is_error()).count();
            // The import writes equal objects once.
            let is_repeated = |finding: &Finding| finding.code == codes::DUPLICATE_NAME;
            let errors = || direct.findings.iter().filter(|finding| finding.is_error());
            prop_assert!(reported > 0 || errors().all(is_repeated), "{:#?}\n{text}\n{}", direct.findings, imported.toml);
        }
    }

    #[test]
    fn import_is_independent_of_the_file_order(
        texts in prop::collection::vec(policy(), 2..4)
    ) {
        let documents: Vec<_> =
            texts.iter().enumerate().map(|(n, text)| Document::new(format!("{n}.yaml"), text.as_str())).collect();
        let mut reversed = documents.clone();
        reversed.reverse();
        let tables = |documents: &[Document]| {
            let toml = import(documents, Some(ImportDialect::Osm), "p.toml").unwrap().toml;
            toml.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        prop_assert_eq!(tables(&documents), tables(&reversed));
    }
}

#[test]
fn ambiguous_path_regex_requires_the_origin_of_the_import() {
    let group = |regex: &str| {
        let spec = format!("spec: {{ matches: [{{ name: all, pathRegex: {} }}] }}", quoted(regex));
        resource("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", ("", "g"), &spec)
    };
    let import = |text: &str, dialect| import(&[Document::new("p.yaml", text)], dialect, "p.toml");
    let Err(ImportError::Unclear(places)) = import(&group("/books"), None) else { panic!() };
    assert_eq!(places.len(), 1);
    assert_eq!(places[0].0.to_string(), "p.yaml:5:43");
    assert!(import(&group("/books.*"), None).is_ok());
    let path = |dialect| {
        let toml = import(&group("/books"), Some(dialect)).unwrap().toml;
        toml.lines().find(|line| line.contains("path_regex =")).unwrap().to_owned()
    };
    assert_eq!(path(ImportDialect::Smi), r#"matches = [{ name = "all", path_regex = "/books" }]"#);
    assert_eq!(path(ImportDialect::Osm), r#"matches = [{ name = "all", path_regex = "/books$" }]"#);
}

#[test]
fn object_with_an_unknown_narrowing_key_is_left_out_entirely() {
    for (api_version, kind, spec) in [
        (
            "specs.smi-spec.io/v1alpha4",
            "HTTPRouteGroup",
            "spec: { matches: [{ name: all, pathRegx: /a }] }",
        ),
        ("specs.smi-spec.io/v1alpha4", "TCPRoute", "spec: { matches: { port: [80] } }"),
        (
            "access.smi-spec.io/v1alpha3",
            "TrafficTarget",
            "spec: { destination: { name: a }, sources: [{ name: a }], rules: [{ kind: HTTPRouteGroup, \
             name: g, match: [x] }] }",
        ),
        (
            "split.smi-spec.io/v1alpha4",
            "TrafficSplit",
            "spec: { service: a, backends: [{ service: a, weight: 1 }], match: [{ name: g }] }",
        ),
    ] {
        let text = resource(api_version, kind, ("", "a"), spec);
        let imported =
            import(&[Document::new("p.yaml", text)], Some(ImportDialect::Smi), "p.toml").unwrap();
        assert_eq!(
            (imported.carried, imported.left_out.len()),
            (0, 1),
            "{kind}\n{}",
            imported.toml
        );
    }
}

#[test]
fn hostile_name_of_an_imported_object_stays_in_its_comment() {
    let name = "\"a\\r\\n[[service]]\\nname = 'x'\\u0007\"";
    let text = format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1\nkind: Egress\nmetadata: {{ name: {name} }}\n\
         spec: {{ a: \"x\" }}\n"
    );
    let imported = import(&[Document::new("p.yaml", text)], None, "p.toml").unwrap();
    assert_eq!(imported.carried, 0);
    assert!(imported.findings.is_empty(), "{:#?}", imported.findings);
    assert!(
        imported.toml.lines().all(|line| line.is_empty() || line.starts_with('#')),
        "{}",
        imported.toml
    );
}
