//! Grants of traffic targets: how identity bindings resolve to accounts, and which labels count.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::certificate::TrustBundle;
use crate::endpoint::{Discovered, Endpoint, Provider};
use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::identity::{SpiffeId, TrustDomain};
use crate::labels::Labels;
use crate::name::Domain;
use crate::policy::{BoundIdentity, EgressMode, IdentityBinding};
use crate::proxy::{JoinRecord, ProxyId};
use crate::service::{EscapedSlashes, Mode, Service, Visibility};
use crate::snapshot::{Inputs, Mesh, Records, Snapshot};
use crate::specification::MeshSpecification;
use crate::tcp_access::TcpAccesses;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

fn key(text: &str) -> ObjectKey {
    (name("shop"), name(text))
}

/// A pure client that runs as `account`.
fn service(service: &str, account: &str) -> Service {
    Service {
        name: service.parse().unwrap(),
        account: account.parse().unwrap(),
        ports: Vec::new(),
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

fn binding(text: &str) -> IdentityBinding {
    IdentityBinding {
        namespace: name("shop"),
        name: name(text),
        account: None,
        identities: Vec::new(),
        endpoint_labels: None,
        trusted_providers: BTreeSet::new(),
        spot: spot(),
    }
}

fn labels(words: &[(&str, &str)]) -> Labels {
    words.iter().copied().collect()
}

fn endpoint(last: u8, words: &[(&str, &str)]) -> Endpoint {
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    Endpoint { labels: labels(words), ..Endpoint::new(Provider::Static, address) }
}

fn found_by(provider: Provider, last: u8, words: &[(&str, &str)]) -> Endpoint {
    Endpoint { provider, ..endpoint(last, words) }
}

fn record(last: u8, service: &str, words: &[(&str, &str)]) -> Arc<JoinRecord> {
    Arc::new(JoinRecord {
        labels: labels(words),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(last.into())),
            vec![service.parse().unwrap()],
            SocketAddr::new(endpoint(last, &[]).address, 15003),
            Timestamp::UNIX_EPOCH,
            Timestamp::MAX,
        )
    })
}

/// A mesh with a target from the binding `callers` to the account `shop/till`.
#[derive(Debug, Clone)]
struct Place {
    binding: IdentityBinding,
    /// The account of `shop/v2`, the second service.
    account: &'static str,
    destination: Subject,
    endpoints: Vec<(&'static str, Endpoint)>,
    records: Vec<Arc<JoinRecord>>,
}

impl Place {
    fn new(binding: IdentityBinding) -> Self {
        let destination = Subject::Account("shop/till".parse().unwrap());
        let account = "shop/buyer";
        Self { binding, account, destination, endpoints: Vec::new(), records: Vec::new() }
    }

    fn inputs(&self, specification: &Arc<MeshSpecification>) -> Inputs {
        let mut discovered: BTreeMap<ServiceName, Vec<Endpoint>> = BTreeMap::new();
        for (service, endpoint) in &self.endpoints {
            discovered.entry(service.parse().unwrap()).or_default().push(endpoint.clone());
        }
        let discovered = discovered.into_iter().map(|(name, found)| (name, Arc::new(found)));
        let domain = Domain::default();
        Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode: Mode::Strict,
            egress: EgressMode::Policy,
            specification: Arc::clone(specification),
            discovered: Discovered(discovered.collect()),
            records: self.records.iter().map(|one| (one.id, Arc::clone(one))).collect(),
            revoked: Records::new(),
            leaving: crate::snapshot::LeavingProxies::new(),
            health: crate::ReportedApplications::new(),
            certificates: OrdMap::new(),
            trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
            revoked_callers: Arc::default(),
        }
    }

    fn specification(&self) -> Arc<MeshSpecification> {
        let target = TrafficTarget {
            namespace: name("shop"),
            name: name("t"),
            destination: self.destination.clone(),
            sources: vec![Subject::Binding(
                self.binding.namespace.clone(),
                self.binding.name.clone(),
            )],
            rules: Vec::new(),
            spot: spot(),
        };
        let services = [
            service("shop/v1", "shop/buyer"),
            service("shop/v2", self.account),
            service("shop/till", "shop/till"),
            service("other/v1", "other/buyer"),
        ];
        let services = services.map(|service| (service.name.clone(), Arc::new(service)));
        let binding = (self.binding.namespace.clone(), self.binding.name.clone());
        Arc::new(MeshSpecification {
            services: services.into_iter().collect(),
            traffic_targets: [(key("t"), Arc::new(target))].into_iter().collect(),
            identity_bindings: [(binding, Arc::new(self.binding.clone()))].into_iter().collect(),
            ..MeshSpecification::default()
        })
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::assemble(self.inputs(&self.specification()), TcpAccesses::default())
    }
}

/// The sources of the only target, and the codes of all findings.
fn sources(snapshot: &Snapshot) -> (Vec<String>, Vec<u16>) {
    let grant = &snapshot.grants.by_target()[&key("t")];
    let sources = grant.sources.iter().map(ToString::to_string).collect();
    (sources, snapshot.findings().map(|finding| finding.code.0).collect())
}

fn of(accounts: &[&str]) -> Vec<String> {
    accounts.iter().copied().map(str::to_owned).collect()
}

#[test]
fn identity_binding_resolves_to_its_account_and_identities() {
    let identity = |text: &str| BoundIdentity { id: SpiffeId::new(text).unwrap(), spot: spot() };
    let mut place = Place::new(IdentityBinding {
        account: Some("shop/buyer".parse().unwrap()),
        identities: vec![
            identity("spiffe://mesh.internal/ns/other/sa/buyer"),
            identity("spiffe://elsewhere.example/ns/other/sa/thief"),
        ],
        ..binding("callers")
    });
    assert_eq!(sources(&place.snapshot()), (of(&["other/buyer", "shop/buyer"]), vec![408]));
    // As a destination, the binding contributes only the account in the target's own namespace.
    place.destination = Subject::Binding(name("shop"), name("callers"));
    let grant = Arc::clone(&place.snapshot().grants.by_target()[&key("t")]);
    assert_eq!(grant.destinations, BTreeSet::from(["shop/buyer".parse().unwrap()]));
}

/// SMI 9: endpoints of an account share its certificate, so all of them need the labels.
#[test]
fn label_binding_needs_labels_on_all_endpoints_of_the_account() {
    let role = [("role", "batch")];
    let other = [("role", "web"), ("zone", "a")];
    let mut place =
        Place::new(IdentityBinding { endpoint_labels: Some(labels(&role)), ..binding("callers") });
    assert_eq!(sources(&place.snapshot()), (vec![], vec![]), "the account has no endpoint");
    place.endpoints = vec![
        ("shop/v1", endpoint(1, &[("role", "batch"), ("zone", "a")])),
        ("shop/v2", endpoint(2, &role)),
        // The binding does not cover an endpoint of another namespace.
        ("other/v1", endpoint(3, &role)),
    ];
    let codes = |snapshot: &Snapshot| {
        let (sources, mut codes) = sources(snapshot);
        codes.retain(|code| *code != 404);
        (sources, codes)
    };
    assert_eq!(codes(&place.snapshot()), (of(&["shop/buyer"]), vec![]));
    // One endpoint of the account lacks the label, and has the same certificate.
    place.endpoints.push(("shop/v2", endpoint(4, &other)));
    assert_eq!(codes(&place.snapshot()), (of(&[]), vec![409]));
    place.endpoints.pop();
    // A proxy with other labels holds the certificate, too, even without a reported endpoint.
    place.records.push(record(9, "shop/v1", &other));
    assert_eq!(codes(&place.snapshot()), (of(&[]), vec![409]));
    // The proxy of an endpoint with the labels needs no labels of its own.
    place.records = vec![record(1, "shop/v1", &[])];
    assert_eq!(codes(&place.snapshot()), (of(&["shop/buyer"]), vec![]));
    // Different labels in the record of that proxy count against the binding.
    place.records = vec![record(1, "shop/v1", &other)];
    assert_eq!(codes(&place.snapshot()), (of(&[]), vec![409]));
}

/// The sources and the codes about bindings, without those about endpoints that have no proxy.
fn bound(place: &Place) -> (Vec<String>, Vec<u16>) {
    let (sources, mut codes) = sources(&place.snapshot());
    codes.retain(|code| ![404, 507].contains(code));
    (sources, codes)
}

const BATCH: [(&str, &str); 1] = [("role", "batch")];

fn batch_binding() -> IdentityBinding {
    IdentityBinding { endpoint_labels: Some(labels(&BATCH)), ..binding("callers") }
}

#[test]
fn consul_labels_neither_add_nor_remove_a_grant_unless_trusted() {
    let mut place = Place::new(batch_binding());
    place.records = vec![record(1, "shop/v1", &[])];
    place.endpoints = vec![("shop/v1", found_by(Provider::Consul, 1, &BATCH))];
    assert_eq!(bound(&place), (of(&[]), vec![509]), "the registrant adds the label");
    place.binding.trusted_providers = BTreeSet::from([Provider::Azure]);
    assert_eq!(bound(&place), (of(&[]), vec![509]), "another provider is trusted");
    place.binding.trusted_providers = BTreeSet::from([Provider::Consul]);
    assert_eq!(bound(&place), (of(&["shop/buyer"]), vec![]));

    place.binding.trusted_providers.clear();
    place.records = vec![record(1, "shop/v1", &BATCH)];
    for words in [&[][..], &[("role", "web")], &BATCH] {
        place.endpoints = vec![("shop/v1", found_by(Provider::Consul, 1, words))];
        assert_eq!(bound(&place), (of(&["shop/buyer"]), vec![]), "{words:?}");
    }
}

#[test]
fn labels_of_consul_tag_endpoints_never_count_in_a_binding() {
    let mut place = Place::new(batch_binding());
    place.binding.trusted_providers = BTreeSet::from([Provider::Consul, Provider::Azure]);
    let tagged = |last, words: &[_]| {
        let endpoint = found_by(Provider::Consul, last, words);
        ("shop/v1", Endpoint { selected_by_tag: true, ..endpoint })
    };
    place.records = vec![record(1, "shop/v1", &[])];
    place.endpoints = vec![tagged(1, &BATCH)];
    assert_eq!(bound(&place), (of(&[]), vec![509]));
    // A trusted endpoint has the labels. An endpoint that joined by a tag and lacks them removes no
    // grant.
    place.endpoints.push(("shop/v1", found_by(Provider::Azure, 1, &BATCH)));
    place.endpoints.push(tagged(2, &[("role", "web")]));
    assert_eq!(bound(&place), (of(&["shop/buyer"]), vec![]));
}

#[test]
fn trusted_labels_count_despite_untrusted_provider_precedence() {
    let mut place = Place::new(batch_binding());
    place.binding.trusted_providers = BTreeSet::from([Provider::Azure]);
    place.records = vec![record(1, "shop/v1", &[])];
    let reported = |consul: &[_], azure: &[_]| {
        let other_labels = [(Provider::Azure, labels(azure))].into();
        vec![("shop/v1", Endpoint { other_labels, ..found_by(Provider::Consul, 1, consul) })]
    };
    place.endpoints = reported(&[], &BATCH);
    assert_eq!(bound(&place), (of(&["shop/buyer"]), vec![]));
    place.endpoints = reported(&BATCH, &[("role", "web")]);
    assert_eq!(bound(&place), (of(&[]), vec![509]));
    // Where both are trusted, the first in precedence counts.
    place.binding.trusted_providers.insert(Provider::Consul);
    assert_eq!(bound(&place), (of(&["shop/buyer"]), vec![]));
}

#[test]
fn label_binding_grants_follow_endpoints_and_are_else_shared() {
    let role = [("role", "batch")];
    let mut place =
        Place::new(IdentityBinding { endpoint_labels: Some(labels(&role)), ..binding("callers") });
    let specification = place.specification();
    let first = Snapshot::assemble(place.inputs(&specification), TcpAccesses::default());
    place.endpoints = vec![("shop/v1", endpoint(1, &role))];
    let second = first.revise(place.inputs(&specification));
    assert_eq!(sources(&second).0, of(&["shop/buyer"]));
    assert!(!second.grants.are_same_as(&first.grants));
    place.endpoints.push(("shop/v1", endpoint(2, &role)));
    let third = second.revise(place.inputs(&specification));
    assert!(third.grants.by_target().ptr_eq(second.grants.by_target()));
    place.endpoints.push(("shop/v1", endpoint(3, &[])));
    let fourth = third.revise(place.inputs(&specification));
    assert_eq!(sources(&fourth).0, of(&[]));
}

const SERVICES: [&str; 4] = ["shop/v1", "shop/v2", "shop/till", "other/v1"];
const LABELS: [&[(&str, &str)]; 3] = [&[], &[("role", "batch")], &[("role", "web")]];

/// Random meshes with few services, endpoints and proxies, so that these often coincide.
fn place() -> impl Strategy<Value = Place> {
    let endpoints = vec((0..SERVICES.len(), 1..4_u8, 0..LABELS.len()), 0..5);
    let records = vec((0..SERVICES.len(), 0..LABELS.len()), 0..4);
    let parts = (endpoints, records, 0..LABELS.len(), 0..2_usize, 0..2_usize, 0..2_usize);
    parts.prop_map(|(endpoints, records, bound, namespace, account, trusts)| {
        let bound = LABELS[bound];
        let mut place = Place::new(IdentityBinding {
            namespace: name(["shop", "other"][namespace]),
            endpoint_labels: (!bound.is_empty()).then(|| labels(bound)),
            trusted_providers: [Provider::Consul].into_iter().take(trusts).collect(),
            ..binding("callers")
        });
        place.account = ["shop/buyer", "shop/till"][account];
        let endpoint = |(service, last, n): (usize, u8, usize)| {
            let provider = [Provider::Static, Provider::Consul][usize::from(last) % 2];
            (SERVICES[service], found_by(provider, last, LABELS[n]))
        };
        place.endpoints = endpoints.into_iter().map(endpoint).collect();
        let record =
            |(last, (service, n)): (u8, (usize, usize))| record(last, SERVICES[service], LABELS[n]);
        place.records = (1..).zip(records).map(record).collect();
        place
    })
}

proptest! {
    #[test]
    fn revised_grants_equal_grants_assembled_from_scratch(first in place(), steps in vec((place(), 0..4_u8), 1..6)) {
        let mut place = first;
        let mut specification = place.specification();
        let mut snapshot = place.snapshot();
        for (other, part) in steps {
            match part {
                0 => place.endpoints = other.endpoints,
                1 => place.records = other.records,
                2 => place.binding = other.binding,
                _ => place.account = other.account,
            }
            if part > 1 {
                specification = place.specification();
            }
            snapshot = snapshot.revise(place.inputs(&specification));
            let scratch = place.snapshot();
            prop_assert!(snapshot.grants.are_same_as(&scratch.grants));
            prop_assert_eq!(&snapshot.grants.bindings, &scratch.grants.bindings);
            prop_assert!(snapshot.findings().eq(scratch.findings()));
        }
    }
}

#[test]
fn grants_are_found_by_source_destination_or_both() {
    let account = |text: &str| text.parse::<ServiceAccount>().unwrap();
    let grant = |target: &str, destinations: &[&str], sources: &[&str]| {
        let target = TrafficTarget {
            namespace: name("shop"),
            name: name(target),
            destination: Subject::Account(account("shop/till")),
            sources: Vec::new(),
            rules: Vec::new(),
            spot: spot(),
        };
        let accounts = |names: &[&str]| names.iter().map(|name| account(name)).collect();
        let grant = Grant {
            destinations: accounts(destinations),
            sources: accounts(sources),
            target: Arc::new(target),
        };
        (key(grant.target.name.as_str()), Arc::new(grant))
    };
    let grants = [
        grant("a", &["shop/till"], &["shop/buyer", "shop/thief"]),
        grant("b", &["shop/safe", "shop/till"], &["shop/buyer"]),
        grant("c", &["shop/safe"], &["shop/thief"]),
        grant("d", &["shop/till"], &[]),
    ];
    let grants = Grants::of(grants.into_iter().collect());
    let names = |grants: Vec<&Arc<Grant>>| {
        grants.into_iter().map(|grant| grant.target.name.to_string()).collect::<String>()
    };
    let between = |caller, destination| {
        names(grants.between(&account(caller), &account(destination)).collect())
    };
    assert_eq!(names(grants.on(&account("shop/till")).iter().collect()), "abd");
    assert_eq!(names(grants.to(&account("shop/buyer")).iter().collect()), "ab");
    assert_eq!(between("shop/buyer", "shop/till"), "ab");
    assert_eq!(between("shop/thief", "shop/till"), "a");
    assert_eq!(between("shop/thief", "shop/safe"), "c");
    assert_eq!(between("shop/till", "shop/buyer"), "");
}
