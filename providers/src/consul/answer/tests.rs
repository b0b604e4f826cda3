//! Answers of Consul: which endpoints and problems are read from them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read_after(before: &[Endpoint], body: &Value) -> (Vec<Endpoint>, Vec<Problem>) {
    let keys = LocalityKeys::default();
    let reading = Reading { tagged_address: None, locality: &keys, before };
    endpoints(body.to_string().as_bytes(), &reading).unwrap()
}

fn read(body: &Value) -> (Vec<Endpoint>, Vec<Problem>) {
    read_after(&[], body)
}

/// An entry in the form that Consul 1.8.7 returns.
fn entry(id: &str, address: &str, port: u16) -> Value {
    json!({
        "Node": {
            "ID": "", "Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1",
            "TaggedAddresses": null, "Meta": null, "CreateIndex": 23, "ModifyIndex": 23
        },
        "Service": {
            "ID": id, "Service": "web", "Tags": null, "Address": address, "Meta": null, "Port": port,
            "Weights": { "Passing": 1, "Warning": 1 }, "EnableTagOverride": false,
            "Proxy": { "MeshGateway": {}, "Expose": {} }, "Connect": {}
        },
        "Checks": []
    })
}

fn with(mut entry: Value, path: &str, value: Value) -> Value {
    let (parent, name) = path.rsplit_once('/').unwrap();
    entry.pointer_mut(parent).unwrap()[name] = value;
    entry
}

#[test]
fn entry_becomes_an_endpoint_with_all_consul_fields() {
    let key = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f";
    let mut one = entry("web-1", "10.0.0.7", 8080);
    one = with(one, "/Service/Weights", json!({ "Passing": 10, "Warning": 2 }));
    one = with(one, "/Service/Tags", json!(["v1", "env=test", "ironmesh-service=a/b", "a=tag"]));
    one = with(one, "/Service/Meta", json!({ "a": "meta", "ironmesh-proxy": key }));
    one = with(one, "/Node/Meta", json!({ "region": "eu", "zone": "eu-1", "sub_zone": "rack 7" }));
    let (endpoints, problems) = read(&json!([one]));
    let expected = Endpoint {
        port: Some(8080),
        weight: 10,
        proxy: Some(key.parse().unwrap()),
        labels: [("v1", "true"), ("env", "test"), ("a", "meta")].into_iter().collect(),
        locality: Locality { region: "eu".into(), zone: "eu-1".into(), sub_zone: "rack 7".into() },
        instance: Some("n1/web-1".into()),
        ..Endpoint::new(Provider::Consul, "10.0.0.7".parse().unwrap())
    };
    assert_eq!((endpoints, problems), (vec![expected], vec![]));
}

#[test]
fn checks_decide_health_and_weight() {
    let check = |id: &str, status: &str| json!({ "CheckID": id, "Status": status });
    let of = |checks: Value| {
        let mut one = with(entry("a", "10.0.0.7", 80), "/Checks", checks);
        one = with(one, "/Service/Weights", json!({ "Passing": 7, "Warning": 3 }));
        let (endpoints, _) = read(&json!([one]));
        (endpoints[0].health, endpoints[0].weight)
    };
    assert_eq!(of(json!(null)), (Health::Healthy, 7));
    assert_eq!(of(json!([check("c", "passing")])), (Health::Healthy, 7));
    assert_eq!(of(json!([check("c", "passing"), check("d", "warning")])), (Health::Healthy, 3));
    assert_eq!(of(json!([check("c", "warning"), check("d", "critical")])), (Health::Unhealthy, 7));
    let of_service = check("_service_maintenance:a", "critical");
    assert_eq!(of(json!([of_service, check("d", "critical")])), (Health::Draining, 7));
    assert_eq!(of(json!([check("_node_maintenance", "critical")])), (Health::Draining, 7));
    // A status of a future version is no reason to send traffic.
    assert_eq!(of(json!([check("c", "undecided")])), (Health::Unhealthy, 7));
}

#[test]
fn missing_or_zero_weight_becomes_one() {
    for weights in [json!({ "Passing": 0, "Warning": 0 }), json!({ "Passing": -4 }), json!(null)] {
        let (endpoints, _) =
            read(&json!([with(entry("a", "10.0.0.7", 80), "/Service/Weights", weights)]));
        assert_eq!(endpoints[0].weight, 1);
    }
}

#[test]
fn address_is_the_tagged_else_service_else_node_address() {
    let tagged = json!({ "wan": { "Address": "203.0.113.9", "Port": 9999 } });
    let own = with(entry("a", "10.0.0.7", 80), "/Service/TaggedAddresses", tagged);
    let without =
        with(entry("a", "", 80), "/Node/TaggedAddresses", json!({ "wan": "203.0.113.1" }));
    let place = |entry: &Value, tagged_address| {
        let keys = LocalityKeys::default();
        let reading = Reading { tagged_address, locality: &keys, before: &[] };
        let body = json!([entry]).to_string();
        let (found, _) = endpoints(body.as_bytes(), &reading).unwrap();
        (found[0].address.to_string(), found[0].port.unwrap())
    };
    assert_eq!(place(&own, Some("wan")), ("203.0.113.9".to_owned(), 9999));
    assert_eq!(place(&own, Some("lan_ipv6")), ("10.0.0.7".to_owned(), 80));
    assert_eq!(place(&own, None), ("10.0.0.7".to_owned(), 80));
    assert_eq!(place(&without, None), ("10.0.0.1".to_owned(), 80));
    assert_eq!(place(&without, Some("wan")), ("203.0.113.1".to_owned(), 80));
}

#[test]
fn unknown_fields_are_ignored_and_consul_locality_is_used() {
    let mut newer = entry("a", "10.0.0.7", 80);
    newer = with(newer, "/Service/Locality", json!({ "Region": "us", "Zone": "us-1" }));
    newer = with(newer, "/Service/Ports", json!([{ "name": "x" }]));
    newer = with(newer, "/Node/PeerName", json!("other"));
    newer = with(newer, "/Node/Meta", json!({ "region": "eu" }));
    newer["Anything"] = json!([1, 2]);
    let (endpoints, problems) = read(&json!([newer]));
    assert_eq!(problems, []);
    assert_eq!(endpoints[0].locality.to_string(), "us/us-1");
}

#[test]
fn invalid_entry_is_reported_and_its_last_endpoint_is_kept() {
    let (before, _) = read(&json!([entry("a", "10.0.0.7", 80), entry("b", "10.0.0.8", 80)]));
    let good = entry("b", "10.0.0.9", 80);
    let bad = [
        ("is no IP address", with(entry("a", "", 80), "/Service/Address", json!("db.example.com"))),
        ("its port is 0", entry("a", "10.0.0.7", 0)),
        ("its port 15000 is one of the proxy's own", entry("a", "10.0.0.7", 15000)),
        ("its port is 70000", with(entry("a", "10.0.0.7", 0), "/Service/Port", json!(70_000))),
        ("its port is 0", with(entry("a", "10.0.0.7", 0), "/Service/Port", json!(null))),
        ("cannot be read", with(entry("a", "10.0.0.7", 0), "/Service/Port", json!("http"))),
        ("cannot be read", with(entry("a", "10.0.0.7", 80), "/Service/Tags", json!({ "v": 1 }))),
        (
            "is no UUID",
            with(entry("a", "10.0.0.7", 80), "/Service/Meta", json!({ "ironmesh-proxy": "7" })),
        ),
    ];
    for (reason, entry) in bad {
        let (endpoints, problems) = read_after(&before, &json!([entry, good]));
        assert_eq!(problems.len(), 1, "{entry}");
        assert!(problems[0].reason.contains(reason), "{problems:?}");
        assert_eq!(problems[0].instance, "n1/a");
        let addresses: Vec<_> = endpoints.iter().map(|found| found.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.7", "10.0.0.9"]);
        assert_eq!(read(&json!([entry])).0, [], "nothing was known of it");
    }
    let (endpoints, problems) = read_after(&before, &json!([7, good]));
    assert_eq!((endpoints.len(), problems[0].instance.as_str()), (1, "entry 0"));
}

#[test]
fn answer_that_is_not_a_list_is_rejected() {
    let keys = LocalityKeys::default();
    let reading = Reading { tagged_address: None, locality: &keys, before: &[] };
    for body in ["", "null", "{}", "[", "<html>", r#"{"error": "x"}"#] {
        assert!(matches!(endpoints(body.as_bytes(), &reading), Err(RequestError::Malformed(_))));
    }
}

#[test]
fn duplicate_entries_keep_the_healthiest_and_are_reported() {
    let critical = json!([{ "CheckID": "c", "Status": "critical" }]);
    let one = with(entry("a", "10.0.0.7", 80), "/Checks", critical);
    let (endpoints, problems) = read(&json!([one, entry("b", "10.0.0.7", 80)]));
    assert_eq!(endpoints.len(), 1);
    assert_eq!(endpoints[0].instance.as_deref(), Some("n1/b"));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].instance, "n1/a");
    assert!(problems[0].reason.contains("n1/b"), "{problems:?}");

    // The same id on the same node, at two addresses.
    let (endpoints, problems) =
        read(&json!([entry("a", "10.0.0.9", 80), entry("a", "10.0.0.8", 80)]));
    assert_eq!(endpoints.len(), 1);
    assert_eq!(endpoints[0].address.to_string(), "10.0.0.8");
    assert!(problems[0].reason.contains("10.0.0.9:80"), "{problems:?}");
}

proptest! {
    /// The order of Consul's answer does not matter: the result is sorted and without duplicates.
    #[test]
    fn entry_order_does_not_affect_the_result(
        order in Just((0_u8..12).collect::<Vec<_>>()).prop_shuffle(),
        places in proptest::collection::vec((0_u8..6, 0_u8..6), 12),
    ) {
        let of = |n: &u8| {
            let (id, host) = places[usize::from(*n)];
            entry(&format!("s{id}"), &format!("10.0.1.{host}"), 80)
        };
        let shuffled: Vec<_> = order.iter().map(of).collect();
        let sorted: Vec<_> = (0..12).map(|n| of(&n)).collect();
        let (endpoints, _) = read(&json!(shuffled));
        prop_assert_eq!(&endpoints, &read(&json!(sorted)).0);
        prop_assert!(endpoints.is_sorted_by_key(|endpoint| (endpoint.address, endpoint.port)));
        for (n, one) in endpoints.iter().enumerate() {
            for other in &endpoints[n + 1..] {
                prop_assert!(one.address != other.address && one.instance != other.instance);
            }
        }
    }

    /// No answer causes a panic.
    #[test]
    fn any_text_is_parsed_without_panic(body in ".*", before in any::<bool>()) {
        let (known, _) = read(&json!([entry("a", "10.0.0.7", 80)]));
        let keys = LocalityKeys::default();
        let known = if before { &known[..] } else { &[] };
        let reading = Reading { tagged_address: None, locality: &keys, before: known };
        let _ = endpoints(body.as_bytes(), &reading);
    }
}

#[test]
fn unspecified_and_multicast_addresses_are_rejected() {
    let bad = ["0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1"];
    let entries: Vec<_> = bad
        .iter()
        .enumerate()
        .map(|(n, address)| entry(&format!("web-{n}"), address, 80))
        .chain([entry("mapped", "::ffff:10.0.0.9", 80)])
        .collect();
    let (endpoints, problems) = read(&json!(entries));
    let addresses: Vec<_> = endpoints.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.9"]);
    assert_eq!(problems.len(), bad.len());
    assert!(problems.iter().all(|problem| problem.reason.contains("not that of one machine")));
}
