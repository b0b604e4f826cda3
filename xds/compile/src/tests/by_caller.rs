//! Withdrawals from TCP ports of proxies that serve each caller by a chain of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Callers, Proxy, ServiceAccount, ServicePort, Snapshot};
use ironmesh_sidecar::envoy::WITHDRAWALS_LAYER;
use ironmesh_xds_wire::ResourceType;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::mesh::{Edit, PartOrder, Shape, shape, step};
use super::{content, each};
use crate::{Compiled, Compiler, names};

/// The chains of a port for single callers, by name.
fn chains(compiled: &Compiled, port: &ServicePort) -> BTreeMap<String, Value> {
    let listeners = content(compiled, ResourceType::Listener);
    let listener = listeners.get(&names::callers_listener(port));
    let chains = listener.into_iter().flat_map(|one| one["filterChains"].as_array().unwrap());
    chains.map(|chain| (chain["name"].as_str().unwrap().to_owned(), chain.clone())).collect()
}

/// The runtime keys of withdrawn callers.
fn keys(compiled: &Compiled) -> Value {
    let layers = content(compiled, ResourceType::Runtime);
    layers.get(WITHDRAWALS_LAYER).map_or(Value::Null, |layer| layer["layer"].clone())
}

/// The SPIFFE IDs with an entry in the configuration of the filter.
fn entries(compiled: &Compiled, port: &ServicePort) -> Vec<String> {
    let configs = content(compiled, ResourceType::ExtensionConfig);
    let mut entries = Vec::new();
    if let Some(config) = configs.get(&names::withdrawals_filter(port)) {
        each(config, "exactMatchMap", &mut |map| {
            entries.extend(map["map"].as_object().unwrap().keys().cloned());
        });
    }
    entries
}

fn moved(before: &Snapshot, after: &Snapshot, proxy: &Proxy) -> (Compiled, Compiled) {
    let mut compiler = Compiler::new(Arc::new(before.clone()));
    let old = compiler.compile(proxy);
    compiler.update(Arc::new(before.revise(after.inputs())));
    (old, compiler.compile(proxy))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// OSM 10. A withdrawal removes the chain of its caller and sets its key, and changes no other
    /// chain; an addition changes none.
    #[test]
    fn withdrawal_changes_only_the_chain_and_key_of_its_caller(
        before in shape(),
        other in shape(),
        parts in step(),
    ) {
        let (old_mesh, proxies) = before.build(PartOrder::default());
        let (new_mesh, _) = before.with_parts_of(&other, parts).build(PartOrder::default());
        let new_mesh = old_mesh.revise(new_mesh.inputs());
        for proxy in &proxies {
            let (old, new) = moved(&old_mesh, &new_mesh, proxy);
            if !proxy.metadata.ends_single_callers() {
                prop_assert_eq!(keys(&new), Value::Null);
                continue;
            }
            // The layer exists without keys too: Envoy waits for it at its start.
            let mut expected = serde_json::Map::new();
            for (port, access) in &new_mesh.tcp_accesses.ports {
                // A proxy serves nothing for a service that has become external.
                let service = new_mesh.service(&port.service);
                let is_external = service.is_none_or(|service| service.external.is_some());
                if proxy.record.services.contains(&port.service) && !is_external {
                    let keys = access.withdrawn.iter().map(|one| format!("withdrawn.{port}.{one}"));
                    expected.extend(keys.map(|key| (key, json!(100.0))));
                }
            }
            prop_assert_eq!(keys(&new), Value::Object(expected));
            for (service, number) in old.serves.0.intersection(&new.serves.0) {
                let port = ServicePort::new(service.clone(), *number);
                let accesses = [&old_mesh, &new_mesh].map(|one| one.tcp_accesses.ports.get(&port));
                let [Some(was), Some(is)] = accesses else { continue };
                let (old_chains, new_chains) = (chains(&old, &port), chains(&new, &port));
                // The chain of a revoked caller's account begins anew; that of no other does.
                let name = |mesh: &Snapshot, account: &ServiceAccount| {
                    let number = mesh.revoked_callers.last_listed.get(account);
                    let number = number.map(|number| format!("|{number}")).unwrap_or_default();
                    format!("{}|{account}{number}", names::callers_listener(&port))
                };
                for account in was.named() {
                    let names = [&old_mesh, &new_mesh].map(|mesh| name(mesh, account));
                    let begins_anew = names[0] != names[1];
                    let (before, after) = (old_chains.get(&names[0]), new_chains.get(&names[1]));
                    prop_assert!(before.is_some());
                    if is.callers.contain(account) {
                        // With a rate limit service for the port it leads elsewhere.
                        let leads_elsewhere = after.is_some_and(|after| {
                            let cluster = |one: &Value| one.to_string().contains("|counted");
                            before.is_some_and(|before| cluster(before) != cluster(after))
                        });
                        prop_assert!(leads_elsewhere || begins_anew || before == after);
                        prop_assert!(after.is_some());
                    } else {
                        prop_assert_eq!(after, None);
                        let key = format!("withdrawn.{port}.{account}");
                        prop_assert_eq!(&keys(&new)[key], &json!(100.0));
                    }
                }
                let is_open = !matches!(is.callers, Callers::These(_));
                prop_assert_eq!(new_chains.len(), is.named().len() + usize::from(is_open));
                let trust_domain = &new_mesh.mesh.trust_domain;
                let mut wanted: Vec<_> = is.named().iter().chain(&is.withdrawn)
                    .map(|one| trust_domain.workload(one).as_str().to_owned()).collect();
                wanted.sort();
                let mut found = entries(&new, &port);
                found.sort();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}

/// A revocation renames the chains of the revoked proxy's account, and those alone.
#[test]
fn revocation_renames_only_the_chains_of_its_account() {
    let [before, after] = [&[][..], &[Edit::Revoked]].map(|edits| {
        let (snapshot, proxies) = Shape::teams(2).with(edits).build(PartOrder::default());
        (snapshot, proxies)
    });
    let revoked: BTreeSet<_> = after.0.revoked_callers.last_listed.keys().collect();
    let (mut renamed, mut kept) = (0, 0);
    for proxy in before.1.iter().filter(|one| one.metadata.ends_single_callers()) {
        let (old, new) = moved(&before.0, &after.0, proxy);
        for (service, number) in &old.serves.0 {
            let port = ServicePort::new(service.clone(), *number);
            let (old, new) = (chains(&old, &port), chains(&new, &port));
            let Some(access) = before.0.tcp_accesses.ports.get(&port) else { continue };
            assert_eq!(old.len(), new.len());
            for account in access.named() {
                let name = format!("{}|{account}", names::callers_listener(&port));
                assert!(old.contains_key(&name));
                let is_renamed = revoked.contains(account);
                assert_eq!(new.contains_key(&name), !is_renamed, "{name}");
                assert_eq!(new.contains_key(&format!("{name}|1")), is_renamed, "{name}");
                *if is_renamed { &mut renamed } else { &mut kept } += 1;
            }
        }
    }
    assert!(renamed > 0 && kept > 0, "{renamed} renamed, {kept} kept");
}
