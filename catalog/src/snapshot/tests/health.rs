//! Health, weight and locality of endpoints that share one mesh address.

use super::*;

fn known(port: u16, weight: u32, health: Health) -> Endpoint {
    let address = "10.0.0.1".parse().unwrap();
    Endpoint { port: Some(port), weight, health, ..Endpoint::new(Provider::Consul, address) }
}

/// Weight and health of the only address that callers dial.
fn together(endpoints: Vec<Endpoint>) -> (u32, Health) {
    let snapshot = assemble(endpoints, &[record(1, "10.0.0.1", "store", true)]);
    let all = of_mesh(&snapshot, "store");
    let [one] = all.as_slice() else { panic!("{all:?}") };
    (one.weight, one.health)
}

#[test]
fn shared_address_sums_healthy_weights_or_all_if_none_healthy() {
    use Health::{Draining, Healthy, Unhealthy};
    let all = [(8081, 2, Healthy), (8082, 3, Healthy), (8083, 7, Unhealthy), (8084, 9, Draining)];
    let known = |some: &[(u16, u32, Health)]| {
        some.iter().map(|(port, weight, health)| known(*port, *weight, *health)).collect()
    };
    assert_eq!(together(known(&all)), (5, Healthy));
    assert_eq!(together(known(&all[2..])), (16, Draining));
    assert_eq!(together(known(&all[2..3])), (7, Unhealthy));
    let endless = [(1, u32::MAX, Healthy), (2, 1, Healthy)];
    assert_eq!(together(known(&endless)), (u32::MAX, Healthy));
    assert_eq!(together(known(&[(1, 0, Healthy)])), (1, Healthy), "Envoy refuses a weight of 0");
}

#[test]
fn local_endpoints_keep_the_health_of_each_application() {
    let records = [record(1, "10.0.0.1", "store", true)];
    let known = vec![known(8081, 2, Health::Unhealthy), known(8080, 3, Health::Healthy)];
    let snapshot = assemble(known, &records);
    let expected = [(8080, 3, Health::Healthy), (8081, 2, Health::Unhealthy)];
    assert_eq!(behind(&snapshot, &records[0], "store"), expected);
}

#[test]
fn endpoint_locality_is_the_first_known_or_that_of_its_proxy() {
    let place = |zone: &str| Locality { zone: zone.into(), ..Locality::default() };
    let at =
        |port, zone: &str| Endpoint { locality: place(zone), ..known(port, 1, Health::Healthy) };
    let records = [record(1, "10.0.0.1", "store", true)];
    let of =
        |known: Vec<Endpoint>| of_mesh(&assemble(known, &records), "store")[0].locality.clone();
    assert_eq!(of(vec![at(3, "c"), at(1, ""), at(2, "b")]), place("b"));
    assert_eq!(of(vec![at(1, "")]), Locality::default());

    // An endpoint without a locality has that of its proxy, in the snapshot and in its status.
    let placed = [JoinRecord { locality: place("p"), ..records[0].clone() }];
    let snapshot = assemble(vec![at(1, "")], &placed);
    assert_eq!(of_mesh(&snapshot, "store")[0].locality, place("p"));
    let listed = &endpoint_statuses::endpoint_statuses(&snapshot, &[])[0].endpoint;
    assert_eq!(listed.as_ref().unwrap().locality, place("p"));
    assert_eq!(of_mesh(&assemble(vec![at(1, "z")], &placed), "store")[0].locality, place("z"));

    // Two enrollments of one proxy share an address: a locality known of either applies.
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", true)];
    let both =
        [("", 1), ("b", 0)].map(|(zone, n)| Endpoint { proxy: Some(records[n].id), ..at(1, zone) });
    let snapshot = assemble(both.to_vec(), &records);
    let all = of_mesh(&snapshot, "store");
    assert_eq!((all.len(), &all[0].locality), (1, &place("b")), "{all:?}");
}

#[test]
fn reenrolled_proxy_counts_once_with_the_better_health() {
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", true)];
    let known = [(0, 9, Health::Unhealthy), (1, 2, Health::Healthy)].map(|(n, weight, health)| {
        let proxy: Option<ProxyId> = records.get(n).map(|record| record.id);
        Endpoint { proxy, ..known(8080, weight, health) }
    });
    let all = of_mesh(&assemble(known.to_vec(), &records), "store");
    let [one] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((one.weight, one.health), (2, Health::Healthy));
}

#[test]
fn plaintext_endpoints_keep_their_own_health_and_locality() {
    let zone = Locality { zone: "a".into(), ..Locality::default() };
    let known = vec![
        Endpoint { locality: zone.clone(), ..known(8080, 1, Health::Draining) },
        known(8081, 2, Health::Healthy),
    ];
    let all = of_mesh(&assemble_in(Mode::Permissive, known, &[]), "store");
    let reported: Vec<_> = all.iter().map(|one| (one.health, one.locality.clone())).collect();
    assert_eq!(reported, [(Health::Draining, zone), (Health::Healthy, Locality::default())]);
}

/// The same mesh, in which these proxies leave.
fn with_leaving(snapshot: &Snapshot, leaving: &[&JoinRecord]) -> Snapshot {
    let leaving = leaving.iter().map(|record| (record.id, Timestamp::UNIX_EPOCH)).collect();
    snapshot.revise(Inputs { leaving, ..snapshot.inputs() })
}

/// The record of a participant that has connected.
fn claimed(id: u128, address: &str) -> JoinRecord {
    let claimed_at = Some(Timestamp::UNIX_EPOCH);
    JoinRecord { claimed_at, ..record(id, address, "store", true) }
}

#[test]
fn endpoints_of_a_leaving_proxy_drain_unless_they_are_worse() {
    let records = [claimed(1, "10.0.0.1"), claimed(2, "10.0.0.2")];
    let at_other = Endpoint {
        health: Health::Unhealthy,
        ..Endpoint::new(Provider::Static, "10.0.0.2".parse().unwrap())
    };
    let known = vec![known(8080, 2, Health::Healthy), at_other];
    let stays = assemble(known, &records);
    let leaves = with_leaving(&stays, &[&records[0], &records[1]]);
    let healths = |snapshot: &Snapshot| {
        of_mesh(snapshot, "store").iter().map(|one| (one.weight, one.health)).collect::<Vec<_>>()
    };
    assert_eq!(healths(&stays), [(2, Health::Healthy), (1, Health::Unhealthy)]);
    assert_eq!(healths(&leaves), [(2, Health::Draining), (1, Health::Unhealthy)]);
    // The proxy serves what arrives.
    let local = behind(&leaves, &records[0], "store");
    assert_eq!(local, behind(&stays, &records[0], "store"));
    let statuses = endpoint_statuses::endpoint_statuses(&leaves, &[]);
    assert!(statuses.iter().all(|one| one.leaving_since.is_some()), "{statuses:?}");
    assert_eq!(statuses[0].state, EndpointState::Participant);
    assert_eq!(healths(&with_leaving(&leaves, &[])), healths(&stays));
}

#[test]
fn plaintext_endpoint_of_a_leaving_proxy_drains_alone() {
    let participation = Participation::default();
    let not_ready = JoinRecord { participation, ..claimed(1, "10.0.0.1") };
    let mine = known(8080, 1, Health::Healthy);
    let other = Endpoint::new(Provider::Consul, "10.0.0.9".parse().unwrap());
    let records = [not_ready];
    let stays = assemble_in(Mode::Permissive, vec![mine, other], &records);
    let leaves = with_leaving(&stays, &[&records[0]]);
    let all: Vec<_> = of_mesh(&leaves, "store").iter().map(|one| one.health).collect();
    assert_eq!(all, [Health::Draining, Health::Healthy]);
}

#[test]
fn newest_record_of_a_machine_decides_whether_it_leaves() {
    let (old, new) = (claimed(1, "10.0.0.1"), claimed(2, "10.0.0.1"));
    let new = JoinRecord { enrolled_at: Timestamp::MAX, ..new };
    let stays = assemble(vec![known(8080, 1, Health::Healthy)], &[old.clone(), new.clone()]);
    let health = |leaving: &JoinRecord| {
        let all = of_mesh(&with_leaving(&stays, &[leaving]), "store");
        assert_eq!(all.len(), 1);
        all[0].health
    };
    assert_eq!(health(&new), Health::Draining);
    assert_eq!(health(&old), Health::Healthy, "it was enrolled again");
}

#[test]
fn drained_service_has_no_callable_endpoints_and_no_findings() {
    let of = |drained, mode| {
        let store = Service { drained, ..service("store") };
        let known = vec![endpoint("10.0.0.1", None, 1), endpoint("10.0.0.2", None, 1)];
        assemble_all(mode, vec![(store, known)], &[record(1, "10.0.0.1", "store", true)])
    };
    for mode in [Mode::Strict, Mode::Permissive] {
        assert_eq!(reported(&of(false, mode)).len(), 1, "{mode}");
        assert!(!dialled(&of(false, mode)).is_empty(), "{mode}");
        assert_eq!(reported(&of(true, mode)), [""; 0], "{mode}");
        assert_eq!(dialled(&of(true, mode)), [], "{mode}");
    }
    // The proxy of a drained service keeps its local endpoints, so no open connection ends.
    let record = record(1, "10.0.0.1", "store", true);
    let (before, after) = (of(false, Mode::Strict), of(true, Mode::Strict));
    assert_eq!(behind(&before, &record, "store"), behind(&after, &record, "store"));
    assert_eq!(behind(&after, &record, "store").len(), 1);
}

#[test]
fn subset_is_drained_and_restored_with_its_service() {
    let labels: Labels = [("version", "v1")].into_iter().collect();
    let known = || Endpoint { labels: labels.clone(), ..endpoint("10.0.0.1", None, 1) };
    let of = |drained| {
        let part = Service {
            endpoints: EndpointSource::Subset {
                of: "store".parse().unwrap(),
                labels: labels.clone(),
            },
            ..service("store-v1")
        };
        let subsets = vec![part.name.clone()];
        let store = Service { drained, subsets, ..service("store") };
        let all = vec![(store, vec![known()]), (part, vec![known()])];
        assemble_all(Mode::Strict, all, &[record(1, "10.0.0.1", "store", true)])
    };
    let here = [("10.0.0.1:15003".to_owned(), 1)];
    let (on, off) = (of(false), of(true));
    assert_eq!(dialled_as(&on, "store-v1"), here);
    assert_eq!(dialled_as(&off, "store-v1"), []);
    let again = off.revise(on.inputs());
    assert_eq!(dialled_as(&again, "store-v1"), here);
    assert_eq!(dialled_as(&again.revise(off.inputs()), "store-v1"), []);
}
