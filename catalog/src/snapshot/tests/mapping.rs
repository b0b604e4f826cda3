//! The proxy of each endpoint, in the deployments that docs/concepts/traffic.md describes.

use super::*;

/// An instance as Consul reports it.
fn instance(address: &str, port: u16) -> Endpoint {
    Endpoint { port: Some(port), ..Endpoint::new(Provider::Consul, address.parse().unwrap()) }
}

fn one(address: &str, weight: u32) -> Vec<(String, u32)> {
    vec![(address.to_owned(), weight)]
}

#[test]
fn services_of_one_proxy_share_its_mesh_address() {
    let mut record = record(1, "10.0.0.1", "store", true);
    record.services.push("till".parse().unwrap());
    record.participation.0.insert(("till".parse().unwrap(), WEB));
    let (store, till) = (instance("10.0.0.1", 8080), instance("10.0.0.1", 8081));
    let all = vec![(service("store"), vec![store]), (service("till"), vec![till])];
    let snapshot = assemble_all(Mode::Strict, all, std::slice::from_ref(&record));
    for (name, port) in [("store", 8080), ("till", 8081)] {
        assert_eq!(dialled_as(&snapshot, name), one("10.0.0.1:15003", 1));
        assert_eq!(behind(&snapshot, &record, name), [(port, 1, Health::Healthy)]);
    }
    assert_eq!(reported(&snapshot), [""; 0]);
}

#[test]
fn multi_port_service_uses_target_ports_not_provider_ports() {
    let mut store = service("store");
    let metrics = Port { number: 9090, target: 9091, ..store.ports[0].clone() };
    store.ports.push(Port { name: "metrics".parse().unwrap(), ..metrics });
    let mut record = record(1, "10.0.0.1", "store", true);
    record.participation.0.insert(("store".parse().unwrap(), 9090));
    let all = vec![(store, vec![instance("10.0.0.1", 8099)])];
    let snapshot = assemble_all(Mode::Strict, all, std::slice::from_ref(&record));
    for (number, target) in [(WEB, 8080), (9090, 9091)] {
        let key = (record.id, ServicePort::new("store".parse().unwrap(), number));
        let behind = snapshot.local_endpoints.get(&key).unwrap();
        assert_eq!(behind.iter().map(|one| one.port).collect::<Vec<_>>(), [target]);
    }
}

#[test]
fn proxies_on_one_machine_each_serve_their_own_service() {
    let mut records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "till", true)];
    records[1].mesh_address.set_port(16003);
    let all = vec![
        (service("store"), vec![instance("10.0.0.1", 8080)]),
        (service("till"), vec![instance("10.0.0.1", 8081)]),
    ];
    let snapshot = assemble_all(Mode::Strict, all, &records);
    assert_eq!(dialled_as(&snapshot, "store"), one("10.0.0.1:15003", 1));
    assert_eq!(dialled_as(&snapshot, "till"), one("10.0.0.1:16003", 1));
    assert_eq!(reported(&snapshot), [""; 0]);
}

#[test]
fn proxies_of_one_machine_and_service_need_named_proxy_ids() {
    let mut records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", true)];
    records[1].mesh_address.set_port(16003);
    let unnamed = vec![instance("10.0.0.1", 8080), instance("10.0.0.1", 8081)];
    let snapshot = assemble(unnamed.clone(), &records);
    assert_eq!(dialled(&snapshot), []);
    assert_eq!(reported(&snapshot).len(), 2, "{:?}", reported(&snapshot));

    let named = unnamed.into_iter().zip(&records);
    let named = named.map(|(one, record)| Endpoint { proxy: Some(record.id), ..one });
    let snapshot = assemble(named.collect(), &records);
    let both = [one("10.0.0.1:15003", 1), one("10.0.0.1:16003", 1)].concat();
    assert_eq!(dialled(&snapshot), both);
    assert_eq!(behind(&snapshot, &records[0], "store"), [(8080, 1, Health::Healthy)]);
    assert_eq!(behind(&snapshot, &records[1], "store"), [(8081, 1, Health::Healthy)]);
    assert_eq!(reported(&snapshot), [""; 0]);
}

#[test]
fn endpoint_behind_nat_matches_its_proxy_by_id_or_known_address() {
    let (private, record) = ("192.168.7.7", record(1, "203.0.113.9", "store", true));
    let here = one("203.0.113.9:15003", 1);
    let unknown = assemble(vec![instance(private, 8080)], std::slice::from_ref(&record));
    assert_eq!(dialled(&unknown), []);
    let reported = reported(&unknown);
    let [endpoint, proxy] = reported.as_slice() else { panic!("{reported:?}") };
    assert!(endpoint.contains("endpoint 192.168.7.7 of service `default/store` gets no traffic"));
    assert!(proxy.contains("no provider reports an endpoint at 203.0.113.9"), "{proxy}");

    let named = Endpoint { proxy: Some(record.id), ..instance(private, 8080) };
    let by_key = assemble(vec![named], std::slice::from_ref(&record));
    let known = JoinRecord { addresses: vec![private.parse().unwrap()], ..record.clone() };
    let by_address = assemble(vec![instance(private, 8080)], &[known]);
    for snapshot in [by_key, by_address] {
        assert_eq!(dialled(&snapshot), here);
        assert_eq!(behind(&snapshot, &record, "store"), [(8080, 1, Health::Healthy)]);
        assert_eq!(super::reported(&snapshot), [""; 0]);
    }
}

/// A machine as Azure reports it.
fn machine(address: &str, machine: u128) -> Endpoint {
    let machine = Some(Uuid::from_u128(machine));
    let endpoint = Endpoint::new(Provider::Azure, address.parse().unwrap());
    Endpoint { port: Some(8080), machine, ..endpoint }
}

/// A proxy whose record has this machine ID.
fn on(machine: u128, record: JoinRecord) -> JoinRecord {
    JoinRecord { machine: Some(Uuid::from_u128(machine)), ..record }
}

#[test]
fn machine_id_matches_its_proxy_despite_different_addresses() {
    let record = on(7, record(1, "203.0.113.9", "store", true));
    let snapshot = assemble(vec![machine("192.168.7.7", 7)], std::slice::from_ref(&record));
    assert_eq!(dialled(&snapshot), one("203.0.113.9:15003", 1));
    assert_eq!(behind(&snapshot, &record, "store"), [(8080, 1, Health::Healthy)]);
    assert_eq!(reported(&snapshot), [""; 0]);
    // A proxy ID takes precedence over the machine ID.
    let other = super::record(2, "10.0.0.2", "store", true);
    let named = Endpoint { proxy: Some(other.id), ..machine("192.168.7.7", 7) };
    let snapshot = assemble(vec![named], &[record, other]);
    assert_eq!(dialled(&snapshot), one("10.0.0.2:15003", 1));
}

#[test]
fn proxy_with_a_machine_id_matches_no_other_azure_machine() {
    // Another machine had the address before, and its proxy is still enrolled.
    let records = [on(7, record(1, "10.0.0.1", "store", true))];
    let snapshot = assemble(vec![machine("10.0.0.1", 8)], &records);
    assert_eq!(dialled(&snapshot), []);
    let reported = reported(&snapshot);
    let vm = Uuid::from_u128(8);
    assert!(reported[0].contains("endpoint 10.0.0.1 of service `default/store` gets no traffic"));
    assert!(
        reported[1].contains(&format!("nor on machine {}", Uuid::from_u128(7))),
        "{reported:?}"
    );
    let help: Vec<_> = snapshot.findings().filter_map(|one| one.help.clone()).collect();
    assert!(help[0].contains(&format!("--address 10.0.0.1 --azure-vm-id {vm} ")), "{help:?}");
    // Once the machine's own proxy is enrolled, the endpoint belongs to that proxy.
    let both = [records[0].clone(), on(8, record(2, "10.0.0.1", "store", true))];
    let snapshot = assemble(vec![machine("10.0.0.1", 8)], &both);
    assert_eq!(behind(&snapshot, &both[1], "store"), [(8080, 1, Health::Healthy)]);
    // An endpoint without a machine ID still matches by address.
    let snapshot = assemble(vec![instance("10.0.0.1", 8080)], &records);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 1));
}

#[test]
fn proxy_without_machine_id_matches_by_address() {
    let records = [record(1, "10.0.0.1", "store", true)];
    let snapshot = assemble(vec![machine("10.0.0.1", 8)], &records);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 1));
    // It no longer matches once another proxy has the machine ID.
    let both = [records[0].clone(), on(8, record(2, "10.0.0.2", "store", true))];
    let snapshot = assemble(vec![machine("10.0.0.1", 8)], &both);
    assert_eq!(dialled(&snapshot), one("10.0.0.2:15003", 1));
}

#[test]
fn machine_id_of_two_proxies_matches_neither() {
    let records = [(1, "10.0.0.1"), (2, "10.0.0.2")];
    let records = records.map(|(id, address)| on(7, record(id, address, "store", true)));
    let snapshot = assemble(vec![machine("10.0.0.1", 7)], &records);
    assert_eq!(dialled(&snapshot), []);
    assert!(reported(&snapshot)[0].contains("several proxies"), "{:?}", reported(&snapshot));
    // Two enrollments at one mesh address count as one proxy.
    let again =
        [on(7, record(1, "10.0.0.1", "store", true)), on(7, record(3, "10.0.0.1", "store", true))];
    let snapshot = assemble(vec![machine("10.0.0.9", 7)], &again);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 1));
}

#[test]
fn revoked_proxy_excludes_the_endpoint_of_its_machine() {
    let revocation = Revocation::by_operator(Timestamp::UNIX_EPOCH, None);
    let mut revoked = on(7, record(1, "10.0.0.1", "store", true));
    revoked.revoked = Some(revocation);
    let snapshot = assemble_in(Mode::Permissive, vec![machine("10.0.0.2", 7)], &[revoked]);
    assert_eq!(dialled(&snapshot), []);
    assert!(reported(&snapshot)[0].contains("was revoked"), "{:?}", reported(&snapshot));
}

#[test]
fn address_claimed_by_two_proxies_matches_neither() {
    let shared = vec!["192.168.7.7".parse().unwrap()];
    let records = [(1, "10.0.0.1"), (2, "10.0.0.2")].map(|(id, address)| JoinRecord {
        addresses: shared.clone(),
        ..record(id, address, "store", true)
    });
    let snapshot = assemble(vec![instance("192.168.7.7", 8080)], &records);
    assert_eq!(dialled(&snapshot), []);
    let reported = reported(&snapshot);
    assert!(
        reported[0].contains("several proxies are enrolled for this service at its address"),
        "{reported:?}"
    );
    // A proxy that also lists its own mesh address claims nothing more.
    let twice = JoinRecord { addresses: vec!["10.0.0.1".parse().unwrap()], ..records[0].clone() };
    let snapshot = assemble(vec![instance("10.0.0.1", 8080)], &[twice]);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 1));
}

#[test]
fn instances_at_one_address_are_one_mesh_endpoint() {
    let records = [record(1, "10.0.0.1", "store", true)];
    let sick = Endpoint { weight: 4, health: Health::Unhealthy, ..instance("10.0.0.1", 8082) };
    let all = vec![instance("10.0.0.1", 8080), instance("10.0.0.1", 8081), sick];
    let snapshot = assemble(all, &records);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 2));
    let applications = behind(&snapshot, &records[0], "store");
    let expected =
        [(8080, 1, Health::Healthy), (8081, 1, Health::Healthy), (8082, 4, Health::Unhealthy)];
    assert_eq!(applications, expected);
}

#[test]
fn duplicate_endpoint_counts_once_by_provider_precedence() {
    let records = [record(1, "10.0.0.1", "store", true)];
    let listed = endpoint("10.0.0.1", Some(8080), 5);
    let found = Endpoint { weight: 7, health: Health::Unhealthy, ..instance("10.0.0.1", 8080) };
    let both = [vec![listed.clone(), found.clone()], vec![found.clone(), listed]];
    for known in both {
        let snapshot = assemble(known.clone(), &records);
        assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 5));
        assert_eq!(behind(&snapshot, &records[0], "store"), [(8080, 5, Health::Healthy)]);
        let snapshot = assemble_in(Mode::Permissive, known, &[]);
        assert_eq!(dialled(&snapshot), one("10.0.0.1:8080", 5));
    }
    let snapshot = assemble(vec![found.clone(), found], &records);
    assert_eq!(dialled(&snapshot), one("10.0.0.1:15003", 7));
}

#[test]
fn permissive_mode_calls_each_endpoint_with_its_own_transport() {
    let mut records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.2", "store", false)];
    records[1].claimed_at = Some(Timestamp::UNIX_EPOCH);
    let named = Endpoint { proxy: Some(records[1].id), ..instance("10.0.0.2", 8080) };
    let all = vec![instance("10.0.0.1", 8080), named, instance("10.0.0.3", 9000)];
    let snapshot = assemble_in(Mode::Permissive, all, &records);
    let dialled: Vec<_> = of_mesh(&snapshot, "store")
        .iter()
        .map(|one| (one.address.to_string(), one.transport))
        .collect();
    let expected = [
        ("10.0.0.1:15003", Transport::MutualTls),
        // Its provider names its proxy, which does not participate yet: callers keep plaintext.
        ("10.0.0.2:8080", Transport::Plaintext),
        ("10.0.0.3:9000", Transport::Plaintext),
    ];
    assert_eq!(dialled, expected.map(|(address, transport)| (address.to_owned(), transport)));
}

#[test]
fn unrequested_consul_endpoint_is_never_called_in_plaintext() {
    let of = |endpoints| {
        let store = Service { endpoints, ..service("store") };
        let ready = record(1, "10.0.0.1", "store", true);
        let known =
            vec![registered(&ready), instance("10.0.0.1", 8080), instance("10.0.0.2", 8080)];
        assemble_all(Mode::Permissive, vec![(store, known)], &[ready])
    };
    // Policy has a list or requests registered proxies, and a Consul instance claims the service.
    for tagged in [of(EndpointSource::registered()), of(EndpointSource::fixed(Vec::new()))] {
        assert_eq!(dialled(&tagged), one("10.0.0.1:15003", 1));
        let [reported] = &reported(&tagged)[..] else { panic!("{:?}", reported(&tagged)) };
        assert!(reported.contains("endpoint 10.0.0.2 of service `default/store` gets no traffic"));
    }
    let asked = of(asks_consul());
    assert_eq!(dialled(&asked).len(), 2);
}

#[test]
fn snapshot_after_a_restart_has_the_same_participants() {
    let unreachable = JoinRecord {
        unreachable_since: Some(Timestamp::UNIX_EPOCH),
        ..record(2, "10.0.0.2", "store", true)
    };
    let known_as = vec!["192.168.7.7".parse().unwrap()];
    let behind_nat = JoinRecord { addresses: known_as, ..record(1, "10.0.0.1", "store", true) };
    let records = [behind_nat, unreachable];
    let known = vec![instance("192.168.7.7", 8080), endpoint("10.0.0.2", None, 1)];
    let before = assemble(known, &records);
    // A restart assembles the snapshot only from stored inputs.
    let after = Snapshot::assemble(before.inputs(), TcpAccesses::default());
    assert_eq!(before.endpoints, after.endpoints);
    assert_eq!(before.local_endpoints, after.local_endpoints);
    assert_eq!(reported(&before), reported(&after));
    assert_eq!(dialled(&after), one("10.0.0.1:15003", 1));
}
