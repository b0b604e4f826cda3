//! Incremental compilation: it equals full compilation, affects only the proxies that it must, and
//! has a counted cost.

mod large;
mod localities;

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    Callers, Inputs, Proxy, ProxyId, Service, ServiceAccount, ServiceName, ServicePort, Snapshot,
    TcpAccesses, UpstreamSettings,
};
use ironmesh_xds_wire::ResourceType;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::agent_fed::fed_by_agents;
use super::mesh::{PartOrder, Shape, shape, step};
use super::{Versions, compile, versions};
use crate::{Changes, Compiled, Compiler};

/// Compiles the proxies that `changes` affects again, as the control plane does.
fn follow(
    compiler: &mut Compiler,
    changes: &Changes,
    before: &BTreeMap<ProxyId, (Proxy, Compiled)>,
    proxies: &[Proxy],
) -> Vec<(Proxy, Compiled)> {
    let mut after = Vec::new();
    for proxy in proxies {
        let snapshot = Arc::clone(compiler.snapshot());
        let of = |name: &ServiceName| snapshot.service(name).map(|service| &service.account);
        let account = proxy.record.services.first().and_then(of);
        let known = before.get(&proxy.record.id).filter(|(known, _)| {
            known.record.services == proxy.record.services
                && known.record.mesh_address == proxy.record.mesh_address
                && known.record.locality == proxy.record.locality
                && known.metadata == proxy.metadata
        });
        let is_affected = changes.all_proxies || changes.proxies.contains(&proxy.record.id);
        let compiled = match known {
            Some((_, known)) if !is_affected => {
                let mut compiled = known.clone();
                let is_affected = |account: &&ServiceAccount| {
                    changes.endpoints.iter().any(|(_, accounts)| accounts.contains(account))
                };
                if let Some(endpoints) = account
                    .filter(is_affected)
                    .and_then(|account| compiler.endpoints_of(account, &proxy.record.locality))
                {
                    compiled.resources.replace(ResourceType::Endpoint, endpoints.clone());
                }
                for port in changes.applications.get(&proxy.record.id).into_iter().flatten() {
                    compiler.renew_applications(proxy, port, &mut compiled);
                }
                compiled
            }
            _ => compiler.compile(proxy),
        };
        after.push((proxy.clone(), compiled));
    }
    after
}

/// These proxies; every second one gets its certificates from its agent.
fn some_fed_by_agents(proxies: &[Proxy]) -> Vec<Proxy> {
    let fed = fed_by_agents(proxies);
    let pairs = proxies.iter().cloned().zip(fed).enumerate();
    pairs.map(|(n, (usual, fed))| if n % 2 == 0 { usual } else { fed }).collect()
}

fn by_id(compiled: &[(Proxy, Compiled)]) -> BTreeMap<ProxyId, (Proxy, Compiled)> {
    compiled.iter().map(|(proxy, one)| (proxy.record.id, (proxy.clone(), one.clone()))).collect()
}

/// The versions, with all findings and participation.
fn versions_and_findings(compiled: &[(Proxy, Compiled)]) -> (Versions, Vec<String>) {
    let findings = compiled.iter().flat_map(|(_, one)| &one.findings);
    let serves = compiled
        .iter()
        .map(|(_, one)| format!("{:?} {:?}", one.serves, one.participation_resources));
    (versions(compiled), findings.map(ToString::to_string).chain(serves).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn incremental_compile_equals_full_compile_for_random_steps(
        first in shape(),
        steps in vec((shape(), step()), 1..5),
    ) {
        let (inputs, proxies) = first.inputs(PartOrder::default());
        let proxies = some_fed_by_agents(&proxies);
        let mut snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let mut compiled: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let mut shape = first;
        for (other, parts) in steps {
            shape = shape.with_parts_of(&other, parts);
            let (inputs, proxies) = shape.inputs(PartOrder::default());
            let proxies = some_fed_by_agents(&proxies);
            let scratch = Snapshot::assemble(inputs.clone(), snapshot.tcp_accesses.clone());
            let next = snapshot.revise(inputs);
            let before = std::mem::replace(&mut snapshot, next);
            check_chains_change_only_on_withdrawal(&before, &snapshot, &compiled, &compile(snapshot.clone(), &proxies))?;
            prop_assert_eq!(&snapshot.endpoints, &scratch.endpoints);
            prop_assert_eq!(&snapshot.local_endpoints, &scratch.local_endpoints);
            prop_assert_eq!(&snapshot.tcp_accesses, &scratch.tcp_accesses);
            prop_assert!(snapshot.findings().eq(scratch.findings()));

            let changes = compiler.update(Arc::new(snapshot.clone()));
            compiled = follow(&mut compiler, &changes, &by_id(&compiled), &proxies);
            prop_assert_eq!(versions_and_findings(&compiled), versions_and_findings(&compile(scratch, &proxies)));
            check_clusters_are_shared(&compiled)?;
        }
    }

    #[test]
    fn unchanged_snapshot_affects_no_proxy_and_encodes_nothing(shape in shape()) {
        let (inputs, proxies) = shape.inputs(PartOrder::default());
        let snapshot = Arc::new(Snapshot::assemble(inputs, TcpAccesses::default()));
        let mut compiler = Compiler::new(Arc::clone(&snapshot));
        for proxy in some_fed_by_agents(&proxies) {
            compiler.compile(&proxy);
        }
        let encoded = compiler.encoded();
        // Assembled once more, from equal inputs that share nothing with the first.
        let again = |specification| Inputs { specification, ..shape.inputs(PartOrder::default()).0 };
        let same = snapshot.revise(again(Arc::clone(&snapshot.specification)));
        let changes = compiler.update(Arc::new(same));
        prop_assert!(affects_no_proxy(&changes), "{:?}", changes);
        prop_assert_eq!(compiler.encoded(), encoded);
        // The same policy, loaded again.
        let loaded = again(Arc::new((*snapshot.specification).clone()));
        let changes = compiler.update(Arc::new(snapshot.revise(loaded)));
        prop_assert!(affects_no_proxy(&changes), "{:?}", changes);
        prop_assert_eq!(compiler.encoded(), encoded);
    }
}

/// Callers of all accounts have one copy of the cluster of each service port.
fn check_clusters_are_shared(compiled: &[(Proxy, Compiled)]) -> Result<(), TestCaseError> {
    let mut first = BTreeMap::new();
    for (_, one) in compiled {
        for (name, cluster) in one.resources.of(ResourceType::Cluster) {
            let first = first.entry((name.clone(), cluster.version())).or_insert(cluster);
            let is_service_port = name.contains('/') && name.matches('|').count() == 1;
            prop_assert!(!is_service_port || Arc::ptr_eq(first, cluster), "{}", name);
        }
    }
    Ok(())
}

/// The filter chain of a TCP port in a proxy's resources.
fn chain(compiled: &Compiled, port: &ServicePort) -> Option<Value> {
    let listener = compiled.resources.of(ResourceType::Listener).get("inbound")?.to_json();
    let mut chains = listener["filterChains"].as_array()?.iter();
    let name = format!("inbound|{port}|");
    chains.find(|chain| chain["name"].as_str().is_some_and(|one| one.starts_with(&name))).cloned()
}

/// Checks that a withdrawal from a TCP port changes its chain, and that an addition does not.
fn check_chains_change_only_on_withdrawal(
    before: &Snapshot,
    after: &Snapshot,
    old: &[(Proxy, Compiled)],
    new: &[(Proxy, Compiled)],
) -> Result<(), TestCaseError> {
    for (port, access) in &before.tcp_accesses.ports {
        let now = after.tcp_accesses.ports.get(port);
        for (proxy, new) in new {
            let old = old.iter().find(|(one, _)| one.record == proxy.record);
            let old = old.and_then(|(_, old)| chain(old, port));
            let (Some(old), Some(new)) = (old, chain(new, port)) else { continue };
            // Their chains are those of single callers (by_caller.rs).
            let by_caller = proxy.metadata.ends_single_callers();
            let kept = match (&access.callers, &now.unwrap().callers) {
                (_, Callers::Anyone) => true,
                (Callers::Anyone, _) | (Callers::AnyoneIn(_), Callers::These(_)) => false,
                (Callers::AnyoneIn(before), Callers::AnyoneIn(after)) => before == after,
                (Callers::These(before), after) => before.iter().all(|one| after.contain(one)),
            };
            let settings_of = |snapshot: &Snapshot| {
                let service = snapshot.service(&port.service).cloned();
                let settings = UpstreamSettings::of(&snapshot.specification);
                let rate = |service: &Service| {
                    (settings.local_tcp(service), settings.global_tcp(service).is_some())
                };
                service.map(|service| (snapshot.mode_of(&service), rate(&service), service))
            };
            let has_same_telemetry = Telemetries::of(&before.specification)
                .are_same_for(&Telemetries::of(&after.specification), &port.service);
            let is_same = settings_of(before) == settings_of(after) && has_same_telemetry;
            if (kept || by_caller) && is_same {
                prop_assert_eq!(&old, &new, "an addition to {} ends connections", port);
            } else if !kept && !by_caller {
                prop_assert_ne!(&old, &new, "a withdrawal from {} ends none", port);
            }
        }
    }
    Ok(())
}

fn affects_no_proxy(changes: &Changes) -> bool {
    let Changes { all_proxies, proxies, applications, endpoints } = changes;
    !all_proxies && proxies.is_empty() && applications.is_empty() && endpoints.is_empty()
}

/// A mesh with many proxies that may call one service.
fn fleet(callers: usize, participates: bool) -> (Inputs, Vec<Proxy>) {
    Shape::fleet(callers, participates).inputs(PartOrder::default())
}

#[test]
fn endpoint_change_encodes_one_resource_for_any_fleet_size() {
    // The cost is the same if policy is loaded again, as for a change of static endpoints.
    for (callers, is_read_again) in [(3, false), (30, false), (300, false), (3, true), (300, true)]
    {
        let (inputs, proxies) = fleet(callers, false);
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let before: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let encoded = compiler.encoded();
        // From now on the server participates.
        let (inputs, proxies) = fleet(callers, true);
        let specification = if is_read_again {
            Arc::clone(&inputs.specification)
        } else {
            Arc::clone(&snapshot.specification)
        };
        let inputs = Inputs { specification, ..inputs };
        let changes = compiler.update(Arc::new(snapshot.revise(inputs)));
        assert_eq!(compiler.encoded(), encoded + 1);
        let [(resource, accounts)] = &changes.endpoints[..] else { panic!("{changes:?}") };
        assert_eq!(accounts.len(), 1);
        let rest = Changes { endpoints: Vec::new(), ..changes.clone() };
        assert!(affects_no_proxy(&rest), "{changes:?}");

        let after = follow(&mut compiler, &changes, &by_id(&before), &proxies);
        assert_eq!(compiler.encoded(), encoded + 1, "no proxy is compiled again");
        let mut reached = 0;
        for ((_, before), (_, after)) in before.iter().zip(&after) {
            let names = after.resources.changed_since(&before.resources, ResourceType::Endpoint);
            reached += names.len();
            if let Some(name) = names.first() {
                let held = &after.resources.of(ResourceType::Endpoint)[name];
                assert!(Arc::ptr_eq(held, resource), "proxies share one resource");
            }
        }
        assert_eq!(reached, callers, "only callers get the endpoint");
    }
}

#[test]
fn split_edit_changes_only_caller_routes() {
    let after = [([9, 1], 2), ([1, 9], 1)];
    for (callers, (weights, a_match)) in [3, 30].into_iter().flat_map(|n| after.map(|one| (n, one)))
    {
        let inputs_of = |weights, a_match| {
            let shape = Shape::fleet(callers, true).with_split(weights, a_match);
            shape.inputs(PartOrder::default())
        };
        let (inputs, proxies) = inputs_of([9, 1], 1);
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let before: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let changes = compiler.update(Arc::new(snapshot.revise(inputs_of(weights, a_match).0)));
        assert_eq!(changes.proxies.len(), callers, "{changes:?}");
        let rest = Changes { proxies: [].into(), ..changes.clone() };
        assert!(affects_no_proxy(&rest), "{changes:?}");

        let after = follow(&mut compiler, &changes, &by_id(&before), &proxies);
        let mut changed = BTreeMap::new();
        for ((_, before), (_, after)) in before.iter().zip(&after) {
            for kind in ResourceType::ALL {
                for name in after.resources.changed_since(&before.resources, kind) {
                    *changed.entry(format!("{kind} {name}")).or_default() += 1;
                }
            }
        }
        let routes = [
            ("route configuration outbound-http".to_owned(), callers),
            ("route configuration upstream|n0/s0|80".to_owned(), 1),
        ];
        assert_eq!(changed, BTreeMap::from(routes));
    }
}
