//! Traffic splits: the order of their routes, nesting, weights, cycles and limits.

use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::name::ServiceAccount;
use crate::policy::SplitMatch;
use crate::service::{EscapedSlashes, Protocol, Visibility};

/// A mesh of services that all have an HTTP and a TCP port, and of a group `m` with the matches
/// `m0` to `m3`.
#[derive(Debug)]
struct Mesh {
    services: Vec<Service>,
    group: HttpRouteGroup,
    splits: Vec<TrafficSplit>,
}

impl Mesh {
    fn new(services: &[&str]) -> Self {
        let matches = (0..4).map(|n| http_match(&format!("m{n}"))).collect();
        let group =
            HttpRouteGroup { namespace: name("default"), name: name("m"), matches, spot: spot() };
        let services = services.iter().map(|name| service(name)).collect();
        Self { services, group, splits: Vec::new() }
    }

    /// This mesh with one more split of `service`, for requests that these matches of the group
    /// select. Without matches, the split is for all calls.
    fn split(mut self, of: &str, service: &str, matches: &[&str], to: &[(&str, u32)]) -> Self {
        let named = SplitMatch {
            group: name("m"),
            matches: Some(matches.iter().map(|one| name(one)).collect()),
            spot: spot(),
        };
        let backend = |(service, weight): &(&str, u32)| SplitBackend {
            service: service.parse().unwrap(),
            weight: *weight,
            spot: spot(),
        };
        self.splits.push(TrafficSplit {
            namespace: name("default"),
            name: name(of),
            service: service.parse().unwrap(),
            matches: if matches.is_empty() { Vec::new() } else { vec![named] },
            backends: to.iter().map(backend).collect(),
            spot: spot(),
        });
        self
    }

    fn splits(&self) -> Splits<'_> {
        Splits::new(&self.services, [&self.group], &self.splits)
    }

    /// The paths of a port, as `m0 m1 → a 3, b 1`.
    fn paths(&self, service: &str, port: u16) -> Vec<String> {
        let splits = self.splits();
        let port = ServicePort::new(service.parse().unwrap(), port);
        let paths = splits.paths().remove(&port);
        assert_eq!(splits.paths_from(&port.service).remove(&port), paths);
        paths.unwrap().unwrap().iter().map(written).collect()
    }
}

fn written(path: &SplitPath<'_>) -> String {
    let conditions: Vec<_> = path.conditions.iter().map(|one| one.name.as_str()).collect();
    let backend =
        |(service, weight): &(&ServiceName, u32)| format!("{} {weight}", service.name.as_str());
    let backends: Vec<_> = path.backends.iter().map(backend).collect();
    format!("{} → {}", conditions.join(" "), backends.join(", "))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spot() -> Spot {
    Spot::new(&"policy.toml".into(), "", 0..0)
}

fn http_match(text: &str) -> HttpMatch {
    let header: Arc<str> = format!("x-{text}").into();
    HttpMatch {
        name: name(text),
        path: None,
        methods: Vec::new(),
        headers: [(header, "yes".into())].into(),
        spot: spot(),
    }
}

fn service(text: &str) -> Service {
    let port = |number, protocol| Port {
        name: name("p"),
        number,
        protocol,
        target: number,
        allowed_targets: Vec::new(),
    };
    Service {
        name: text.parse().unwrap(),
        account: ServiceAccount::new(name("default"), name(text)),
        ports: vec![port(80, Protocol::Http), port(3306, Protocol::Tcp)],
        endpoints: EndpointSource::registered(),
        mode: None,
        visibility: Visibility::Public,
        escaped_slashes: EscapedSlashes::Reject,
        max_connection_duration: None,
        drained: false,
        health: None,
        external: None,
        subsets: Vec::new(),
        upstreams: Vec::new(),
        spot: spot(),
    }
}

#[test]
fn conditional_splits_precede_the_service_itself_in_name_order() {
    let mesh = Mesh::new(&["a", "b", "c"]).split("2-second", "a", &["m0"], &[("b", 1)]).split(
        "1-first",
        "a",
        &["m1", "m2"],
        &[("c", 1)],
    );
    assert_eq!(mesh.paths("a", 80), ["m1 → c 1", "m2 → c 1", "m0 → b 1", " → a 1"]);
    // A TCP port has no requests to match, so conditional splits do not apply to it.
    assert_eq!(mesh.paths("a", 3306), [" → a 1"]);
    // An unconditional split gets all calls that no condition matches.
    let mesh = mesh.split("0-rest", "a", &[], &[("b", 9), ("c", 1)]);
    assert_eq!(mesh.paths("a", 80), ["m1 → c 1", "m2 → c 1", "m0 → b 1", " → b 9, c 1"]);
    assert_eq!(mesh.paths("a", 3306), [" → b 9, c 1"]);
}

#[test]
fn service_as_its_own_backend_is_not_a_cycle() {
    let mesh = Mesh::new(&["a", "b"]).split("s", "a", &[], &[("a", 1), ("b", 1)]);
    assert_eq!(mesh.paths("a", 80), [" → a 1, b 1"]);
    assert!(mesh.splits().cycles().is_empty());
}

#[test]
fn nested_splits_multiply_weights_and_combine_conditions() {
    let mesh = Mesh::new(&["a", "b", "c", "d"])
        .split("a", "a", &["m0"], &[("b", 3), ("c", 1)])
        .split("b", "b", &["m1"], &[("d", 1)])
        .split("b-rest", "b", &[], &[("c", 1), ("d", 2)]);
    assert_eq!(mesh.paths("a", 80), ["m0 m1 → c 1, d 3", "m0 → c 6, d 6", " → a 1"]);
}

#[test]
fn repeated_condition_is_evaluated_once() {
    let mesh = Mesh::new(&["a", "b", "c"])
        .split("a", "a", &["m0"], &[("b", 1), ("a", 1)])
        .split("b", "b", &["m0"], &[("c", 1)])
        .split("z", "a", &["m0"], &[("c", 1)]);
    assert_eq!(mesh.paths("a", 80), ["m0 → a 1, c 1", " → a 1"]);
}

#[test]
fn equal_conditions_of_backends_make_no_unreachable_routes() {
    let mesh = Mesh::new(&["a", "b", "c", "d"])
        .split("a", "a", &[], &[("b", 1), ("c", 3)])
        .split("b", "b", &["m0"], &[("d", 1)])
        .split("c", "c", &["m0"], &[("d", 1)]);
    assert_eq!(mesh.paths("a", 80), ["m0 → d 4", " → b 1, c 3"]);
}

#[test]
fn match_without_criteria_makes_its_split_unconditional() {
    let mut mesh = Mesh::new(&["a", "b", "c"]).split("1", "a", &["m0"], &[("b", 1)]).split(
        "2",
        "a",
        &["m1"],
        &[("c", 1)],
    );
    mesh.group.matches[0].headers.clear();
    assert_eq!(mesh.paths("a", 80), [" → b 1"]);
}

#[test]
fn missing_backend_gets_no_share_until_it_exists() {
    let mut mesh = Mesh::new(&["a", "b"])
        .split("a", "a", &[], &[("b", 1), ("c", 3), ("d", 0)])
        .split("c", "c", &[], &[("gone", 1)]);
    assert_eq!(mesh.paths("a", 80), [" → b 1"]);
    mesh.services.push(service("c"));
    assert_eq!(mesh.paths("a", 80), [" → b 1"], "the only backend of `c` does not exist");
    mesh.services.push(service("gone"));
    assert_eq!(mesh.paths("a", 80), [" → b 1, gone 3"]);
    // A backend without the port, or with TCP on it, gets no share either.
    mesh.services[3].ports[0].protocol = Protocol::Tcp;
    assert_eq!(mesh.paths("a", 80), [" → b 1"]);
    mesh.services[1].ports.remove(0);
    assert_eq!(mesh.paths("a", 80), [" → "]);
}

#[test]
fn split_cycle_is_found_once_and_gets_no_traffic() {
    let mesh = Mesh::new(&["a", "b", "c"])
        .split("a", "a", &[], &[("b", 1)])
        .split("b", "b", &["m0"], &[("c", 1)])
        .split("c", "c", &[], &[("b", 1), ("c", 1)]);
    let splits = mesh.splits();
    let cycles: Vec<_> = splits
        .cycles()
        .iter()
        .map(|circle| (circle.services.len(), circle.back.service.to_string()))
        .collect();
    assert_eq!(cycles, [(2, "default/b".to_owned())]);
    assert_eq!(mesh.paths("a", 80), ["m0 → c 1", " → b 1"]);
}

#[test]
fn routes_of_one_service_cover_only_splits_reachable_from_it() {
    let mesh = Mesh::new(&["a", "b", "c", "d"])
        .split("a", "a", &[], &[("b", 1), ("c", 1)])
        .split("b", "b", &[], &[("d", 1)])
        .split("d", "d", &[], &[("c", 1)]);
    let splits = mesh.splits();
    let of = |service: &str| {
        let paths = splits.paths_from(&service.parse().unwrap());
        let http = paths.keys().filter(|port| port.port == 80);
        http.map(|port| port.service.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of("b"), ["b", "d"]);
    assert_eq!(of("c"), [""; 0], "it has no splits");
}

#[test]
fn chain_of_ten_thousand_splits_is_resolved() {
    let names: Vec<_> = (0..10_000).map(|n| format!("s{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mesh = Mesh::new(&names);
    let mesh = names
        .windows(2)
        .fold(mesh, |mesh, pair| mesh.split(pair[0], pair[0], &[], &[(pair[1], 1)]));
    assert_eq!(mesh.paths("s0", 80), [" → s9999 1"]);
}

#[test]
fn too_many_conditions_are_reported_at_the_causing_split() {
    let mut mesh = Mesh::new(&["top", "a", "b"]).split("top", "top", &[], &[("a", 1)]);
    let many: Vec<String> = (0..MAX_PATHS).map(|n| format!("x{n}")).collect();
    mesh.group.matches = many.iter().map(|name| http_match(name)).collect();
    let some: Vec<&str> = many.iter().map(String::as_str).collect();
    // Together with the path for all other calls, these are exactly `MAX_PATHS` paths.
    let mesh = mesh.split("1", "a", &some[1..], &[("b", 1)]);
    let port = |service: &str| ServicePort::new(service.parse().unwrap(), 80);
    assert_eq!(mesh.splits().paths()[&port("top")].as_ref().unwrap().len(), MAX_PATHS);
    let mesh = mesh.split("2", "a", &some[..1], &[("b", 1)]);
    let paths = mesh.splits().paths();
    assert_eq!(paths[&port("a")], Err(TooManyPaths { is_in_backend: false }));
    assert_eq!(paths[&port("top")], Err(TooManyPaths { is_in_backend: true }));
}

const NAMES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
const MATCHES: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Random splits from services to later ones or to themselves; the service `s5` does not exist.
fn mesh() -> impl Strategy<Value = Mesh> {
    let split = (0..5_usize, vec(0..4_usize, 0..3), btree_map(0..6_usize, 0..5_u32, 1..4));
    vec(split, 0..7).prop_map(|splits| {
        let mut mesh = Mesh::new(&NAMES[..5]);
        let mut has_rest = BTreeSet::new();
        for (n, (service, matches, backends)) in splits.into_iter().enumerate() {
            let backends: Vec<_> = backends
                .into_iter()
                .filter(|(backend, _)| *backend >= service)
                .map(|(backend, weight)| (NAMES[backend], weight))
                .collect();
            let matches: Vec<_> = matches.into_iter().map(|n| MATCHES[n]).collect();
            if matches.is_empty() && !has_rest.insert(service) {
                continue;
            }
            // The names reverse the order of the splits.
            mesh = mesh.split(&format!("n{}", 9 - n), NAMES[service], &matches, &backends);
        }
        mesh
    })
}

/// The share of each service in the requests that meet the matches `holds`. It chooses a backend at
/// each split, as policy specifies.
fn shares(mesh: &Mesh, service: &str, holds: &[&str]) -> BTreeMap<String, f64> {
    let own = || {
        let is_there = mesh.services.iter().any(|one| one.name.name.as_str() == service);
        is_there.then(|| (service.to_owned(), 1.0)).into_iter().collect()
    };
    let of_service = mesh.splits.iter().filter(|split| split.service.name.as_str() == service);
    let mut of_service: Vec<_> = of_service.collect();
    of_service.sort_by(|a, b| a.name.cmp(&b.name));
    let names = |split: &TrafficSplit| split.matches[0].matches.clone().unwrap();
    let conditional = of_service
        .iter()
        .filter(|split| split.is_conditional())
        .find(|split| names(split).iter().any(|one| holds.contains(&one.as_str())));
    let rest = of_service.iter().find(|split| !split.is_conditional());
    let Some(split) = conditional.or(rest) else { return own() };
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    let mut sum = 0.0;
    for backend in split.backends.iter().filter(|backend| backend.weight > 0) {
        let behind = if backend.service == split.service {
            own()
        } else {
            shares(mesh, backend.service.name.as_str(), holds)
        };
        if behind.is_empty() {
            continue;
        }
        sum += f64::from(backend.weight);
        for (service, share) in behind {
            *all.entry(service).or_default() += share * f64::from(backend.weight);
        }
    }
    all.into_iter().map(|(service, share)| (service, share / sum)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn resolved_routes_equal_choosing_a_backend_at_each_split(
        mesh in mesh(),
        holds in 0..16_usize,
    ) {
        let holds: Vec<_> =
            MATCHES.iter().enumerate().filter(|(n, _)| holds & (1 << n) != 0).map(|(_, m)| *m).collect();
        let splits = mesh.splits();
        for (port, paths) in splits.paths() {
            let paths = paths.unwrap();
            let (last, others) = paths.split_last().unwrap();
            prop_assert!(last.conditions.is_empty());
            prop_assert!(others.iter().all(|path| !path.conditions.is_empty()));
            let is_http = port.port == 80;
            let is_open = |path: &&SplitPath<'_>| {
                path.conditions.iter().all(|one| is_http && holds.contains(&one.name.as_str()))
            };
            let path = paths.iter().find(is_open).unwrap();
            let sum: f64 = path.backends.iter().map(|(_, weight)| f64::from(*weight)).sum();
            let own: BTreeMap<_, _> = path
                .backends
                .iter()
                .map(|(service, weight)| (service.name.to_string(), f64::from(*weight) / sum))
                .collect();
            let asked = if is_http { holds.as_slice() } else { &[] };
            let expected = shares(&mesh, port.service.name.as_str(), asked);
            prop_assert!(own.keys().eq(expected.keys()), "{own:?} {expected:?}");
            for (service, share) in own {
                prop_assert!((share - expected[&service]).abs() < 1e-6, "{service} {share} {expected:?}");
            }
        }
    }
}
