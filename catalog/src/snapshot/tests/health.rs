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
