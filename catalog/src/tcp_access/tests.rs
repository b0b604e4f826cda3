use std::sync::Arc;

use super::*;
use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::name::{Name, ServiceName};
use crate::policy::{RouteRule, Subject, TcpRoute, TrafficTarget};
use crate::service::{EscapedSlashes, Port, Protocol, Service, Visibility};

const LEDGER: u16 = 3306;

fn account(name: &str) -> ServiceAccount {
    name.parse().unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

fn warehouse(mode: Option<Mode>) -> Service {
    let port = |number, protocol| Port {
        name: name(&format!("p{number}")),
        number,
        protocol,
        target: number,
        allowed_targets: Vec::new(),
    };
    Service {
        name: "warehouse".parse().unwrap(),
        account: account("warehouse"),
        ports: vec![port(80, Protocol::Http), port(LEDGER, Protocol::Tcp)],
        endpoints: EndpointSource::registered(),
        mode,
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

/// The warehouse, with a TCP route to `ports` for `callers`.
fn specification(mode: Option<Mode>, callers: &[&str], ports: Option<&[u16]>) -> MeshSpecification {
    let service = warehouse(mode);
    let route = TcpRoute {
        namespace: name("default"),
        name: name("ledger"),
        ports: ports.map(<[u16]>::to_vec),
        spot: spot(),
    };
    let target = TrafficTarget {
        namespace: name("default"),
        name: name("t"),
        destination: Subject::Account(service.account.clone()),
        sources: callers.iter().map(|name| Subject::Account(account(name))).collect(),
        rules: vec![RouteRule::Tcp { route: route.name.clone(), spot: spot() }],
        spot: spot(),
    };
    let key = |name: &Name| (Name::default_namespace(), name.clone());
    MeshSpecification {
        services: [(service.name.clone(), Arc::new(service))].into_iter().collect(),
        traffic_targets: [(key(&target.name), Arc::new(target))].into_iter().collect(),
        tcp_routes: [(key(&route.name), Arc::new(route))].into_iter().collect(),
        ..MeshSpecification::default()
    }
}

/// The grants of the specification's traffic targets.
fn grants(specification: &MeshSpecification) -> Grants {
    let account = |subject: &Subject| match subject {
        Subject::Account(account) => account.clone(),
        Subject::Binding(..) => panic!("the specification has no identity bindings"),
    };
    let grant = |target: &Arc<TrafficTarget>| Grant {
        target: Arc::clone(target),
        destinations: [account(&target.destination)].into(),
        sources: target.sources.iter().map(account).collect(),
    };
    let targets = specification.traffic_targets.iter();
    let by_target = targets.map(|(key, target)| (key.clone(), Arc::new(grant(target)))).collect();
    Grants::of(by_target)
}

fn accesses_of(specification: &MeshSpecification, mode: Mode, before: &TcpAccesses) -> TcpAccesses {
    tcp_accesses(specification, &grants(specification), mode, before)
}

fn these(names: &[&str]) -> Callers {
    Callers::These(names.iter().map(|name| account(name)).collect())
}

#[test]
fn callers_include_their_subsets_and_anyone_includes_all() {
    assert!(these(&["a", "b"]).include(&these(&["a"])));
    assert!(!these(&["a"]).include(&these(&["a", "b"])));
    assert!(Callers::Anyone.include(&these(&["a"])) && Callers::Anyone.include(&Callers::Anyone));
    assert!(!these(&["a"]).include(&Callers::Anyone));
    assert!(these(&[]).is_empty() && !Callers::Anyone.is_empty());
    assert!(Callers::Anyone.contain(&account("a")) && !these(&[]).contain(&account("a")));
}

#[test]
fn tcp_access_requires_a_tcp_route_that_covers_the_port() {
    let callers = |specification: &MeshSpecification| {
        let all = accesses_of(specification, Mode::Strict, &TcpAccesses::default()).ports;
        let service: ServiceName = "warehouse".parse().unwrap();
        assert_eq!(all.len(), 1, "Envoy authorizes an HTTP port per request: {all:?}");
        all[&ServicePort::new(service, LEDGER)].callers.clone()
    };
    assert_eq!(callers(&specification(None, &["a", "b"], None)), these(&["a", "b"]));
    assert_eq!(callers(&specification(None, &["a"], Some(&[LEDGER]))), these(&["a"]));
    assert!(callers(&specification(None, &["a"], Some(&[80]))).is_empty());
    let mut other = specification(None, &["a"], None);
    other.tcp_routes.clear();
    assert!(callers(&other).is_empty(), "a missing route allows nothing");
    assert_eq!(callers(&specification(Some(Mode::Permissive), &[], None)), Callers::Anyone);
}

#[test]
fn tcp_withdrawals_count_removed_callers_only() {
    let port = ServicePort::new("warehouse".parse().unwrap(), LEDGER);
    let steps: [(Option<Mode>, &[&str], u64); 7] = [
        (None, &["a"], 0),
        (None, &["a", "b"], 0),
        (None, &["b"], 1),
        (None, &["b"], 1),
        (Some(Mode::Permissive), &["b"], 1),
        (None, &["b"], 2),
        (None, &["c"], 3),
    ];
    let mut accesses = TcpAccesses::default();
    for (mode, callers, withdrawals) in steps {
        accesses = accesses_of(&specification(mode, callers, None), Mode::Strict, &accesses);
        assert_eq!(accesses.ports[&port].withdrawals, withdrawals, "{mode:?} {callers:?}");
    }
}

#[test]
fn readded_port_has_a_new_withdrawal_count() {
    let port = ServicePort::new("warehouse".parse().unwrap(), LEDGER);
    let step = |specification: &MeshSpecification, before: &TcpAccesses| {
        accesses_of(specification, Mode::Strict, before)
    };
    let first = step(&specification(None, &["a", "b"], None), &TcpAccesses::default());
    let gone = step(&MeshSpecification::default(), &first);
    assert!(gone.ports.is_empty());
    // Meanwhile `b` may be connected to a proxy that has received neither change.
    let back = step(&specification(None, &["a"], None), &gone);
    assert_ne!(back.ports[&port].withdrawals, first.ports[&port].withdrawals);
    // A removed port without callers leaves no withdrawal behind.
    let closed = step(&specification(None, &[], None), &TcpAccesses::default());
    assert_eq!(step(&MeshSpecification::default(), &closed).withdrawals, 0);
}

/// The mode, the callers, the withdrawn accounts, and those with chains of their own.
type Step<'a> = (Option<Mode>, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

#[test]
fn withdrawn_accounts_are_noted_until_their_next_grant() {
    let port = ServicePort::new("warehouse".parse().unwrap(), LEDGER);
    let permissive = Some(Mode::Permissive);
    let steps: [Step<'_>; 9] = [
        (None, &["a", "b"], &[], &["a", "b"]),
        (None, &["b", "c"], &["a"], &["b", "c"]),
        (None, &["c"], &["a", "b"], &["c"]),
        (None, &["a", "c"], &["b"], &["a", "c"]),
        // All are callers: those that policy named stay apart.
        (permissive, &[], &[], &["a", "c"]),
        (None, &["a"], &["c"], &["a"]),
        (None, &[], &["c", "a"], &[]),
        (permissive, &[], &[], &[]),
        // Nothing tells which accounts had connections.
        (None, &["b"], &[], &["b"]),
    ];
    let mut accesses = TcpAccesses::default();
    for (mode, callers, withdrawn, named) in steps {
        accesses = accesses_of(&specification(mode, callers, None), Mode::Strict, &accesses);
        let access = &accesses.ports[&port];
        let accounts = |names: &[&str]| names.iter().map(|name| account(name)).collect::<Vec<_>>();
        assert_eq!(access.withdrawn, accounts(withdrawn), "{mode:?} {callers:?}");
        assert_eq!(access.named().iter().cloned().collect::<Vec<_>>(), accounts(named));
    }
}

#[test]
fn withdrawn_accounts_are_limited_to_the_last() {
    let port = ServicePort::new("warehouse".parse().unwrap(), LEDGER);
    let names: Vec<_> = (100..200).map(|number| format!("a{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut accesses = TcpAccesses::default();
    for callers in [&names[..], &names[50..], &[]] {
        accesses = accesses_of(&specification(None, callers, None), Mode::Strict, &accesses);
    }
    let withdrawn = &accesses.ports[&port].withdrawn;
    assert_eq!(withdrawn.len(), TcpAccess::MAX_WITHDRAWN);
    assert_eq!(withdrawn.last(), Some(&account("a199")));
}

#[test]
fn access_stored_by_an_earlier_version_is_read() {
    let stored = r#"{"callers":{"these":["default/a"]},"withdrawals":3}"#;
    let access: TcpAccess = serde_json::from_str(stored).unwrap();
    assert!(access.withdrawn.is_empty() && access.withdrawals == 3);
    assert_eq!(serde_json::to_string(&access).unwrap(), stored);
}

#[test]
fn control_planes_count_one_withdrawal_once() {
    let accesses = |callers: &[&str], before: &TcpAccesses| {
        accesses_of(&specification(None, callers, Some(&[LEDGER])), Mode::Strict, before)
    };
    let first = accesses(&["buyer", "thief"], &TcpAccesses::default());
    // One control plane sees two withdrawals, the other one the second alone.
    let one = accesses(&["buyer"], &first);
    let stored = accesses(&[], &one);
    let other = accesses(&[], &first);
    assert_ne!(other, stored);
    assert_eq!(other.agreeing_with(&first, &stored), stored);
    // A control plane whose policy is older keeps its callers, and counts the withdrawal as the others when it comes.
    let older = first.agreeing_with(&first, &stored);
    assert_eq!((&older.ports, older.withdrawals), (&first.ports, stored.withdrawals));
    let late = accesses(&[], &older).agreeing_with(&older, &stored);
    assert_eq!(late.ports, stored.ports);
    // One that others have not seen changes the count, whatever they have stored.
    let granted = accesses(&["thief"], &stored);
    let again = accesses(&[], &granted);
    assert_eq!(again.agreeing_with(&granted, &stored), again);
}
