//! Handover of dropped ports: only their chains stay, and nothing else of the earlier listener.

use std::collections::BTreeMap;

use ironmesh_catalog::{ServiceName, ServicePort};
use ironmesh_xds_wire::{Resource, ResourceType};
use proptest::prelude::*;
use serde_json::Value;

use super::compile;
use super::mesh::{PartOrder, shape, step};
use crate::handover::{INBOUND_LISTENER, keep_filter_chains};

/// The filter chains of a listener by name, and the rest of it.
fn parts(listener: &Resource) -> (BTreeMap<String, Value>, Value) {
    let mut content = listener.to_json();
    let chains = content.as_object_mut().unwrap().remove("filterChains").unwrap();
    let Value::Array(chains) = chains else { panic!("{chains}") };
    let by_name: BTreeMap<_, _> =
        chains.iter().map(|chain| (chain["name"].to_string(), chain.clone())).collect();
    assert_eq!(by_name.len(), chains.len(), "two chains have the same name");
    (by_name, content)
}

fn is_of(chain: &Value, port: &ServicePort) -> bool {
    let name = chain["name"].as_str().unwrap();
    name == format!("inbound|{port}") || name.starts_with(&format!("inbound|{port}|"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn handover_keeps_only_filter_chains_of_dropped_ports(
        before in shape(),
        other in shape(),
        parts_of_other in step(),
    ) {
        let after = before.with_parts_of(&other, parts_of_other);
        let (old_mesh, proxies) = before.build(PartOrder::default());
        let (new_mesh, _) = after.build(PartOrder::default());
        let (old, new) = (compile(old_mesh, &proxies), compile(new_mesh, &proxies));
        for ((_, old), (_, new)) in old.iter().zip(&new) {
            let port = |(service, port): &(ServiceName, u16)| ServicePort::new(service.clone(), *port);
            let dropped: Vec<_> = old.serves.0.difference(&new.serves.0).map(port).collect();
            let listener = |set: &crate::Compiled| {
                set.resources.of(ResourceType::Listener).get(INBOUND_LISTENER).cloned()
            };
            let Some(old) = listener(old) else { continue };
            let new = listener(new);
            let Some(kept) = keep_filter_chains(new.as_deref(), &old, &dropped) else {
                prop_assert!(dropped.is_empty());
                continue;
            };
            let (old_chains, old_rest) = parts(&old);
            let (new_chains, rest) = new.as_deref().map_or((BTreeMap::new(), old_rest), parts);
            let mut wanted = new_chains;
            wanted.extend(
                old_chains.into_iter().filter(|(_, chain)| dropped.iter().any(|p| is_of(chain, p))),
            );
            prop_assert_eq!(parts(&kept), (wanted, rest));
            // It also continues from the listener kept before.
            let again = keep_filter_chains(new.as_deref(), &kept, &dropped).unwrap();
            prop_assert_eq!(again.version(), kept.version());
        }
    }
}
