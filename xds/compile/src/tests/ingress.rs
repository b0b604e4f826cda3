//! Ingress: it admits the callers that policy names and no others, and rules that meet at a proxy
//! yield nothing that Envoy would reject.

use std::collections::BTreeSet;

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::ResourceType;
use proptest::prelude::*;
use serde_json::Value;

use super::mesh::{PartOrder, Shape, shape};
use super::{compile, content, policies};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn ingress_callers_are_named_and_distinct_from_mesh_callers(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        for (_, compiled) in compile(snapshot.clone(), &proxies) {
            for (name, routes) in content(&compiled, ResourceType::Route) {
                let Some(port) = name.strip_prefix("inbound|") else { continue };
                let port: ServicePort = port.parse().unwrap();
                let rbac = &routes["virtualHosts"][0]["typedPerFilterConfig"]["envoy.filters.http.rbac"]["rbac"];
                let policies = policies(rbac);
                let outside = policies.iter().filter(|(name, _)| name.starts_with("ingress "));
                for (policy, rules) in outside {
                    let ingress_rules = &snapshot.ingress_rules[&port];
                    let is_it = |rule: &&ironmesh_catalog::IngressRule| {
                        let (namespace, name) = (&rule.policy.namespace, &rule.policy.name);
                        **policy == format!("ingress {namespace}/{name} {}", rule.entry.protocol())
                    };
                    let rule = ingress_rules.iter().find(is_it).unwrap();
                    let principals = rules["principals"][0]["andIds"]["ids"].as_array().unwrap();
                    prop_assert_eq!(rules["principals"].as_array().map(Vec::len), Some(1));
                    let any_of = |kind: &str| {
                        let lists = principals.iter().filter_map(|one| one["orIds"]["ids"].as_array());
                        lists.flatten().filter(|one| !one[kind].is_null()).count()
                    };
                    let by_name = any_of("authenticated");
                    prop_assert!(by_name == rule.principals().count(), "{policy}: {rules:#}");
                    let by_address = any_of("directRemoteIp");
                    prop_assert!(by_address == rule.ranges.as_ref().map_or(0, BTreeSet::len));
                    prop_assert!(by_name + by_address > 0, "{policy}: {rules:#}");
                    prop_assert!(rule.ranges.is_none() || by_address > 0, "{policy}: {rules:#}");
                    // A condition that the mesh's own callers never satisfy.
                    let is_plain = principals.iter().any(|one| !one["notId"]["authenticated"].is_null());
                    let requests = rules["permissions"].as_array().unwrap();
                    let asks = |one: &Value| {
                        let name = &one["andRules"]["rules"][0]["orRules"]["rules"][0]["requestedServerName"];
                        !name.is_null()
                    };
                    prop_assert!(!requests.is_empty());
                    prop_assert!(is_plain || requests.iter().all(asks), "{policy}: {rules:#}");
                }
            }
        }
    }

    #[test]
    fn filter_chain_matches_and_listener_addresses_are_unique(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        for (proxy, compiled) in compile(snapshot, &proxies) {
            let listeners = content(&compiled, ResourceType::Listener);
            let mut addresses = BTreeSet::new();
            for (name, listener) in &listeners {
                let address = &listener["address"];
                // Internal listeners have none.
                let is_new = address.is_null() || addresses.insert(address.to_string());
                prop_assert!(is_new, "{name} of {}", proxy.record.id);
                let mut matches = BTreeSet::new();
                for chain in listener["filterChains"].as_array().into_iter().flatten() {
                    let one = &chain["filterChainMatch"];
                    let offers = one["applicationProtocols"].to_string();
                    for host in one["serverNames"].as_array().into_iter().flatten() {
                        prop_assert!(matches.insert((host.to_string(), offers.clone())), "{host}");
                        let is_of_mesh = host.as_str().unwrap().ends_with(".s0.n0.mesh.internal");
                        prop_assert!(!is_of_mesh || offers.contains("ironmesh"), "{host}");
                    }
                }
            }
            let ingress: Vec<_> = listeners.keys().filter(|name| name.starts_with("ingress|")).collect();
            let is_served = |name: &&&String| {
                compiled.serves.0.iter().any(|(service, port)| name.starts_with(&format!("ingress|{service}|{port}|")))
            };
            prop_assert_eq!(ingress.iter().filter(|name| is_served(name)).count(), ingress.len());
        }
    }
}

#[test]
fn duplicate_ingress_host_keeps_the_first_and_is_reported() {
    let (snapshot, proxies) = Shape::with_duplicate_ingress_host().build(PartOrder::default());
    let compiled = compile(snapshot, &proxies);
    let [(_, compiled)] = &compiled[..] else { panic!("there is one proxy") };
    let listener = &content(compiled, ResourceType::Listener)["inbound"];
    let chains = listener["filterChains"].as_array().unwrap().iter();
    let rules = chains.filter_map(|chain| chain["name"].as_str()?.strip_prefix("ingress|"));
    assert_eq!(rules.collect::<Vec<_>>(), ["n0/s0|80|https"]);
    let messages: Vec<_> = compiled.findings.iter().map(|finding| &*finding.message).collect();
    let [messages] = messages[..] else { panic!("{messages:?}") };
    assert!(
        messages.contains("`n0/s0|14001` by `shop.example.com`, which n0/s0|80 uses there already")
    );
}
