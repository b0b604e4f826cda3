//! Health, weights and localities of endpoints, and the cost of their changes.

use ironmesh_catalog::{Application, Health, Locality, MeshEndpoint, Protocol, Transport};

use super::*;
use crate::{inbound, outbound};

fn port() -> ServicePort {
    ServicePort::new("shop/till".parse().unwrap(), 80)
}

fn json<M: ironmesh_xds_wire::Discoverable>(message: &M) -> Value {
    ironmesh_xds_wire::Resource::new(message).to_json()
}

#[test]
fn endpoints_are_grouped_by_locality_and_healthy_is_implicit() {
    let host = |last: u8, health, zone: &str| MeshEndpoint {
        address: ([10, 0, 0, last], 15003).into(),
        transport: Transport::MutualTls,
        weight: last.into(),
        health,
        locality: Locality { zone: zone.into(), ..Locality::default() },
    };
    let assignment = |hosts: &[MeshEndpoint]| json(&outbound::endpoints(&port(), hosts, None));
    let all = assignment(&[
        host(1, Health::Unhealthy, "b"),
        host(2, Health::Healthy, ""),
        host(3, Health::Draining, "a"),
        host(4, Health::Healthy, "b"),
    ]);
    let hosts = |place: &Value| {
        let all = place["lbEndpoints"].as_array().unwrap().iter();
        all.map(|one| (one["loadBalancingWeight"].clone(), one.get("healthStatus").cloned()))
            .collect::<Vec<_>>()
    };
    let places = all["endpoints"].as_array().unwrap();
    let by_locality: Vec<_> =
        places.iter().map(|place| (place.get("locality").cloned(), hosts(place))).collect();
    let zone = |zone: &str| Some(json!({ "zone": zone }));
    let expected = [
        (None, vec![(json!(2), None)]),
        (zone("a"), vec![(json!(3), Some(json!("DRAINING")))]),
        (zone("b"), vec![(json!(1), Some(json!("UNHEALTHY"))), (json!(4), None)]),
    ];
    assert_eq!(by_locality, expected);
    assert_eq!(assignment(&[]), json!({ "clusterName": "shop/till|80" }));
}

#[test]
fn local_cluster_has_health_only_if_applications_differ() {
    let (_, proxies) = Shape::fleet(1, true).build(PartOrder::default());
    let cluster = |applications: &[(u16, u32, Health)]| {
        let applications: Vec<_> = applications
            .iter()
            .map(|(port, weight, health)| Application {
                port: *port,
                weight: *weight,
                health: *health,
                probed: true,
            })
            .collect();
        json(&inbound::local_cluster(&proxies[0], &port(), Protocol::Http, &applications))
    };
    let alone = cluster(&[(8080, 1, Health::Healthy)]);
    for (weight, health) in [(7, Health::Healthy), (1, Health::Unhealthy), (9, Health::Draining)] {
        assert_eq!(cluster(&[(8080, weight, health)]), alone);
    }
    let both = |one, other| cluster(&[(8080, 1, one), (8081, 1, other)]);
    let well = both(Health::Healthy, Health::Healthy);
    assert_eq!(both(Health::Draining, Health::Unhealthy), well, "callers decide");
    assert!(well.get("commonLbConfig").is_none());
    let chosen = both(Health::Healthy, Health::Unhealthy);
    assert_eq!(chosen["commonLbConfig"], json!({ "healthyPanicThreshold": {} }));
    let hosts = chosen["loadAssignment"]["endpoints"][0]["lbEndpoints"].as_array().unwrap();
    let health: Vec<_> = hosts.iter().map(|one| one.get("healthStatus").cloned()).collect();
    assert_eq!(health, [None, Some(json!("UNHEALTHY"))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_mesh_cluster_sends_to_unhealthy_endpoints(shape in shape()) {
        let (snapshot, proxies) = shape.build(PartOrder::default());
        for (proxy, compiled) in compile(snapshot.clone(), &proxies) {
            for (name, cluster) in content(&compiled, ResourceType::Cluster) {
                // Collectors and rate limit services are not part of the mesh.
                if name.starts_with("telemetry|") || name.starts_with("rate-limit|") {
                    continue;
                }
                let local = port_of_own_cluster(&name).is_some();
                let port: Result<ServiceName, _> = name.split('|').next().unwrap().parse();
                let is_outside = port.is_ok_and(|name| {
                    snapshot.service(&name).is_some_and(|one| one.external.is_some())
                });
                let hosts = cluster.pointer("/loadAssignment/endpoints/0/lbEndpoints");
                let hosts = hosts.and_then(Value::as_array).cloned().unwrap_or_default();
                let marked = hosts.iter().filter(|one| one.get("healthStatus").is_some()).count();
                let never = cluster.pointer("/commonLbConfig/healthyPanicThreshold");
                if local {
                    prop_assert_eq!(never.is_some(), marked > 0, "{}: {}", proxy.record.id, name);
                    prop_assert!(marked == 0 || marked < hosts.len(), "no endpoint is left: {name}");
                } else if !is_outside && !name.starts_with("egress") {
                    prop_assert_eq!(never, Some(&json!({})), "{}", name);
                }
            }
        }
    }

    #[test]
    fn drained_services_and_unreachable_proxies_get_no_calls(shape in shape()) {
        let (snapshot, _) = shape.build(PartOrder::default());
        let records = snapshot.inputs().records;
        for (port, hosts) in &snapshot.endpoints {
            let service = snapshot.service(&port.service).unwrap();
            prop_assert!(!service.drained || hosts.is_empty(), "{port} is drained");
            // An unreachable proxy stays among them only if a provider reports its endpoint.
            let discovered = snapshot.inputs().discovered.0;
            let known = discovered.get(&port.service).cloned().unwrap_or_default();
            let has_instance = known.iter().any(|one| one.instance.is_some() || one.port.is_some());
            for host in hosts.iter().filter(|host| host.transport == Transport::MutualTls) {
                let alive = records.values().any(|record| {
                    record.mesh_address == host.address && record.unreachable_since.is_none()
                });
                prop_assert!(alive || has_instance, "{port} is called at {}", host.address);
            }
            let addresses: BTreeSet<_> = hosts.iter().map(|host| host.address).collect();
            prop_assert_eq!(addresses.len(), hosts.len());
        }
    }
}

/// A provider changes health and weight of the only endpoint of a fleet's server, and nothing else.
#[test]
fn health_flap_changes_only_one_resource_of_callers() {
    for callers in [3, 30] {
        let inputs_of = |health, weight| {
            Shape::fleet(callers, true).with_instance(health, weight).inputs(PartOrder::default())
        };
        let (inputs, proxies) = inputs_of(Health::Healthy, 10);
        let snapshot = Snapshot::assemble(inputs, ironmesh_catalog::TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let before: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let mut inputs = inputs_of(Health::Unhealthy, 1).0;
        inputs.specification = Arc::clone(&snapshot.specification);
        let changes = compiler.update(Arc::new(snapshot.revise(inputs)));
        let [(_, accounts)] = &changes.endpoints[..] else { panic!("{changes:?}") };
        assert_eq!(accounts.len(), 1);
        let server = before[0].0.record.id;
        assert!(changes.applications.keys().eq([&server]), "{changes:?}");
        assert!(!changes.all_proxies && changes.proxies.is_empty());
        let again = compiler.compile(&before[0].0);
        assert_eq!(versions(&[(before[0].0.clone(), again)]), versions(&before[..1]));
    }
}
