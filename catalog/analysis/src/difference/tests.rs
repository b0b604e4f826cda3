//! Differences between two snapshots: access gained and lost, and changed services.

use std::sync::Arc;

use ironmesh_catalog::certificate::TrustBundle;
use ironmesh_catalog::endpoint::Discovered;
use ironmesh_catalog::endpoint_source::EndpointSource;
use ironmesh_catalog::finding::Spot;
use ironmesh_catalog::identity::TrustDomain;
use ironmesh_catalog::name::{Domain, Name, ServiceAccount, ServiceName, ServicePort};
use ironmesh_catalog::policy::{
    EgressMode, HttpMatch, HttpRouteGroup, IngressBackend, IngressEntry, IngressPort,
    IngressSource, Method, Namespace, PathRegex, RouteRule, Subject, TrafficTarget,
};
use ironmesh_catalog::policy_upstream::PolicyUpstream;
use ironmesh_catalog::service::{EscapedSlashes, Mode, Port, Protocol, Service, Visibility};
use ironmesh_catalog::snapshot::{Inputs, Mesh, Records};
use ironmesh_catalog::specification::MeshSpecification;
use ironmesh_catalog::tcp_access::TcpAccesses;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

fn account(text: &str) -> ServiceAccount {
    text.parse().unwrap()
}

/// A mesh in which each of these accounts may call `store` on its paths.
fn mesh(mode: Option<Mode>, grants: &[(&str, &[&str])]) -> Snapshot {
    mesh_by(&[], mode, grants)
}

/// A mesh as [`mesh`] returns it, with grants for these methods only.
fn mesh_by(methods: &[&str], mode: Option<Mode>, grants: &[(&str, &[&str])]) -> Snapshot {
    let store = Service {
        name: "store".parse().unwrap(),
        account: account("store"),
        ports: vec![Port {
            name: name("web"),
            number: 80,
            protocol: Protocol::Http,
            target: 80,
            allowed_targets: Vec::new(),
        }],
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
    };
    let mut specification = MeshSpecification::default();
    specification.services.insert(store.name.clone(), Arc::new(store));
    for (caller, paths) in grants {
        let own_name = name(caller.rsplit('/').next().unwrap());
        let one = |(n, path): (usize, &&str)| HttpMatch {
            name: name(&format!("m{n}")),
            path: (**path != *"*").then(|| PathRegex { text: (**path).into(), before_query: None }),
            methods: methods.iter().map(|method| Method((*method).into())).collect(),
            headers: std::collections::BTreeMap::new(),
            spot: spot(),
        };
        let group = HttpRouteGroup {
            namespace: Name::default_namespace(),
            name: own_name.clone(),
            matches: paths.iter().enumerate().map(one).collect(),
            spot: spot(),
        };
        let rule = RouteRule::Http { group: own_name.clone(), matches: None, spot: spot() };
        let target = TrafficTarget {
            namespace: Name::default_namespace(),
            name: own_name.clone(),
            destination: Subject::Account(account("store")),
            sources: vec![Subject::Account(account(caller))],
            rules: vec![rule],
            spot: spot(),
        };
        let key = (Name::default_namespace(), own_name.clone());
        specification.http_route_groups.insert(key.clone(), Arc::new(group));
        specification.traffic_targets.insert(key, Arc::new(target));
    }
    assembled(specification)
}

fn assembled(specification: MeshSpecification) -> Snapshot {
    let domain = Domain::default();
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        specification: Arc::new(specification),
        discovered: Discovered::default(),
        records: Records::new(),
        revoked: Records::new(),
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        certificates: imbl::OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

/// The access that differs, as sign, callers and traffic.
fn access(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let words = |one: &AccessChange| {
        let sign = match one.delta {
            AccessDelta::Lost => '-',
            AccessDelta::Kept => '=',
            AccessDelta::Gained => '+',
        };
        format!("{sign} {}: {}", one.callers, one.traffic)
    };
    Difference::between(before, after).access.iter().map(words).collect()
}

#[test]
fn gained_and_lost_access_is_listed_by_account() {
    let before = mesh(None, &[("anna", &["/a", "/b"]), ("ben", &["/a"])]);
    let after = mesh(None, &[("anna", &["/a", "/c"]), ("cleo", &["/a"])]);
    assert_eq!(
        access(&before, &after),
        [
            "- default/anna: any method on `/b`",
            "+ default/anna: any method on `/c`",
            "- default/ben: any method on `/a`",
            "+ default/cleo: any method on `/a`",
        ]
    );
    assert!(Difference::between(&before, &before).is_empty());
}

#[test]
fn access_implied_by_a_wider_grant_is_not_reported_as_lost() {
    let before = mesh(None, &[("anna", &["/a"]), ("ben", &["/a"])]);
    let wider = mesh(None, &[("anna", &["*"]), ("ben", &["/a"])]);
    assert_eq!(access(&before, &wider), ["+ default/anna: every request"]);
    assert_eq!(
        access(&wider, &before),
        ["- default/anna: every request", "= default/anna: any method on `/a`"]
    );
    let permissive = mesh(Some(Mode::Permissive), &[("ben", &["/a"])]);
    assert_eq!(access(&before, &permissive), ["+ every account of the mesh: every request"]);
    let strict = mesh(None, &[("ben", &["/a"])]);
    assert_eq!(
        access(&permissive, &strict),
        ["- every account of the mesh: every request", "= default/ben: any method on `/a`"]
    );
}

/// The same mesh, with its service changed.
fn changed(mesh: &Snapshot, change: impl Fn(&mut Service)) -> Snapshot {
    let mut inputs = mesh.inputs();
    let mut specification = (*inputs.specification).clone();
    let mut store = (*specification.services[&"store".parse::<ServiceName>().unwrap()]).clone();
    change(&mut store);
    specification.services.insert(store.name.clone(), Arc::new(store));
    inputs.specification = Arc::new(specification);
    mesh.revise(inputs)
}

#[test]
fn private_service_removes_access_of_other_namespaces() {
    let private = |mesh: &Snapshot| changed(mesh, |store| store.visibility = Visibility::Private);
    let strict = mesh(None, &[("anna", &["/a"]), ("office/cleo", &["/a"])]);
    assert_eq!(access(&strict, &private(&strict)), ["- office/cleo: any method on `/a`"]);
    let permissive = mesh(Some(Mode::Permissive), &[]);
    assert_eq!(
        access(&permissive, &private(&permissive)),
        [
            "- every account of the mesh: every request",
            "= every account of namespace default: every request"
        ]
    );
    let of_one = private(&mesh(None, &[("anna", &["/a"])]));
    let of_all = changed(&of_one, |store| store.mode = Some(Mode::Permissive));
    let words = ["+ every account of namespace default: every request"];
    assert_eq!(access(&of_one, &of_all), words);
}

#[test]
fn escaped_slashes_change_is_reported() {
    let before = mesh(None, &[("anna", &["/a"])]);
    let after = changed(&before, |store| store.escaped_slashes = EscapedSlashes::Keep);
    let difference = Difference::between(&before, &after);
    assert_eq!(difference.services[0].details, ["escaped slashes: reject → keep"]);
}

#[test]
fn max_connection_duration_change_is_reported() {
    let before = mesh(None, &[("anna", &["/a"])]);
    let hour = std::time::Duration::from_secs(3600);
    let after = changed(&before, |store| store.max_connection_duration = Some(hour));
    let difference = Difference::between(&before, &after);
    assert_eq!(difference.services[0].details, ["max connection duration: none → 3600s"]);
}

#[test]
fn upstream_changes_are_reported_by_local_port() {
    let upstream = |service: &str, local_port| PolicyUpstream {
        service: service.parse().unwrap(),
        port: None,
        local_port,
        spot: spot(),
    };
    let none = mesh(None, &[("anna", &["/a"])]);
    let one = changed(&none, |store| store.upstreams = vec![upstream("shop/api", 9001)]);
    let other = changed(&none, |store| {
        store.upstreams = vec![upstream("shop/web", 9001), upstream("shop/api", 9002)];
    });
    let details = |from, to| Difference::between(from, to).services[0].details.clone();
    assert_eq!(details(&none, &one), ["new upstream shop/api=9001"]);
    assert_eq!(
        details(&one, &other),
        ["upstream shop/api=9001 → shop/web=9001", "new upstream shop/api=9002"]
    );
    assert_eq!(details(&one, &none), ["no more upstream shop/api=9001"]);
}

#[test]
fn drained_service_is_reported_without_access_changes() {
    let active = mesh(None, &[("anna", &["/a"])]);
    let drained = changed(&active, |store| store.drained = true);
    let details = |from, to| Difference::between(from, to).services[0].details.clone();
    assert_eq!(details(&active, &drained), ["state active → drained"]);
    assert_eq!(details(&drained, &active), ["state drained → active"]);
    let none = active.revise(Inputs { specification: Arc::default(), ..active.inputs() });
    assert!(details(&none, &drained).contains(&"drained".to_owned()));
    // Draining a service removes no access.
    assert!(Difference::between(&active, &drained).access.is_empty());
}

#[test]
fn subset_access_change_is_reported_with_its_service() {
    let with_part = |mesh: &Snapshot| {
        changed(mesh, |store| {
            let labels = [("v", "1")].into_iter().collect();
            store.endpoints = EndpointSource::Subset { of: store.name.clone(), labels };
            store.name = "part".parse().unwrap();
        })
    };
    let one = with_part(&mesh(None, &[("anna", &["/a"])]));
    let two = with_part(&mesh(None, &[("anna", &["/a"]), ("ben", &["/a"])]));
    let changes = Difference::between(&one, &two).access;
    assert_eq!(
        changes.iter().map(|one| one.port.to_string()).collect::<Vec<_>>(),
        ["default/store|80"]
    );
}

#[test]
fn only_added_or_removed_methods_are_reported() {
    let before = mesh_by(&["GET"], None, &[("anna", &["/a"])]);
    let after = mesh_by(&["PUT", "GET", "POST"], None, &[("anna", &["/a"])]);
    assert_eq!(access(&before, &after), ["+ default/anna: POST, PUT on `/a`"]);
    assert_eq!(access(&after, &before), ["- default/anna: POST, PUT on `/a`"]);
    let any = mesh(None, &[("anna", &["/a"])]);
    assert_eq!(access(&before, &any), ["+ default/anna: any method on `/a`"]);
    assert_eq!(
        access(&any, &before),
        ["- default/anna: any method on `/a`", "= default/anna: GET on `/a`"]
    );
}

#[test]
fn changed_service_is_reported_with_changed_details_only() {
    let (before, after) = (mesh(None, &[]), mesh(Some(Mode::Permissive), &[]));
    let services = Difference::between(&before, &after).services;
    let [only] = &services[..] else { panic!("{services:?}") };
    assert_eq!(
        (only.change, &only.details[..]),
        (Change::Changed, &["mode strict → permissive".to_owned()][..])
    );
}

#[test]
fn namespace_mode_change_is_reported_for_inheriting_services() {
    let before = mesh(Some(Mode::Strict), &[]);
    let in_namespace = |mode, of_service| {
        let after = mesh(of_service, &[]);
        let namespace = Namespace {
            name: Name::default_namespace(),
            mode: Some(mode),
            egress: None,
            spot: spot(),
        };
        let specification = MeshSpecification {
            namespaces: [(namespace.name.clone(), Arc::new(namespace))].into_iter().collect(),
            ..(*after.specification).clone()
        };
        assembled(specification)
    };
    let reported = |after: &Snapshot| -> Vec<String> {
        let services = Difference::between(&before, after).services;
        services.into_iter().flat_map(|one| one.details).collect()
    };
    assert_eq!(reported(&in_namespace(Mode::Audit, None)), ["mode strict → audit"]);
    assert_eq!(reported(&in_namespace(Mode::Strict, None)), [""; 0]);
    assert_eq!(reported(&in_namespace(Mode::Audit, Some(Mode::Strict))), [""; 0]);
}

#[test]
fn access_gained_by_mode_names_the_mode() {
    let strict = mesh(None, &[]);
    for mode in [Mode::Permissive, Mode::Audit] {
        let access = Difference::between(&strict, &mesh(Some(mode), &[])).access;
        let [gained] = &access[..] else { panic!("{access:?}") };
        assert_eq!((&gained.by[..], &gained.mode), (&[][..], &Some(mode.to_string())));
    }
    let access = Difference::between(&strict, &mesh(None, &[("anna", &["/a"])])).access;
    assert_eq!((access[0].by.len(), &access[0].mode), (1, &None));
}

#[test]
fn twenty_thousand_paths_of_one_account_are_compared() {
    let paths: Vec<_> = (0..20_000).map(|n| format!("/{n}")).collect();
    let mut paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let before = mesh_by(&["GET", "PUT"], None, &[("anna", &paths)]);
    for path in paths.iter_mut().step_by(2) {
        *path = "/other";
    }
    let after = mesh_by(&["GET", "PUT"], None, &[("anna", &paths)]);
    // Half of the paths are lost and one is gained, each with both methods.
    let lost = access(&before, &after);
    assert_eq!(lost.len(), 10_001);
    assert_eq!(lost[10_000], "+ default/anna: GET, PUT on `/other`");
    // One wider access is lost, and all narrower ones are kept.
    let wide = mesh_by(&["GET", "PUT"], None, &[("anna", &[&["*"], &paths[..]].concat())]);
    assert_eq!(access(&wide, &after).len(), 1 + 10_001);
}

#[test]
fn ingress_backend_change_is_reported_with_entry_and_sources() {
    let with = |source: IngressSource| {
        let port = ServicePort::new("store".parse().unwrap(), 80);
        let policy = IngressBackend {
            namespace: Name::default_namespace(),
            name: name("edge"),
            backends: vec![IngressPort {
                port,
                entry: IngressEntry::Http { port: 8443 },
                spot: spot(),
            }],
            sources: vec![source],
            matches: Vec::new(),
            spot: spot(),
        };
        let key = (policy.namespace.clone(), policy.name.clone());
        let closed = mesh(None, &[]);
        let mut specification = (*closed.specification).clone();
        specification.ingress_backends.insert(key, Arc::new(policy));
        closed.revise(Inputs { specification: Arc::new(specification), ..closed.inputs() })
    };
    let reported = |before: &Snapshot, after: &Snapshot| {
        let changes = Difference::between(before, after).treatments;
        let [TreatmentChange { by, change, details }] = &changes[..] else { panic!("{changes:?}") };
        (by.object.clone(), *change, details.clone())
    };
    let range = with(IngressSource::Range("10.0.0.0/8".parse().unwrap()));
    let service = with(IngressSource::Service("edge".parse().unwrap()));
    let object = "ingress backend `default/edge`".to_owned();
    let traffic = "ingress to default/store|80: http at port 8443".to_owned();
    let from = |source: &str| format!("from outside of the mesh: {source}");
    let expected = (object.clone(), Change::Added, vec![traffic, from("10.0.0.0/8")]);
    assert_eq!(reported(&mesh(None, &[]), &range), expected);
    let no_more = format!("no more {}", from("10.0.0.0/8"));
    let expected = (object, Change::Changed, vec![no_more, from("where default/edge runs")]);
    assert_eq!(reported(&range, &service), expected);
}
