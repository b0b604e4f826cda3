//! Service ports whose callers get errors because no endpoint takes calls.

use std::collections::BTreeMap;

use super::*;
use crate::policy::{
    HttpMatch, HttpRouteGroup, RouteRule, SplitBackend, Subject, TrafficSplit, TrafficTarget,
};

fn spot(line: u32) -> Spot {
    Spot { line, ..Spot::new(&"p.toml".into(), "", 0..0) }
}

fn account(name: &str) -> ServiceAccount {
    name.parse().unwrap()
}

/// A traffic target that allows `buyer` to call everything of this account.
fn target(of: &str) -> TrafficTarget {
    let group = Name::new("all").unwrap();
    TrafficTarget {
        namespace: Name::default_namespace(),
        name: Name::new(of).unwrap(),
        destination: Subject::Account(account(of)),
        sources: vec![Subject::Account(account("buyer"))],
        rules: vec![RouteRule::Http { group, matches: None, spot: spot(1) }],
        spot: spot(1),
    }
}

/// A split of `store` to these services with these weights.
fn split(backends: &[(&str, u32)]) -> TrafficSplit {
    let backend = |(name, weight): &(&str, u32)| SplitBackend {
        service: name.parse().unwrap(),
        weight: *weight,
        spot: spot(7),
    };
    TrafficSplit {
        namespace: Name::default_namespace(),
        name: Name::new("store").unwrap(),
        service: "store".parse().unwrap(),
        matches: Vec::new(),
        backends: backends.iter().map(backend).collect(),
        spot: spot(6),
    }
}

/// The outages if policy allows `buyer` to call `store` and the split's backend `next`.
fn outages(
    services: Vec<(Service, Vec<Endpoint>)>,
    records: &[JoinRecord],
    split: Option<TrafficSplit>,
) -> Vec<String> {
    let all = [services, vec![(Service { ports: Vec::new(), ..service("buyer") }, Vec::new())]];
    let snapshot = assemble_all(Mode::Strict, all.concat(), records);
    let mut inputs = snapshot.inputs();
    let mut specification = MeshSpecification::clone(&inputs.specification);
    for of in ["store", "next"] {
        let target = target(of);
        let key = (target.namespace.clone(), target.name.clone());
        specification.traffic_targets.insert(key, Arc::new(target));
    }
    let group = HttpRouteGroup {
        namespace: Name::default_namespace(),
        name: Name::new("all").unwrap(),
        matches: vec![HttpMatch {
            name: Name::new("all").unwrap(),
            path: None,
            methods: Vec::new(),
            headers: BTreeMap::new(),
            spot: spot(1),
        }],
        spot: spot(1),
    };
    specification
        .http_route_groups
        .insert((group.namespace.clone(), group.name.clone()), Arc::new(group));
    if let Some(split) = split {
        let key = (split.namespace.clone(), split.name.clone());
        specification.traffic_splits.insert(key, Arc::new(split));
    }
    inputs.specification = Arc::new(specification);
    let snapshot = snapshot.revise(inputs);
    snapshot.outages(|_| false).iter().map(ToString::to_string).collect()
}

fn claimed(record: JoinRecord) -> JoinRecord {
    JoinRecord { claimed_at: Some(Timestamp::UNIX_EPOCH), ..record }
}

fn buyer() -> JoinRecord {
    claimed(record(9, "10.0.0.9", "buyer", false))
}

fn found(address: &str, health: Health) -> Endpoint {
    Endpoint { health, provider: Provider::Consul, ..endpoint(address, None, 1) }
}

#[test]
fn unavailable_port_is_an_error_once_a_caller_has_connected() {
    let server = claimed(record(1, "10.0.0.1", "store", true));
    let store = |health| vec![(service("store"), vec![found("10.0.0.1", health)])];
    let both = [server.clone(), buyer()];
    assert!(outages(store(Health::Healthy), &both, None).is_empty());
    for health in [Health::Unhealthy, Health::Draining] {
        let found = outages(store(health), &both, None);
        let [error] = &found[..] else { panic!("{found:?}") };
        for part in [
            "error[IM0732]: service `default/store`, port 14001 has no available endpoint (",
            "10.0.0.1",
            &health.to_string(),
            "): all requests get 503",
            "`default/buyer` at 10.0.0.9",
            "p.toml",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
    let dead = JoinRecord { participation: Participation::default(), ..server.clone() };
    let found = outages(store(Health::Healthy), &[dead, buyer()], None);
    assert!(found[0].contains("its proxy has not ACKed port 14001"), "{found:?}");
    // The server is enrolled, and no account that may call it has a proxy.
    let found = outages(store(Health::Unhealthy), &[server], None);
    assert!(found[0].starts_with("warning[IM0732]"), "{found:?}");
    assert!(outages(store(Health::Unhealthy), &[], None).is_empty(), "no proxy is enrolled");
    let drained = Service { drained: true, ..service("store") };
    assert!(outages(vec![(drained, Vec::new())], &both, None).is_empty());
}

#[test]
fn weighted_split_backend_without_endpoints_is_an_error() {
    let first = claimed(record(1, "10.0.0.1", "store", true));
    let services = || {
        vec![
            (service("store"), vec![found("10.0.0.1", Health::Healthy)]),
            (service("next"), Vec::new()),
        ]
    };
    let records = [first, buyer()];
    let tried = outages(services(), &records, Some(split(&[("store", 3), ("next", 1)])));
    let [error] = &tried[..] else { panic!("{tried:?}") };
    assert!(error.contains("25 % of the calls of `default/store` get 503"), "{error}");
    assert!(error.contains("none is known") && error.contains("p.toml:7:"), "{error}");
    let unweighted = outages(services(), &records, Some(split(&[("store", 1), ("next", 0)])));
    assert!(unweighted.is_empty(), "{unweighted:?}");
    // A service whose split sends all calls elsewhere needs no endpoint of its own.
    let mut apex = services();
    apex.reverse();
    apex[0].1 = Vec::new();
    apex[1].1 = Vec::new();
    let led_on = outages(apex, &records, Some(split(&[("next", 1)])));
    assert_eq!(led_on.len(), 1, "{led_on:?}");
    assert!(led_on[0].contains("`default/next`"), "{led_on:?}");
}
