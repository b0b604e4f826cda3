//! Snapshots: which endpoints callers use, with which transport, and which findings explain it.

mod application_health;
mod endpoint_statuses;
mod health;
mod ingress_rules;
mod listeners;
mod mapping;
mod outages;

use std::net::SocketAddr;

use jiff::Timestamp;
use uuid::Uuid;

use super::*;
use crate::endpoint::{Health, Provider, Transport};
use crate::endpoint_source::{ConsulQuery, EndpointSource, Providers, StaticEndpoint};
use crate::finding::Spot;
use crate::labels::Labels;
use crate::locality::Locality;
use crate::policy::{EgressMode, Namespace};
use crate::proxy::{CertificateSource, Participation, Revocation};
use crate::service::{EscapedSlashes, External, Port, Protocol, Resolution, Visibility};

const WEB: u16 = 14001;

/// An endpoint source that queries Consul.
fn asks_consul() -> EndpointSource {
    let query = ConsulQuery::of("store");
    EndpointSource::Providers(Providers { consul: Some(query), ..Providers::default() })
}

fn service(name: &str) -> Service {
    let name: ServiceName = name.parse().unwrap();
    Service {
        account: ServiceAccount::new(name.namespace.clone(), name.name.clone()),
        name,
        ports: vec![Port {
            name: Name::new("web").unwrap(),
            number: WEB,
            protocol: Protocol::Http,
            target: 8080,
            allowed_targets: Vec::new(),
        }],
        endpoints: asks_consul(),
        mode: None,
        visibility: Visibility::Public,
        escaped_slashes: EscapedSlashes::Reject,
        max_connection_duration: None,
        drained: false,
        health: None,
        external: None,
        subsets: Vec::new(),
        upstreams: Vec::new(),
        spot: Spot::new(&"p.toml".into(), "", 0..0),
    }
}

fn record(id: u128, address: &str, service: &str, participates: bool) -> JoinRecord {
    let service: ServiceName = service.parse().unwrap();
    let ports = participates.then(|| (service.clone(), WEB)).into_iter().collect();
    JoinRecord {
        participation: Participation(ports),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(id)),
            vec![service],
            SocketAddr::new(address.parse().unwrap(), 15003),
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH,
        )
    }
}

fn endpoint(address: &str, port: Option<u16>, weight: u32) -> Endpoint {
    let address = address.parse().unwrap();
    Endpoint { port, weight, ..Endpoint::new(Provider::Static, address) }
}

/// The endpoint of an enrolled proxy that no provider reports.
fn registered(record: &JoinRecord) -> Endpoint {
    let endpoint = Endpoint::new(Provider::Registered, record.mesh_address.ip());
    Endpoint { proxy: Some(record.id), ..endpoint }
}

fn assemble(endpoints: Vec<Endpoint>, records: &[JoinRecord]) -> Snapshot {
    assemble_in(Mode::Strict, endpoints, records)
}

fn assemble_in(mode: Mode, endpoints: Vec<Endpoint>, records: &[JoinRecord]) -> Snapshot {
    assemble_all(mode, vec![(service("store"), endpoints)], records)
}

/// The snapshot of a mesh with these services and their discovered endpoints.
fn assemble_all(
    mode: Mode,
    services: Vec<(Service, Vec<Endpoint>)>,
    records: &[JoinRecord],
) -> Snapshot {
    let known = services.iter().map(|(one, known)| (one.name.clone(), Arc::new(known.clone())));
    let discovered = Discovered(known.collect());
    let services = services.into_iter().map(|(one, _)| (one.name.clone(), Arc::new(one)));
    let specification =
        MeshSpecification { services: services.collect(), ..MeshSpecification::default() };
    let domain = Domain::default();
    let of = |is_one: &dyn Fn(&&JoinRecord) -> bool| -> Records {
        let some = records.iter().filter(is_one);
        some.map(|record| (record.id, Arc::new(record.clone()))).collect()
    };
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode,
        egress: EgressMode::Policy,
        specification: Arc::new(specification),
        discovered,
        records: of(&|record| record.revoked.is_none()),
        revoked: of(&|record| record.revoked.is_some()),
        leaving: LeavingProxies::new(),
        health: ReportedApplications::new(),
        certificates: OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

fn reported(snapshot: &Snapshot) -> Vec<String> {
    snapshot.findings().map(|finding| finding.message.clone()).collect()
}

fn dialled(snapshot: &Snapshot) -> Vec<(String, u32)> {
    dialled_as(snapshot, "store")
}

fn dialled_as(snapshot: &Snapshot, service: &str) -> Vec<(String, u32)> {
    let endpoints = of_mesh(snapshot, service);
    endpoints.iter().map(|e| (e.address.to_string(), e.weight)).collect()
}

/// The endpoints that callers of a service's port dial.
fn of_mesh(snapshot: &Snapshot, service: &str) -> Vec<MeshEndpoint> {
    let port = ServicePort::new(service.parse().unwrap(), WEB);
    snapshot.endpoints.get(&port).unwrap().to_vec()
}

/// The local endpoints of a proxy: port, weight and health.
fn behind(snapshot: &Snapshot, record: &JoinRecord, service: &str) -> Vec<(u16, u32, Health)> {
    let key = (record.id, ServicePort::new(service.parse().unwrap(), WEB));
    let known = snapshot.local_endpoints.get(&key).cloned().unwrap_or_default();
    known.iter().map(|one| (one.port, one.weight, one.health)).collect()
}

#[test]
fn proxy_is_called_only_after_it_acked_the_port() {
    let here = endpoint("10.0.0.1", None, 1);
    let ready = [record(1, "10.0.0.1", "store", true)];
    assert_eq!(dialled(&assemble(vec![here.clone()], &ready)), [("10.0.0.1:15003".to_owned(), 1)]);
    let not_ready = [record(1, "10.0.0.1", "store", false)];
    assert!(dialled(&assemble(vec![here.clone()], &not_ready)).is_empty());
    let of_another_service = [record(1, "10.0.0.1", "other", true)];
    assert!(dialled(&assemble(vec![here], &of_another_service)).is_empty());
}

#[test]
fn two_proxies_at_one_address_need_a_provider_that_names_one() {
    let mut records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", true)];
    records[1].mesh_address.set_port(16003);
    let here = endpoint("10.0.0.1", None, 1);
    let snapshot = assemble(vec![here.clone()], &records);
    assert!(dialled(&snapshot).is_empty());
    assert_eq!(reported(&snapshot).len(), 1, "{:?}", reported(&snapshot));
    let named = Endpoint { proxy: Some(records[1].id), ..here };
    assert_eq!(dialled(&assemble(vec![named], &records)).len(), 1);
}

#[test]
fn endpoints_of_one_proxy_are_called_once_with_summed_weight() {
    let records = [record(1, "10.0.0.1", "store", true)];
    let two = vec![endpoint("10.0.0.1", Some(8081), 2), endpoint("10.0.0.1", None, 3)];
    let snapshot = assemble(two, &records);
    assert_eq!(dialled(&snapshot), [("10.0.0.1:15003".to_owned(), 5)]);
    // The provider's port beats the service's target port.
    let healthy = |(port, weight)| (port, weight, Health::Healthy);
    assert_eq!(behind(&snapshot, &records[0], "store"), [(8080, 3), (8081, 2)].map(healthy));
}

#[test]
fn reenrolled_proxy_neither_replaces_nor_doubles_a_running_one() {
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", false)];
    let listed = || endpoint("10.0.0.1", None, 3);
    let snapshot = assemble(vec![listed()], &records);
    assert_eq!(dialled(&snapshot), [("10.0.0.1:15003".to_owned(), 3)]);
    assert!(reported(&snapshot).is_empty(), "{:?}", reported(&snapshot));

    // Both enrollments participate: callers still have one address, and its weight is not doubled.
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", true)];
    assert_eq!(dialled(&assemble(vec![listed()], &records)), [("10.0.0.1:15003".to_owned(), 3)]);
    let both = records.iter().map(registered).collect();
    let snapshot = assemble(both, &records);
    assert_eq!(dialled(&snapshot), [("10.0.0.1:15003".to_owned(), 1)]);
}

#[test]
fn permissive_mode_calls_non_participants_in_plaintext() {
    let found = || {
        vec![
            endpoint("10.0.0.1", None, 2),
            endpoint("10.0.0.2", Some(9000), 3),
            endpoint("10.0.0.3", None, 1),
        ]
    };
    let records = [record(1, "10.0.0.1", "store", true), record(3, "10.0.0.3", "store", false)];
    let snapshot = assemble_in(Mode::Permissive, found(), &records);
    let port = ServicePort::new("store".parse().unwrap(), WEB);
    let all: Vec<_> = snapshot.endpoints[&port]
        .iter()
        .map(|one| (one.address.to_string(), one.transport, one.weight))
        .collect();
    assert_eq!(
        all,
        [
            ("10.0.0.1:15003".to_owned(), Transport::MutualTls, 2),
            ("10.0.0.2:9000".to_owned(), Transport::Plaintext, 3),
            // Its proxy is enrolled and does not participate yet, so callers keep using plaintext.
            ("10.0.0.3:8080".to_owned(), Transport::Plaintext, 1),
        ]
    );
    let findings = reported(&snapshot);
    let [finding, waiting] = &findings[..] else { panic!("{findings:?}") };
    assert!(waiting.contains("10.0.0.3 of service `default/store` is called in plaintext: proxy"));
    assert!(finding.contains("10.0.0.2 of service `default/store` is called in plaintext"));

    // In strict mode the endpoint without a proxy has a finding; an enrolled proxy may still come.
    let strict = assemble(found(), &records);
    assert_eq!(dialled(&strict), [("10.0.0.1:15003".to_owned(), 2)]);
    assert!(reported(&strict)[0].contains("gets no traffic"), "{:?}", reported(&strict));
    // Callers never use a registered endpoint in plaintext: perhaps only its proxy reaches it.
    let registered = registered(&records[1]);
    let snapshot = assemble_in(Mode::Permissive, vec![registered], &records);
    assert!(dialled(&snapshot).is_empty());
}

#[test]
fn revoked_proxy_address_is_not_called_until_reenrollment() {
    let listed = || endpoint("10.0.0.1", None, 1);
    let mut gone = record(1, "10.0.0.1", "store", false);
    gone.revoked = Some(Revocation::by_operator(Timestamp::UNIX_EPOCH, None));
    for mode in [Mode::Strict, Mode::Permissive] {
        let snapshot = assemble_in(mode, vec![listed()], &[gone.clone()]);
        assert_eq!(dialled(&snapshot), [], "{mode}");
        let [finding] = &reported(&snapshot)[..] else { panic!("{:?}", reported(&snapshot)) };
        assert!(finding.ends_with("at its address was revoked"), "{finding}");
        // The revocation concerns only the services for which the proxy was enrolled.
        let mut elsewhere = gone.clone();
        elsewhere.services = vec!["other".parse().unwrap()];
        let snapshot = assemble_in(mode, vec![listed()], &[elsewhere]);
        assert_eq!(dialled(&snapshot).len(), usize::from(mode == Mode::Permissive), "{mode}");

        let anew = record(2, "10.0.0.1", "store", true);
        let snapshot = assemble_in(mode, vec![listed()], &[gone.clone(), anew]);
        assert_eq!(dialled(&snapshot), [("10.0.0.1:15003".to_owned(), 1)], "{mode}");
        assert_eq!(reported(&snapshot), [""; 0]);
    }
}

#[test]
fn membership_comparison_ignores_participation() {
    let records = |participates: bool, ids: &[u128]| -> Records {
        let record = |id: &u128| Arc::new(record(*id, "10.0.0.1", "store", participates));
        ids.iter().map(record).map(|record| (record.id, record)).collect()
    };
    let two = records(false, &[1, 2]);
    assert!(have_same_members(&two, &records(true, &[1, 2])));
    for others in [&[1][..], &[1, 3], &[1, 2, 3], &[]] {
        assert!(!have_same_members(&two, &records(false, others)), "{others:?}");
    }
}

#[test]
fn static_endpoint_change_reuses_tcp_accesses() {
    let mut service = service("store");
    service.ports[0].protocol = Protocol::Tcp;
    let Endpoint { address, port, weight, labels, .. } = endpoint("10.0.0.1", None, 1);
    let spot = service.spot.clone();
    let listed =
        StaticEndpoint { address, port, weight, labels, locality: Locality::default(), spot };
    service.endpoints = EndpointSource::fixed(vec![listed]);
    let with = |service: &Service| MeshSpecification {
        services: [(service.name.clone(), Arc::new(service.clone()))].into_iter().collect(),
        ..MeshSpecification::default()
    };
    let before = assemble(Vec::new(), &[]);
    let inputs = |specification| Inputs {
        revoked: Records::default(),
        leaving: LeavingProxies::new(),
        health: ReportedApplications::new(),
        mesh: before.mesh.clone(),
        mode: before.mode,
        egress: before.egress,
        specification: Arc::new(specification),
        discovered: Discovered::default(),
        records: Records::new(),
        certificates: OrdMap::new(),
        trust_bundle: Arc::clone(&before.trust_bundle),
        revoked_callers: Arc::default(),
    };
    let before = before.revise(inputs(with(&service)));
    assert_eq!(before.tcp_accesses.ports.len(), 1);
    service.endpoints = EndpointSource::fixed(Vec::new());
    let after = before.revise(inputs(with(&service)));
    assert_ne!(before.specification, after.specification);
    assert!(after.tcp_accesses.ports.ptr_eq(&before.tcp_accesses.ports));
    service.mode = Some(Mode::Permissive);
    let other = after.revise(inputs(with(&service)));
    assert!(!other.tcp_accesses.ports.ptr_eq(&before.tcp_accesses.ports));
    let joining = Service { endpoints: EndpointSource::registered(), ..service.clone() };
    assert!(!with(&joining).has_same_access(&with(&service)));
}

#[test]
fn service_without_mode_inherits_the_namespace_mode() {
    let before = assemble(vec![endpoint("10.0.0.1", None, 1)], &[]);
    assert_eq!(dialled(&before), []);
    let in_mode = |mode| {
        let name = Name::default_namespace();
        let spot = before.specification.services.values().next().unwrap().spot.clone();
        let namespace = Namespace { name: name.clone(), mode: Some(mode), egress: None, spot };
        let specification = MeshSpecification {
            namespaces: [(name, Arc::new(namespace))].into_iter().collect(),
            ..(*before.specification).clone()
        };
        before.revise(Inputs {
            revoked: Records::default(),
            leaving: LeavingProxies::new(),
            health: ReportedApplications::new(),
            mesh: before.mesh.clone(),
            mode: before.mode,
            egress: before.egress,
            specification: Arc::new(specification),
            discovered: before.discovered.clone(),
            records: Records::new(),
            certificates: OrdMap::new(),
            trust_bundle: Arc::clone(&before.trust_bundle),
            revoked_callers: Arc::default(),
        })
    };
    for (mode, count) in [(Mode::Audit, 1), (Mode::Permissive, 1), (Mode::Strict, 0)] {
        assert_eq!(dialled(&in_mode(mode)).len(), count, "{mode}");
    }
}
