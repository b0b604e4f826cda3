//! Properties of compiled resources, on small random meshes. These include broken references, empty
//! lists and splits of all shapes, since the compiler must stay closed if validation fails.

mod agent_fed;
mod by_caller;
mod egress;
mod fallback;
mod handover;
mod health;
mod inbound;
mod ingress;
mod mesh;
mod mirrors;
mod model;
mod node_metadata;
mod references;
mod roles;
mod text_scan;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    Mode, Proxy, ProxyId, Service, ServiceName, ServicePort, Snapshot, Visibility,
};
use ironmesh_sidecar::envoy::CONTROL_PLANE_CLUSTER;
use ironmesh_xds_wire::{ResourceType, Version};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::names::port_of_own_cluster;
use crate::{Compiled, Compiler};
use mesh::{PartOrder, Shape, shape};

fn compile(snapshot: Snapshot, proxies: &[Proxy]) -> Vec<(Proxy, Compiled)> {
    let mut compiler = Compiler::new(Arc::new(snapshot));
    proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect()
}

fn compile_shape(shape: &Shape) -> Vec<(Proxy, Compiled)> {
    let (snapshot, proxies) = shape.build(PartOrder::default());
    compile(snapshot, &proxies)
}

/// All resources of each proxy, with the hashes of their bytes.
type Versions = BTreeMap<ProxyId, Vec<(ResourceType, Arc<str>, Version)>>;

fn versions(compiled: &[(Proxy, Compiled)]) -> Versions {
    let of_set = |compiled: &Compiled| {
        let resources = compiled.resources.iter();
        resources.map(|one| (one.resource_type(), Arc::clone(one.name()), one.version())).collect()
    };
    compiled.iter().map(|(proxy, compiled)| (proxy.record.id, of_set(compiled))).collect()
}

/// The resources of a type as JSON, by name.
fn content(compiled: &Compiled, of: ResourceType) -> BTreeMap<String, Value> {
    let resources = compiled.resources.of(of).values();
    resources.map(|one| (one.name().to_string(), one.to_json())).collect()
}

/// Calls `visit` with the value of every such key below `value`.
fn each<'a>(value: &'a Value, key: &str, visit: &mut impl FnMut(&'a Value)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each(item, key, visit)),
        Value::Object(fields) => {
            if let Some(found) = fields.get(key) {
                visit(found);
            }
            fields.values().for_each(|field| each(field, key, visit));
        }
        _ => {}
    }
}

/// The policies of an RBAC, which must have rules: without them, unlike with empty ones, it would
/// allow everything.
fn policies(rbac: &Value) -> BTreeMap<&String, &Value> {
    let rules = rbac["rules"].as_object().expect("an RBAC has rules");
    assert!(!rules.contains_key("action"), "the action is the default, ALLOW: {rules:?}");
    rules.get("policies").and_then(Value::as_object).into_iter().flatten().collect()
}

fn names(value: &Value) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    each(value, "principalName", &mut |name| {
        names.insert(name["exact"].as_str().expect("principals are exact"));
    });
    names
}

/// The prefix of all identities that may call a permissive service.
fn permissive_callers_prefix(service: &Service) -> String {
    match service.visibility {
        Visibility::Public => "spiffe://mesh.internal/ns/".to_owned(),
        Visibility::Private => format!("spiffe://mesh.internal/ns/{}/sa/", service.name.namespace),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn recompile_in_any_order_gives_the_same_bytes(
        shape in shape(),
        rotated in 0..8_usize,
        reversed: bool,
    ) {
        let first = versions(&compile_shape(&shape));
        let (snapshot, mut proxies) = shape.build(PartOrder { rotated, reversed });
        prop_assert_eq!(&versions(&compile(snapshot, &proxies)), &first);

        // Nor does it matter which other proxies are compiled, and in which order.
        proxies.reverse();
        let alone = proxies.iter().flat_map(|proxy| {
            compile(shape.build(PartOrder::default()).0, std::slice::from_ref(proxy))
        });
        prop_assert_eq!(&versions(&alone.collect::<Vec<_>>()), &first);
    }

    #[test]
    fn every_referenced_resource_exists(shape in shape()) {
        for (proxy, compiled) in compile_shape(&shape) {
            for (from, kind, name) in references::of(&compiled) {
                // The cluster that a bootstrap has.
                let is_static = kind == ResourceType::Cluster && name == CONTROL_PLANE_CLUSTER;
                prop_assert!(
                    is_static || compiled.resources.contains(kind, &name),
                    "{}: {from} → {kind} {name}", proxy.record.id,
                );
            }
        }
    }

    #[test]
    fn participation_resources_are_requested_by_the_proxy(shape in shape()) {
        for (proxy, compiled) in compile_shape(&shape) {
            let references = references::of(&compiled);
            for (kind, name, version) in &compiled.participation_resources {
                let resource = compiled.resources.of(*kind).get(name).map(|one| one.version());
                prop_assert_eq!(resource, Some(*version));
                let is_named = references.iter().any(|(from, of, to)| {
                    from == "listener inbound" && of == kind && **to == **name
                });
                // The proxy subscribes to all listeners and clusters.
                let is_own = match kind {
                    ResourceType::Listener => {
                        let prefixes = ["ingress|", "counted|", "callers|"];
                        &**name == "inbound" || prefixes.iter().any(|one| name.starts_with(one))
                    }
                    ResourceType::Cluster => port_of_own_cluster(name).is_some(),
                    _ => false,
                };
                prop_assert!(is_named || is_own, "{}: {kind} {name}", proxy.record.id);
            }
        }
    }

    #[test]
    fn http_port_allows_exactly_the_sources_of_its_targets(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        let model = model::Model::new(&snapshot);
        for (_, compiled) in compile(snapshot.clone(), &proxies) {
            let routes = content(&compiled, ResourceType::Route);
            for (service, number) in &compiled.serves.0 {
                let service = &snapshot.specification.services[service];
                let port = service.port(*number).unwrap();
                let name = ServicePort::new(service.name.clone(), *number);
                if !port.protocol.is_http() {
                    continue;
                }
                let host = &routes[&format!("inbound|{name}")]["virtualHosts"][0];
                let rbac = &host["typedPerFilterConfig"]["envoy.filters.http.rbac"]["rbac"];
                let mut policies = policies(rbac);
                policies.retain(|policy, _| !policy.starts_with("ingress "));
                for (policy, rules) in &policies {
                    for list in ["permissions", "principals"] {
                        let is_empty = rules[list].as_array().is_none_or(Vec::is_empty);
                        prop_assert!(!is_empty, "{policy} of {name} has no {list}: it would mean all");
                    }
                }
                let mode = snapshot.mode_of(service);
                let judges = json!({ "rules": rbac["shadowRules"] });
                prop_assert_eq!(mode == Mode::Audit, !rbac["shadowRules"].is_null());
                if mode == Mode::Audit {
                    let mut by_strict = self::policies(&judges);
                    by_strict.retain(|policy, _| !policy.starts_with("ingress "));
                    let by_strict = by_strict.into_values().flat_map(names);
                    let by_strict: BTreeSet<_> = by_strict.map(str::to_owned).collect();
                    prop_assert_eq!(by_strict, model.callers_of(service, port));
                }
                if mode.allows_all() {
                    let principals = &policies[&"permissive".to_owned()]["principals"];
                    let who = &principals[0]["authenticated"]["principalName"]["prefix"];
                    prop_assert_eq!(who, &permissive_callers_prefix(service));
                    prop_assert_eq!(principals.as_array().map(Vec::len), Some(1));
                    continue;
                }
                let allowed = policies.into_values().flat_map(names).map(str::to_owned);
                prop_assert_eq!(allowed.collect::<BTreeSet<_>>(), model.callers_of(service, port));
            }
        }
    }

    #[test]
    fn tcp_port_allows_exactly_its_callers_and_is_else_closed(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        let model = model::Model::new(&snapshot);
        for (proxy, compiled) in compile(snapshot.clone(), &proxies) {
            let secrets = content(&compiled, ResourceType::Secret);
            let services = proxy.record.services.iter();
            let services = services.filter_map(|name| snapshot.specification.services.get(name));
            // External services have no proxy.
            let services = services.filter(|service| service.external.is_none());
            for (service, (name, port)) in
                services.flat_map(|service| service.service_ports().map(move |port| (service, port)))
            {
                if port.protocol.is_http() {
                    continue;
                }
                let is_served = compiled.serves.0.contains(&(service.name.clone(), port.number));
                let Some(peers) = secrets.get(&format!("authz:{name}")) else {
                    prop_assert!(false, "{name} has no list of callers");
                    continue;
                };
                let list = &peers["validationContext"]["matchTypedSubjectAltNames"];
                let list = list.as_array().expect("without names anyone could call");
                let uris = list.iter().map(|one| { assert_eq!(one["sanType"], "URI"); &one["matcher"] });
                if snapshot.mode_of(service).allows_all() {
                    let all: Vec<_> = uris.map(|one| one["prefix"].as_str().unwrap()).collect();
                    prop_assert_eq!(all, [permissive_callers_prefix(service)]);
                    prop_assert!(is_served);
                } else {
                    let all = uris.map(|one| one["exact"].as_str().unwrap().to_owned());
                    let mut expected = model.callers_of(service, port);
                    prop_assert_eq!(is_served, !expected.is_empty());
                    if expected.is_empty() {
                        expected.insert("spiffe://nobody.invalid".to_owned());
                    }
                    prop_assert_eq!(all.collect::<BTreeSet<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn only_endpoints_of_permissive_services_are_called_in_plaintext(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        for (_, compiled) in compile(snapshot.clone(), &proxies) {
            let clusters = content(&compiled, ResourceType::Cluster);
            for (name, endpoints) in content(&compiled, ResourceType::Endpoint) {
                let service: ServiceName = name.split('|').next().unwrap().parse().unwrap();
                let service = &snapshot.specification.services[&service];
                if service.external.is_some() {
                    continue;
                }
                let mode = snapshot.mode_of(service);
                let matches = &clusters[&name]["transportSocketMatches"];
                let mut plaintext = 0;
                each(&endpoints, "envoy.transport_socket_match", &mut |_| plaintext += 1);
                prop_assert!(plaintext == 0 || mode.allows_all(), "{}", name);
                prop_assert!(plaintext == 0 || matches[0]["name"] == "plaintext", "{}", name);
                prop_assert!(matches.is_null() || mode.allows_all(), "{}", name);
                // Endpoints without plaintext metadata are called by mutual TLS.
                prop_assert_eq!(&clusters[&name]["transportSocket"]["name"], "envoy.transport_sockets.tls");
            }
        }
    }

    #[test]
    fn inbound_listener_denies_everything_by_itself(shape in shape()) {
        for (_, compiled) in compile_shape(&shape) {
            for (name, listener) in content(&compiled, ResourceType::Listener) {
                let (mut managers, mut filters) = (0, 0);
                each(&listener, "httpFilters", &mut |list| {
                    managers += 1;
                    // Revoked callers are refused, and repeated headers joined, before authorization.
                    let earlier = ["revoked", "ironmesh.headers.join"];
                    let mut rest = list.as_array().unwrap().iter();
                    let first = rest.find(|one| earlier.iter().all(|name| one["name"] != *name));
                    let first = first.unwrap();
                    if first["name"] == "envoy.filters.http.rbac" {
                        filters += 1;
                        assert!(policies(&first["typedConfig"]).is_empty(), "{first}");
                    }
                });
                let is_inbound = name == "inbound" || name.starts_with("ingress|");
                let expected = if is_inbound { managers } else { 0 };
                prop_assert_eq!(filters, expected, "{}", name);
            }
        }
    }

    #[test]
    fn every_outbound_listener_has_the_fault_filter(shape in shape()) {
        for (_, compiled) in compile_shape(&shape) {
            for (name, listener) in content(&compiled, ResourceType::Listener) {
                let is_fault = |filter: &Value| filter["name"] == "envoy.filters.http.fault";
                let is_of_callers = listener["trafficDirection"] == "OUTBOUND";
                let mut right = true;
                each(&listener, "httpFilters", &mut |list| {
                    let filters = list.as_array().unwrap();
                    right &= filters.iter().any(is_fault) == is_of_callers;
                });
                prop_assert!(right, "{}", name);
            }
        }
    }

    #[test]
    fn proxy_receives_only_services_in_its_scope(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        let model = model::Model::new(&snapshot);
        for (proxy, compiled) in compile(snapshot.clone(), &proxies) {
            let services = &snapshot.specification.services;
            let first = proxy.record.services.iter().find_map(|name| services.get(name));
            let callable = first.map(|s| model.callable(&s.account)).unwrap_or_default();
            let reached = callable.iter().flat_map(|port| model.reached(port));
            let scope: BTreeSet<_> = reached.map(|port| port.service).collect();

            let clusters = compiled.resources.of(ResourceType::Cluster).keys();
            let endpoints = compiled.resources.of(ResourceType::Endpoint).keys();
            // The egress cluster, collectors and rate limit services are no services of the mesh.
            let is_other = |name: &str| {
                ["egress", "telemetry|", "rate-limit|"].iter().any(|other| name.starts_with(other))
            };
            for name in clusters.chain(endpoints).filter(|name| !is_other(name)) {
                let service = name.split('|').next().unwrap().parse().unwrap();
                if port_of_own_cluster(name).is_some() {
                    prop_assert!(proxy.record.services.contains(&service), "{name} is not its own");
                } else {
                    prop_assert!(scope.contains(&service), "{} is told of {name}", proxy.record.id);
                }
            }
            let routes = content(&compiled, ResourceType::Route);
            let hosts = routes.get("outbound-http").map(|route| route["virtualHosts"].clone());
            let mut named = BTreeSet::new();
            for host in hosts.iter().flat_map(|hosts| hosts.as_array().unwrap()) {
                let name = host["name"].as_str().unwrap();
                named.extend(name.strip_prefix("outbound|").map(str::to_owned));
            }
            let is_http = |port: &&ServicePort| {
                services[&port.service].port(port.port).unwrap().protocol.is_http()
            };
            let names = |all: Vec<&ServicePort>| -> BTreeSet<_> {
                all.into_iter().map(ToString::to_string).collect()
            };
            let (of_the_mesh, outside): (Vec<_>, Vec<_>) = callable
                .iter()
                .filter(is_http)
                .partition(|port| services[&port.service].external.is_none());
            let of_the_mesh = names(of_the_mesh);
            prop_assert!(named.is_superset(&of_the_mesh), "{named:?} {of_the_mesh:?}");
            // Some external services have names that others already use.
            let others: BTreeSet<_> = named.difference(&of_the_mesh).cloned().collect();
            prop_assert!(names(outside).is_superset(&others), "{:?}", others);
        }
    }
}
