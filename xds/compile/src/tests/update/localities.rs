//! The effect and the cost of changes if the caller's locality matters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, Proxy, ProxyId, ServiceName, Snapshot, TcpAccesses};
use ironmesh_xds_wire::ResourceType;

use super::super::mesh::settings::shares_of_a_zone;
use super::super::mesh::{PartOrder, Shape, place};
use super::super::{compile, versions};
use super::{affects_no_proxy, by_id, follow};
use crate::{Changes, Compiler};

#[test]
fn endpoint_change_encodes_one_resource_per_caller_locality() {
    for callers in [3, 30, 300] {
        let inputs_of = |participates| {
            Shape::fleet(callers, participates)
                .with_locality_preference()
                .inputs(PartOrder::default())
        };
        let (inputs, proxies) = inputs_of(false);
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let before: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let encoded = compiler.encoded();
        // From now on the server participates. Callers are in two zones, or in an unknown locality.
        let (inputs, proxies) = inputs_of(true);
        let changes = compiler.update(Arc::new(snapshot.revise(inputs)));
        assert_eq!(compiler.encoded(), encoded + 3);
        let rest = Changes { endpoints: Vec::new(), ..changes.clone() };
        assert!(changes.endpoints.len() == 1 && affects_no_proxy(&rest), "{changes:?}");

        let after = follow(&mut compiler, &changes, &by_id(&before), &proxies);
        assert_eq!(compiler.encoded(), encoded + 3, "no proxy is compiled again");
        let mut held = BTreeMap::new();
        let mut reached = 0;
        for ((_, before), (proxy, after)) in before.iter().zip(&after) {
            let names = after.resources.changed_since(&before.resources, ResourceType::Endpoint);
            reached += names.len();
            for name in &names {
                let own = &after.resources.of(ResourceType::Endpoint)[name];
                let first = held.entry(&proxy.record.locality).or_insert_with(|| Arc::clone(own));
                assert!(Arc::ptr_eq(own, first), "callers in one locality share a resource");
            }
        }
        assert_eq!((reached, held.len()), (callers, 3), "only callers change, in three localities");
    }
}

#[test]
fn localities_without_callers_are_forgotten() {
    let inputs_of = |participates| {
        Shape::fleet(6, participates).with_locality_preference().inputs(PartOrder::default())
    };
    let (inputs, proxies) = inputs_of(false);
    let mut snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    let before: Vec<_> =
        proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
    // The callers in one zone are removed, and then the endpoints change.
    let stays = |proxy: &Proxy| proxy.record.locality != place(2);
    let rest: Vec<_> = proxies.iter().filter(|proxy| stays(proxy)).cloned().collect();
    assert!(rest.len() < proxies.len());
    let inputs_of_the_rest = |participates| {
        let (mut inputs, _) = inputs_of(participates);
        let records = inputs.records.into_iter();
        inputs.records = records.filter(|(_, record)| record.locality != place(2)).collect();
        inputs
    };
    let mut compiled = before;
    let mut encoded = Vec::new();
    for participates in [false, true, false] {
        snapshot = snapshot.revise(inputs_of_the_rest(participates));
        let known = compiler.encoded();
        let changes = compiler.update(Arc::new(snapshot.clone()));
        encoded.push(compiler.encoded() - known);
        compiled = follow(&mut compiler, &changes, &by_id(&compiled), &rest);
        assert_eq!(versions(&compiled), versions(&compile(snapshot.clone(), &rest)));
    }
    assert_eq!(encoded, [0, 2, 2], "one for the other zone, one for the unknown locality");
    // A caller that returns gets the current endpoints.
    snapshot = snapshot.revise(inputs_of(true).0);
    let changes = compiler.update(Arc::new(snapshot.clone()));
    let compiled = follow(&mut compiler, &changes, &by_id(&compiled), &proxies);
    assert_eq!(versions(&compiled), versions(&compile(snapshot, &proxies)));
}

#[test]
fn locality_order_change_reaches_only_affected_localities() {
    let server: ServiceName = "n0/s0".parse().unwrap();
    let inputs_of = |percent| {
        let (mut inputs, proxies) = Shape::fleet(6, true).inputs(PartOrder::default());
        let setting = shares_of_a_zone(percent);
        let mut specification = (*inputs.specification).clone();
        let key = (setting.namespace.clone(), setting.name.clone());
        specification.upstream_traffic_settings.insert(key, Arc::new(setting));
        inputs.specification = Arc::new(specification);
        let moved = |(id, record): (&ProxyId, &Arc<JoinRecord>)| {
            let is_server = record.services.contains(&server);
            let locality = if is_server { place(1) } else { record.locality.clone() };
            (*id, Arc::new(JoinRecord { locality, ..(**record).clone() }))
        };
        inputs.records = inputs.records.iter().map(moved).collect();
        (inputs, proxies)
    };
    let (inputs, proxies) = inputs_of(51);
    let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    let before: Vec<_> =
        proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
    let next = snapshot.revise(inputs_of(52).0);
    let changes = compiler.update(Arc::new(next.clone()));
    let after = follow(&mut compiler, &changes, &by_id(&before), &proxies);
    assert_eq!(versions(&after), versions(&compile(next, &proxies)));
    let mut reached = BTreeSet::new();
    for ((_, before), (proxy, after)) in before.iter().zip(&after) {
        let types = ResourceType::ALL.into_iter();
        if types.flat_map(|of| after.resources.changed_since(&before.resources, of)).count() > 0 {
            reached.insert(proxy.record.locality.clone());
        }
    }
    assert_eq!(reached, [place(1)].into(), "only callers in the zone");
}
