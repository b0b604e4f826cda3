//! Ingress rules whose sources are services: they allow the addresses at which these services run.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use uuid::Uuid;

use crate::certificate::TrustBundle;
use crate::endpoint::{Discovered, Endpoint, Provider};
use crate::endpoint_source::{ConsulQuery, EndpointSource, Providers};
use crate::finding::Spot;
use crate::identity::TrustDomain;
use crate::name::{Domain, Name, ServicePort};
use crate::policy::{EgressMode, IngressBackend, IngressEntry, IngressPort, IngressSource};
use crate::proxy::{JoinRecord, ProxyId};
use crate::service::{EscapedSlashes, Mode, Service, Visibility};
use crate::snapshot::{Inputs, Mesh, Records, Snapshot};
use crate::specification::MeshSpecification;
use crate::tcp_access::TcpAccesses;

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

fn service(name: &str, endpoints: EndpointSource) -> Arc<Service> {
    Arc::new(Service {
        name: name.parse().unwrap(),
        account: name.parse().unwrap(),
        ports: Vec::new(),
        endpoints,
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
    })
}

/// A mesh with an ingress rule for `store` from these sources, and with the service `edge`.
///
/// The argument `edge` is the endpoint source of that service, `found` its discovered endpoints,
/// and `joined` the addresses of its proxies. All have claimed their enrollment, except `.99`.
fn inputs(
    sources: Vec<IngressSource>,
    edge: EndpointSource,
    found: &[Endpoint],
    joined: &[&str],
) -> Inputs {
    let port = ServicePort::new("store".parse().unwrap(), 80);
    let policy = IngressBackend {
        namespace: Name::default_namespace(),
        name: Name::new("in").unwrap(),
        backends: vec![IngressPort { port, entry: IngressEntry::Http { port: 80 }, spot: spot() }],
        sources,
        matches: Vec::new(),
        spot: spot(),
    };
    let key = (policy.namespace.clone(), policy.name.clone());
    let services = [service("store", EndpointSource::registered()), service("edge", edge)];
    let specification = MeshSpecification {
        services: services.into_iter().map(|one| (one.name.clone(), one)).collect(),
        ingress_backends: [(key, Arc::new(policy))].into_iter().collect(),
        ..MeshSpecification::default()
    };
    let record = |(n, address): (u128, &&str)| {
        let id = ProxyId(Uuid::from_u128(n));
        let record = JoinRecord {
            claimed_at: (!address.ends_with(".99")).then_some(Timestamp::UNIX_EPOCH),
            ..JoinRecord::new(
                id,
                vec!["edge".parse().unwrap()],
                SocketAddr::new(address.parse().unwrap(), 15003),
                Timestamp::UNIX_EPOCH,
                Timestamp::MAX,
            )
        };
        (id, Arc::new(record))
    };
    let domain = Domain::default();
    let found = [("edge".parse().unwrap(), Arc::new(found.to_vec()))];
    Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::default(),
        specification: Arc::new(specification),
        discovered: Discovered(found.into_iter().collect()),
        records: (0..).zip(joined).map(record).collect(),
        revoked: Records::new(),
        leaving: crate::snapshot::LeavingProxies::new(),
        health: crate::ReportedApplications::new(),
        certificates: OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
    }
}

/// The address ranges from which callers of the store may connect.
fn ranges(snapshot: &Snapshot) -> Option<Vec<String>> {
    let rules = snapshot.ingress_rules.values().next().unwrap();
    let ranges = rules.first().unwrap().ranges.as_ref()?;
    Some(ranges.iter().map(ToString::to_string).collect())
}

fn endpoint(provider: Provider, address: &str) -> Endpoint {
    Endpoint::new(provider, address.parse::<IpAddr>().unwrap())
}

#[test]
fn source_service_resolves_to_its_current_addresses() {
    let sources = || {
        vec![
            IngressSource::Service("edge".parse().unwrap()),
            IngressSource::Range("10.1.0.0/16".parse().unwrap()),
        ]
    };
    let registered = EndpointSource::registered;
    let moment = |joined: &[&str]| inputs(sources(), registered(), &[], joined);
    let first = Snapshot::assemble(moment(&[]), TcpAccesses::default());
    assert_eq!(ranges(&first).unwrap(), ["10.1.0.0/16"]);
    // A proxy enrolls while policy stays the same.
    let next = Inputs { specification: Arc::clone(&first.specification), ..moment(&["10.0.0.7"]) };
    let next = first.revise(next);
    assert_eq!(ranges(&next).unwrap(), ["10.0.0.7/32", "10.1.0.0/16"]);
    let gone = Inputs { specification: Arc::clone(&first.specification), ..moment(&[]) };
    assert_eq!(next.revise(gone).ingress_rules, first.ingress_rules);
}

#[test]
fn source_service_excludes_addresses_that_others_can_register() {
    let source = || vec![IngressSource::Service("edge".parse().unwrap())];
    let found = [
        endpoint(Provider::Consul, "10.0.0.8"),
        endpoint(Provider::Static, "10.0.0.9"),
        endpoint(Provider::Azure, "10.0.0.10"),
    ];
    let asked = EndpointSource::Providers(Providers {
        consul: Some(ConsulQuery::of("edge")),
        ..Providers::default()
    });
    for endpoints in [EndpointSource::registered(), asked] {
        let inputs = inputs(source(), endpoints, &found, &["10.0.0.7", "10.0.0.99"]);
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        assert_eq!(ranges(&snapshot).unwrap(), ["10.0.0.7/32", "10.0.0.9/32"]);
    }
}

#[test]
fn principal_source_has_no_ranges_and_empty_service_allows_none() {
    let of = |source| {
        let inputs = inputs(vec![source], EndpointSource::registered(), &[], &[]);
        ranges(&Snapshot::assemble(inputs, TcpAccesses::default()))
    };
    assert_eq!(of(IngressSource::Principal("edge.example.com".into())), None);
    assert_eq!(of(IngressSource::Service("edge".parse().unwrap())), Some(Vec::new()));
}
