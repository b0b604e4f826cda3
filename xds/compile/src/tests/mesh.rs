//! Small meshes by chance: everything is a number of a few, so that things often meet.

mod bindings;
mod ingress;
mod instance;
mod large;
mod order;
mod outward;
pub(in crate::tests) mod settings;
mod telemetry;
mod treated;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ironmesh_catalog::{
    Discovered, Domain, Endpoint, EndpointSource, EscapedSlashes, External, Hostname, HttpMatch,
    HttpRouteGroup, Inputs, JoinRecord, Locality, Mesh, MeshSpecification, Method, Mode, Name,
    Namespace, Participation, PathRegex, PolicyRevision, Port, Protocol, Provider, Proxy, ProxyId,
    ProxyStatement, Records, Resolution, RouteRule, Secret, Service, ServiceAccount,
    ServiceCertificate, ServiceName, Snapshot, SplitBackend, SplitMatch, Spot, Subject,
    TcpAccesses, TcpRoute, TrafficSplit, TrafficTarget, TrustBundle, TrustDomain, Upstream,
    Visibility,
};
use jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use ingress::{IngressShape, ingress};
use instance::{InstanceShape, instance};
pub(super) use large::Edit;
pub(super) use order::Order;
use outward::{OutwardShape, outward};
use settings::SettingShape;
use telemetry::{TelemetryShape, telemetry};
use treated::{TreatedShape, treated};

/// There are this many namespaces, accounts in each, services, route groups in each namespace, and
/// matches in each group. What is named beyond that is not there.
const NAMESPACES: usize = 2;
const ACCOUNTS: usize = 2;
const SERVICES: usize = 5;
const GROUPS: usize = 2;
const MATCHES: usize = 3;
const ROUTES: usize = 2;

/// How many kinds of things there are that may become other from one moment to the next.
const PARTS: u32 = 18;

/// What services are called outside; some as if they were the mesh's.
const HOSTNAMES: [&str; 4] = ["api.example.com", "s2.n0", "s3.n1", "s4.n1"];

const PORTS: [(u16, Protocol); 5] = [
    (80, Protocol::Http),
    (9000, Protocol::Grpc),
    (14001, Protocol::Http2),
    (3306, Protocol::Tcp),
    (6379, Protocol::Tcp),
];

/// A mesh in numbers.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    mode: Mode,
    /// The mode of each namespace.
    namespaces: Vec<Option<Mode>>,
    services: Vec<ServiceShape>,
    /// Of which kind the matches of each group are.
    groups: BTreeMap<(usize, usize), Vec<usize>>,
    /// The ports that each TCP route names.
    routes: BTreeMap<(usize, usize), Option<Vec<usize>>>,
    targets: Vec<TargetShape>,
    splits: Vec<SplitShape>,
    treated: Vec<TreatedShape>,
    settings: Vec<SettingShape>,
    /// Whether bindings of one account are those of the next.
    has_other_bindings: bool,
    telemetry: TelemetryShape,
    outward: OutwardShape,
    proxies: Vec<ProxyShape>,
    ingress: Vec<IngressShape>,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is by chance")]
struct ServiceShape {
    namespace: usize,
    account: usize,
    ports: Vec<usize>,
    mode: Option<Mode>,
    is_listed: bool,
    /// Instances that a provider has found: at which proxy's address (or at nobody's), and how each is.
    found: Vec<(usize, InstanceShape)>,
    is_drained: bool,
    is_private: bool,
    escaped_slashes: EscapedSlashes,
    /// Whether a part of it has a name of its own.
    has_part: bool,
    /// How it is found outside of the mesh, and by which hostname; none of the mesh's own.
    outside: Option<(Resolution, usize)>,
}

#[derive(Debug, Clone)]
struct TargetShape {
    namespace: usize,
    /// An account of the namespace.
    destination: (usize, Way),
    /// Namespace and account.
    sources: Vec<(usize, usize, Way)>,
    rules: Vec<RuleShape>,
}

/// How a target names an account.
#[derive(Debug, Clone, Copy)]
enum Way {
    Account,
    /// By a binding of the account.
    Binding,
    /// By a binding of its SPIFFE ID.
    Identity,
}

#[derive(Debug, Clone)]
enum RuleShape {
    /// Group and matches.
    Http(usize, Option<Vec<usize>>),
    Tcp(usize),
}

#[derive(Debug, Clone)]
struct SplitShape {
    apex: usize,
    /// Groups and matches.
    matches: Vec<(usize, Option<Vec<usize>>)>,
    /// Backends with their weights.
    backends: BTreeMap<usize, u32>,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is by chance")]
struct ProxyShape {
    services: Vec<usize>,
    /// Service, port, local port.
    upstreams: Vec<(usize, Option<usize>, u16)>,
    participates: bool,
    is_on_loopback: bool,
    is_suspect: bool,
    /// Whether it knows of no application behind it.
    is_vacant: bool,
    /// Whether its machine is known by the address of the next one too.
    is_next_too: bool,
    /// Whether it has local ports for hosts outside.
    has_hosts: bool,
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
    let ports =
        btree_set(0..PORTS.len(), 0..=PORTS.len()).prop_map(|set| set.into_iter().collect());
    let mode = || {
        prop_oneof![
            4 => Just(None),
            1 => Just(Some(Mode::Permissive)),
            1 => Just(Some(Mode::Audit)),
            1 => Just(Some(Mode::Strict)),
        ]
    };
    let resolution =
        prop_oneof![Just(Resolution::Static), Just(Resolution::Dns), Just(Resolution::Passthrough)];
    let outside =
        prop_oneof![4 => Just(None), 1 => (resolution, 0..HOSTNAMES.len()).prop_map(Some)];
    let flags = (any::<[bool; 4]>(), prop::bool::weighted(0.1));
    let found = vec((0..7_usize, instance()), 0..4);
    let service = (0..NAMESPACES, 0..ACCOUNTS, ports, mode(), flags, outside, found);
    let service = service.prop_map(|(namespace, account, ports, mode, flags, outside, found)| {
        let ([is_listed, is_private, has_part, keeps], is_drained) = flags;
        ServiceShape {
            namespace,
            account,
            ports,
            mode,
            is_listed,
            found,
            is_drained,
            is_private,
            escaped_slashes: if keeps { EscapedSlashes::Keep } else { EscapedSlashes::Reject },
            has_part,
            outside,
        }
    });
    let sources = vec((0..NAMESPACES, 0..ACCOUNTS, way()), 0..3);
    let matches = option::of(vec(0..=MATCHES, 0..4));
    let rule = prop_oneof![
        (0..=GROUPS, matches).prop_map(|(group, matches)| RuleShape::Http(group, matches)),
        (0..=ROUTES).prop_map(RuleShape::Tcp),
    ];
    let destination = (0..ACCOUNTS, way());
    let target = (0..NAMESPACES, destination, sources, vec(rule, 0..4));
    let target = target.prop_map(|(namespace, destination, sources, rules)| TargetShape {
        namespace,
        destination,
        sources,
        rules,
    });
    // A service more than there are is one that policy does not define.
    let backends = btree_map(0..=SERVICES, 0..3_u32, 1..4);
    let matches = vec((0..=GROUPS, option::of(vec(0..=MATCHES, 0..3))), 0..3);
    let split = (0..SERVICES, matches, backends);
    let split = split.prop_map(|(apex, matches, backends)| SplitShape { apex, matches, backends });
    let upstream = (0..=SERVICES, option::of(0..PORTS.len()), 15078..15084_u16);
    let flags = (any::<[bool; 4]>(), [0.2; 2].map(prop::bool::weighted));
    let proxy = (btree_set(0..=SERVICES, 1..4), vec(upstream, 0..4), flags);
    let proxy = proxy.prop_map(|(services, upstreams, flags)| {
        let ([participates, is_on_loopback, is_suspect, has_hosts], [is_next_too, is_vacant]) =
            flags;
        ProxyShape {
            services: services.into_iter().collect(),
            upstreams,
            participates,
            is_on_loopback,
            is_suspect,
            is_vacant,
            is_next_too,
            has_hosts,
        }
    });
    let groups = btree_map(
        (0..NAMESPACES, 0..GROUPS),
        vec(0..MATCHES, 0..=MATCHES),
        0..=NAMESPACES * GROUPS,
    );
    let splits = (vec(split, 0..5), vec(treated(), 0..5), vec(settings::setting(), 0..4));
    let routes = btree_map(
        (0..NAMESPACES, 0..ROUTES),
        option::of(vec(0..PORTS.len(), 1..3)),
        0..=NAMESPACES * ROUTES,
    );
    let ways = (groups, routes, telemetry());
    let modes = (mode(), vec(mode(), NAMESPACES), any::<bool>(), outward());
    let proxies = (vec(proxy, 1..6), vec(ingress(), 0..10));
    (modes, vec(service, SERVICES), ways, vec(target, 0..12), splits, proxies).prop_map(
        |(
            modes,
            services,
            (groups, routes, telemetry),
            targets,
            (splits, treated, settings),
            (proxies, ingress),
        )| {
            let (mode, namespaces, has_other_bindings, outward) = modes;
            Shape {
                mode: mode.unwrap_or(Mode::Strict),
                namespaces,
                services,
                groups,
                routes,
                targets,
                splits,
                treated,
                settings,
                has_other_bindings,
                telemetry,
                outward,
                proxies,
                ingress,
            }
        },
    )
}

/// What becomes other at the next moment: the kinds of things, as bits, and of several things all or one.
pub(super) fn step() -> impl Strategy<Value = (u32, Option<usize>)> {
    let parts = prop_oneof![1 => 0..1_u32 << PARTS, 2 => (0..PARTS).prop_map(|part| 1 << part)];
    (parts, option::of(0..8_usize))
}

impl Shape {
    /// A service with one proxy, so many callers of one account, and as many of another that may not
    /// call it.
    pub(super) fn fleet(callers: usize, participates: bool) -> Self {
        let service = |account, ports: &[usize]| ServiceShape {
            namespace: account % NAMESPACES,
            account: account / NAMESPACES,
            ports: ports.to_vec(),
            mode: None,
            is_listed: false,
            found: Vec::new(),
            is_drained: false,
            is_private: false,
            escaped_slashes: EscapedSlashes::Reject,
            has_part: false,
            outside: None,
        };
        let proxy = |service, participates| ProxyShape {
            services: vec![service],
            upstreams: Vec::new(),
            participates,
            is_on_loopback: false,
            is_suspect: false,
            is_vacant: false,
            is_next_too: false,
            has_hosts: false,
        };
        let others = |service| std::iter::repeat_with(move || proxy(service, false)).take(callers);
        Self {
            mode: Mode::Strict,
            namespaces: Vec::new(),
            services: vec![service(0, &[0]), service(1, &[]), service(2, &[])],
            groups: [((0, 0), vec![0])].into(),
            routes: BTreeMap::new(),
            targets: vec![TargetShape {
                namespace: 0,
                destination: (0, Way::Account),
                sources: vec![(1, 0, Way::Account)],
                rules: vec![RuleShape::Http(0, None)],
            }],
            splits: Vec::new(),
            treated: Vec::new(),
            settings: Vec::new(),
            has_other_bindings: false,
            telemetry: TelemetryShape::new(),
            outward: OutwardShape::default(),
            proxies: [proxy(0, participates)]
                .into_iter()
                .chain(others(1))
                .chain(others(2))
                .collect(),
            ingress: Vec::new(),
        }
    }

    /// This fleet with a split of its service, for requests that one of the matches matches, over two more
    /// services. One caller has it as an upstream.
    pub(super) fn with_split(mut self, weights: [u32; 2], a_match: usize) -> Self {
        self.groups = [((0, 0), (0..MATCHES).collect())].into();
        let behind = self.services.len()..;
        for _ in weights {
            self.services.extend(self.services.first().cloned());
        }
        self.splits.push(SplitShape {
            apex: 0,
            matches: vec![(0, Some(vec![a_match]))],
            backends: behind.zip(weights).collect(),
        });
        if let Some(caller) = self.proxies.get_mut(1) {
            caller.upstreams = vec![(0, None, 15079)];
        }
        self
    }

    /// This shape with some parts of another, of several things `only` one or all: the next moment of the
    /// mesh.
    pub(super) fn with_parts_of(&self, other: &Self, (parts, only): (u32, Option<usize>)) -> Self {
        let takes = |part: u32| parts & (1 << part) != 0;
        let mut next = self.clone();
        if takes(0) {
            next.groups = some_of(&self.groups, &other.groups, only);
        }
        if takes(1) {
            next.routes = some_of(&self.routes, &other.routes, only);
        }
        if takes(2) {
            take_over(&mut next.targets, &other.targets, only);
        }
        if takes(3) {
            take_over(&mut next.splits, &other.splits, only);
        }
        if takes(4) {
            each_of(&mut next.services[2..], &other.services[2..], only, Clone::clone_from);
        }
        if takes(5) {
            for (proxy, other) in next.proxies.iter_mut().zip(&other.proxies) {
                (proxy.participates, proxy.is_suspect) = (other.participates, other.is_suspect);
                proxy.is_vacant = other.is_vacant;
            }
        }
        if takes(6) {
            next.proxies.truncate(2);
            next.proxies.extend(other.proxies.iter().skip(2).cloned());
        }
        if takes(7) {
            each_of(&mut next.services, &other.services, only, |service, other| {
                (service.mode, service.is_listed) = (other.mode, other.is_listed);
            });
        }
        if takes(8) {
            each_of(&mut next.services, &other.services, only, |service, other| {
                (service.is_private, service.has_part) = (other.is_private, other.has_part);
                service.escaped_slashes = other.escaped_slashes;
                (service.ports, service.outside) = (other.ports.clone(), other.outside);
            });
        }
        if takes(9) {
            each_of(&mut next.namespaces, &other.namespaces, only, Clone::clone_from);
        }
        if takes(10) {
            next.mode = other.mode;
            next.has_other_bindings = other.has_other_bindings;
        }
        if takes(11) {
            each_of(&mut next.services, &other.services, only, |service, other| {
                service.found.clone_from(&other.found);
            });
        }
        if takes(12) {
            each_of(&mut next.services, &other.services, only, |service, other| {
                service.is_drained = other.is_drained;
            });
        }
        if takes(13) {
            take_over(&mut next.treated, &other.treated, only);
        }
        if takes(14) {
            take_over(&mut next.settings, &other.settings, only);
        }
        if takes(15) {
            take_over(&mut next.ingress, &other.ingress, only);
        }
        if takes(16) {
            next.telemetry.clone_from(&other.telemetry);
        }
        if takes(17) {
            let (ours, other) = (&mut next.outward, &other.outward);
            take_over(&mut ours.egresses, &other.egresses, only);
            each_of(&mut ours.namespaces, &other.namespaces, only, Clone::clone_from);
            ours.mesh = other.mesh;
        }
        next
    }

    /// The mesh itself, put together in `order`.
    pub(super) fn build(&self, order: Order) -> (Snapshot, Vec<Proxy>) {
        let (inputs, proxies) = self.inputs(order);
        (Snapshot::assemble(inputs, TcpAccesses::default()), proxies)
    }

    /// What the mesh is made of.
    pub(super) fn inputs(&self, order: Order) -> (Inputs, Vec<Proxy>) {
        let specification = Arc::new(self.specification(order));
        let proxies = order.of(self.proxies.iter().enumerate().map(|(n, p)| self.proxy(n, p)));
        let records: Records =
            proxies.iter().map(|proxy| (proxy.record.id, Arc::new(proxy.record.clone()))).collect();
        let mut discovered: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in records.values() {
            for service in &record.services {
                let address = record.mesh_address.ip();
                discovered.entry(service.clone()).or_default().push(Endpoint {
                    proxy: Some(record.id),
                    labels: record.labels.clone(),
                    ..Endpoint::new(Provider::Registered, address)
                });
            }
        }
        for (n, service) in self.services.iter().enumerate() {
            let found = service.found.iter().map(|(proxy, instance)| {
                let record = proxies.iter().find(|one| one.record.id == proxy_id(*proxy));
                instance.at(record.map(|proxy| &proxy.record))
            });
            let known: Vec<_> = found.collect();
            if service.has_part {
                discovered.entry(part_of(&self.service_name(n))).or_default().extend(known.clone());
            }
            discovered.entry(self.service_name(n)).or_default().extend(known);
        }
        // Some lists name what no proxy is in front of.
        for (n, _) in self.services.iter().enumerate().filter(|(_, one)| one.is_listed) {
            let address = IpAddr::V4(Ipv4Addr::new(10, 1, 0, u8::try_from(n).unwrap()));
            let listed = Endpoint::new(Provider::Static, address);
            discovered.entry(self.service_name(n)).or_default().push(listed);
        }
        let discovered =
            order.of(discovered).into_iter().map(|(name, found)| (name, Arc::new(found)));
        let accounts = Snapshot::accounts_served(&specification, &records);
        let certificates = order.of(&accounts).into_iter();
        let domain = Domain::default();
        let inputs = Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode: self.mode,
            egress: self.outward.mesh,
            specification,
            discovered: Discovered(discovered.collect()),
            records,
            revoked: Records::new(),
            certificates: certificates
                .map(|account| (account.clone(), certificate(account)))
                .collect(),
            trust_bundle: Arc::new(TrustBundle { roots: "roots".to_owned() }),
        };
        (inputs, proxies)
    }

    fn specification(&self, order: Order) -> MeshSpecification {
        let wholes = self.services.iter().enumerate().map(|(n, s)| self.service(n, s));
        let services = order.of(wholes.flat_map(|whole| with_parts(&whole)));
        let groups = order.of(&self.groups).into_iter().map(|((namespace, n), kinds)| {
            let (namespace, name) = (name("n", *namespace), name("g", *n));
            let matches = kinds.iter().enumerate().map(|(n, kind)| http_match(n, *kind)).collect();
            let key = (namespace.clone(), name.clone());
            (key, Arc::new(HttpRouteGroup { namespace, name, matches, spot: spot() }))
        });
        let routes = order.of(&self.routes).into_iter().map(|((namespace, n), ports)| {
            let (namespace, name) = (name("n", *namespace), name("r", *n));
            let key = (namespace.clone(), name.clone());
            let ports = ports.as_ref().map(|ports| ports.iter().map(|n| PORTS[*n].0).collect());
            (key, Arc::new(TcpRoute { namespace, name, ports, spot: spot() }))
        });
        let targets = order.of(self.targets.iter().enumerate().map(|(n, target)| target.build(n)));
        let targets = targets
            .into_iter()
            .map(|target| ((target.namespace.clone(), target.name.clone()), Arc::new(target)));
        // The loader refuses splits of external services.
        let is_outside =
            |n: &usize| self.services.get(*n).is_some_and(|service| service.outside.is_some());
        let is_inside = |(_, split): &(usize, &SplitShape)| {
            !is_outside(&split.apex) && !split.backends.keys().any(is_outside)
        };
        let splits = self.splits.iter().enumerate().filter(is_inside);
        let splits = order.of(splits.map(|(n, shape)| self.split(n, shape)));
        let splits = splits
            .into_iter()
            .map(|split| ((split.namespace.clone(), split.name.clone()), Arc::new(split)));
        let egresses = order.of(self.outward.egresses()).into_iter();
        let egresses =
            egresses.map(|one| ((one.namespace.clone(), one.name.clone()), Arc::new(one)));
        let namespaces = self.namespaces.iter().enumerate().map(|(n, mode)| {
            let name = name("n", n);
            let egress = self.outward.of(n);
            (name.clone(), Arc::new(Namespace { name, mode: *mode, egress, spot: spot() }))
        });
        let mut specification = MeshSpecification {
            namespaces: namespaces.collect(),
            revision: PolicyRevision::default(),
            services: services.into_iter().map(|s| (s.name.clone(), Arc::new(s))).collect(),
            traffic_targets: targets.collect(),
            http_route_groups: groups.collect(),
            tcp_routes: routes.collect(),
            traffic_splits: splits.collect(),
            telemetries: telemetry::build(&self.telemetry, |n| self.service_name(n)),
            egresses: egresses.collect(),
            identity_bindings: order.of(self.bindings()).into_iter().collect(),
            upstream_traffic_settings: order.of(self.settings()).into_iter().collect(),
            ingress_backends: order.of(self.ingress_backends()).into_iter().collect(),
            ..MeshSpecification::default()
        };
        self.put_treated(order, &mut specification);
        specification
    }

    fn split(&self, n: usize, shape: &SplitShape) -> TrafficSplit {
        let service = self.service_name(shape.apex);
        let backends = shape.backends.iter().map(|(backend, weight)| SplitBackend {
            service: self.service_name(*backend),
            weight: *weight,
            spot: spot(),
        });
        let matches = shape.matches.iter().map(|(group, matches)| SplitMatch {
            group: name("g", *group),
            matches: matches.as_ref().map(|all| all.iter().map(|n| name("m", *n)).collect()),
            spot: spot(),
        });
        TrafficSplit {
            namespace: service.namespace.clone(),
            name: name("split", n),
            service,
            matches: matches.collect(),
            backends: backends.collect(),
            spot: spot(),
        }
    }

    fn service_name(&self, n: usize) -> ServiceName {
        let namespace = self.services.get(n).map_or(0, |service| service.namespace);
        ServiceName::new(name("n", namespace), name("s", n))
    }

    fn service(&self, n: usize, shape: &ServiceShape) -> Service {
        let port = |n: &usize| Port {
            name: name("p", *n),
            number: PORTS[*n].0,
            protocol: PORTS[*n].1,
            target: PORTS[*n].0,
            allowed_targets: Vec::new(),
        };
        Service {
            name: self.service_name(n),
            account: account(shape.namespace, shape.account),
            ports: shape.ports.iter().map(port).collect(),
            endpoints: match shape.outside {
                Some((Resolution::Dns | Resolution::Passthrough, _)) => EndpointSource::Hostname,
                None if !shape.is_listed => EndpointSource::registered(),
                None | Some((Resolution::Static, _)) => EndpointSource::fixed(Vec::new()),
            },
            mode: shape.mode,
            visibility: if shape.is_private { Visibility::Private } else { Visibility::Public },
            escaped_slashes: shape.escaped_slashes,
            // It comes and goes with the part, so that edits of it are tried too.
            max_connection_duration: shape.has_part.then_some(std::time::Duration::from_secs(60)),
            drained: shape.is_drained,
            external: shape.outside.map(|(resolution, n)| external(resolution, n)),
            subsets: shape.has_part.then(|| part_of(&self.service_name(n))).into_iter().collect(),
            spot: spot(),
        }
    }

    fn proxy(&self, n: usize, shape: &ProxyShape) -> Proxy {
        let address = |n: usize| {
            let [_, _, upper, last] = u32::try_from(n + 1).unwrap().to_be_bytes();
            let network = if shape.is_on_loopback { 127 } else { 10 };
            IpAddr::V4(Ipv4Addr::new(network, 0, upper, last))
        };
        let services: Vec<_> = shape.services.iter().map(|n| self.service_name(*n)).collect();
        let all = services.iter().flat_map(|name| PORTS.map(|(port, _)| (name.clone(), port)));
        let participation = Participation(all.filter(|_| shape.participates).collect());
        let vacant = if shape.is_vacant { participation.clone() } else { Participation::default() };
        let upstreams = shape.upstreams.iter().map(|(service, port, local_port)| Upstream {
            service: self.service_name(*service),
            port: port.map(|n| PORTS[n].0),
            local_port: *local_port,
        });
        Proxy {
            statement: ProxyStatement {
                upstreams: upstreams.collect(),
                hosts: if shape.has_hosts { outward::upstreams() } else { Vec::new() },
                ..Default::default()
            },
            record: JoinRecord {
                addresses: shape.is_next_too.then(|| address(n + 1)).into_iter().collect(),
                locality: place(n % 3),
                participation,
                vacant,
                suspect_since: shape.is_suspect.then_some(Timestamp::UNIX_EPOCH),
                ..JoinRecord::new(
                    proxy_id(n),
                    services,
                    SocketAddr::new(address(n), 15003),
                    Timestamp::UNIX_EPOCH,
                    Timestamp::MAX,
                )
            },
        }
    }
}

impl TargetShape {
    fn build(&self, n: usize) -> TrafficTarget {
        let rules = self.rules.iter().map(|rule| match rule {
            RuleShape::Http(group, matches) => RouteRule::Http {
                group: name("g", *group),
                matches: matches.as_ref().map(|all| all.iter().map(|n| name("m", *n)).collect()),
                spot: spot(),
            },
            RuleShape::Tcp(route) => RouteRule::Tcp { route: name("r", *route), spot: spot() },
        });
        TrafficTarget {
            namespace: name("n", self.namespace),
            name: name("t", n),
            destination: subject(self.namespace, self.destination.0, self.destination.1),
            sources: self.sources.iter().map(|(space, n, way)| subject(*space, *n, *way)).collect(),
            rules: rules.collect(),
            spot: spot(),
        }
    }
}

fn proxy_id(n: usize) -> ProxyId {
    ProxyId(Uuid::from_u128(n as u128))
}

/// Where a proxy is: nowhere that is known, or in one of the zones of instances.
pub(in crate::tests) fn place(n: usize) -> Locality {
    let zone = ["", "a", "b"].get(n).copied().unwrap_or_default();
    Locality { zone: zone.into(), ..Locality::default() }
}

/// The name of the part of a service.
fn part_of(whole: &ServiceName) -> ServiceName {
    let name = Name::new(&format!("{}-part", whole.name)).unwrap();
    ServiceName::new(whole.namespace.clone(), name)
}

/// A service, and the part that it has.
fn with_parts(whole: &Service) -> Vec<Service> {
    let part = |name: &ServiceName| {
        let labels = [("part", "one")].into_iter().collect();
        let endpoints = EndpointSource::Subset { of: whole.name.clone(), labels };
        Service { name: name.clone(), endpoints, subsets: Vec::new(), ..whole.clone() }
    };
    whole.subsets.iter().map(part).chain([whole.clone()]).collect()
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![3 => Just(Way::Account), 1 => Just(Way::Binding), 1 => Just(Way::Identity)]
}

/// An account, named in one of the ways.
fn subject(namespace: usize, n: usize, way: Way) -> Subject {
    match way {
        Way::Account => Subject::Account(account(namespace, n)),
        Way::Binding => Subject::Binding(name("n", namespace), name("b", n)),
        Way::Identity => Subject::Binding(name("n", namespace), name("i", n)),
    }
}

/// What a service is outside of the mesh.
fn external(resolution: Resolution, n: usize) -> External {
    let wildcard = if resolution == Resolution::Passthrough { "*." } else { "" };
    let hostname = Hostname::new(&format!("{wildcard}{}", HOSTNAMES[n])).unwrap();
    External { hostname: Some(hostname), resolution }
}

/// Does `take` with what is at the same place in both lists: with all, or at one place `only`.
fn each_of<T>(list: &mut [T], other: &[T], only: Option<usize>, take: impl Fn(&mut T, &T)) {
    let both = list.len().min(other.len());
    let is_taken = |n: usize| only.is_none_or(|only| only.checked_rem(both) == Some(n));
    for (n, (one, other)) in list.iter_mut().zip(other).enumerate() {
        if is_taken(n) {
            take(one, other);
        }
    }
}

/// Makes of a list the other: all of it, or what is at one place `only`, and one at the end.
fn take_over<T: Clone>(list: &mut Vec<T>, other: &[T], only: Option<usize>) {
    each_of(list, other, only, Clone::clone_from);
    match only {
        None => {
            list.truncate(other.len());
            list.extend(other.iter().skip(list.len()).cloned().collect::<Vec<_>>());
        }
        Some(n) if n % 2 == 0 => list.extend(other.get(list.len()).cloned()),
        Some(_) => list.truncate(other.len().max(list.len().saturating_sub(1))),
    }
}

/// The same of maps, by key.
fn some_of<K: Ord + Clone, T: Clone>(
    map: &BTreeMap<K, T>,
    other: &BTreeMap<K, T>,
    only: Option<usize>,
) -> BTreeMap<K, T> {
    let Some(only) = only else { return other.clone() };
    let mut map = map.clone();
    if let Some(key) = map.keys().chain(other.keys()).nth(only).cloned() {
        match other.get(&key) {
            Some(other) => map.insert(key, other.clone()),
            None => map.remove(&key),
        };
    }
    map
}

/// A match of each kind.
fn http_match(n: usize, kind: usize) -> HttpMatch {
    let only = |one: usize| kind == one;
    let header = ("x-tier".into(), "gold".into());
    HttpMatch {
        name: name("m", n),
        path: only(1).then(|| PathRegex {
            text: "/books/.*".into(),
            before_query: Some("/books/[^?]*".into()),
        }),
        methods: only(2).then(|| Method("GET".into())).into_iter().collect(),
        headers: only(2).then_some(header).into_iter().collect(),
        spot: spot(),
    }
}

fn certificate(account: &ServiceAccount) -> Arc<ServiceCertificate> {
    Arc::new(ServiceCertificate {
        account: account.clone(),
        chain: format!("chain of {account}"),
        key: Secret::new("key".to_owned()),
        serial: "00".to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::MAX,
        renew_at: Timestamp::MAX,
    })
}

fn name(letter: &str, n: usize) -> Name {
    Name::new(&format!("{letter}{n}")).unwrap()
}

fn account(namespace: usize, n: usize) -> ServiceAccount {
    ServiceAccount::new(name("n", namespace), name("a", n))
}

fn spot() -> Spot {
    Spot::new(&"policy.toml".into(), "", 0..0)
}
