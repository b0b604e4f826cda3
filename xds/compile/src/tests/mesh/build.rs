//! From a shape to a snapshot and its proxies.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ironmesh_catalog::{
    CertificateHistory, Discovered, Domain, Endpoint, EndpointSource, External, Hostname,
    HttpMatch, HttpRouteGroup, Inputs, JoinRecord, Mesh, MeshSpecification, Method, Name,
    Namespace, NodeMetadata, Participation, PathRegex, PolicyRevision, PolicyUpstream, Port,
    PortReference, Provider, Proxy, ProxyId, Records, Resolution, RevokedCallers, RouteRule,
    Secret, Service, ServiceAccount, ServiceCertificate, ServiceName, Snapshot, SplitBackend,
    SplitMatch, Subject, TcpAccesses, TcpRoute, TrafficSplit, TrafficTarget, TrustBundle,
    TrustDomain, Upstream, Visibility,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::outward;
use super::telemetry;
use super::{
    HOSTNAMES, PORTS, PartOrder, ProxyShape, RuleShape, ServiceShape, Shape, SplitShape,
    SubjectKind, TargetShape, account, name, place, spot,
};

impl Shape {
    /// The snapshot, assembled in `order`.
    pub(in crate::tests) fn build(&self, order: PartOrder) -> (Snapshot, Vec<Proxy>) {
        let (inputs, proxies) = self.inputs(order);
        (Snapshot::assemble(inputs, TcpAccesses::default()), proxies)
    }

    /// The inputs of the snapshot.
    pub(in crate::tests) fn inputs(&self, order: PartOrder) -> (Inputs, Vec<Proxy>) {
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
        // Some lists name endpoints without a proxy.
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
            leaving: ironmesh_catalog::LeavingProxies::new(),
            health: ironmesh_catalog::ReportedApplications::new(),
            certificates: certificates
                .map(|account| (account.clone(), self.certificate(account)))
                .collect(),
            trust_bundle: Arc::new(TrustBundle { roots: "roots".to_owned() }),
            revoked_callers: Arc::new(self.revoked_callers()),
        };
        (inputs, proxies)
    }

    fn certificate(&self, of: &ServiceAccount) -> Arc<ServiceCertificate> {
        let is_its = |(namespace, n): &&(usize, usize)| account(*namespace, *n) == *of;
        let reissues = u32::try_from(self.reissued.iter().filter(is_its).count()).unwrap();
        certificate(of, reissues)
    }

    fn revoked_callers(&self) -> RevokedCallers {
        let dns_names = self.revoked.iter().map(|n| format!("p{n}.proxy.mesh.internal"));
        let serials: BTreeMap<_, _> =
            self.revoked.iter().map(|n| (format!("0{n}"), account(1, (n + 2) % 3))).collect();
        let lists = (!serials.is_empty()).then(|| format!("the list of {serials:?}").into());
        let last_listed = serials.values().cloned().zip(1..).collect();
        RevokedCallers { dns_names: dns_names.collect(), serials, lists, last_listed }
    }

    fn specification(&self, order: PartOrder) -> MeshSpecification {
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
        // The loader rejects splits of external services.
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

    pub(in crate::tests) fn service_name(&self, n: usize) -> ServiceName {
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
            // It depends on the subset, so that edits of it are tested too.
            max_connection_duration: shape.has_part.then_some(std::time::Duration::from_secs(60)),
            drained: shape.is_drained,
            health: None,
            external: shape.outside.map(|(resolution, n)| external(resolution, n)),
            subsets: shape.has_part.then(|| part_of(&self.service_name(n))).into_iter().collect(),
            upstreams: shape.upstreams.iter().map(|one| self.policy_upstream(*one)).collect(),
            spot: spot(),
        }
    }

    fn policy_upstream(
        &self,
        (service, port, local_port): (usize, Option<usize>, u16),
    ) -> PolicyUpstream {
        PolicyUpstream {
            service: self.service_name(service),
            port: port.map(|n| PortReference::Number(PORTS[n].0)),
            local_port,
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
        let ports_without_backend =
            if shape.is_vacant { participation.clone() } else { Participation::default() };
        let upstreams = shape.upstreams.iter().map(|(service, port, local_port)| Upstream {
            service: self.service_name(*service),
            port: port.map(|n| PORTS[n].0),
            local_port: *local_port,
        });
        Proxy {
            metadata: NodeMetadata {
                upstreams: upstreams.collect(),
                hosts: if shape.has_hosts { outward::upstreams() } else { Vec::new() },
                bootstrap_version: u32::from(n % 2 == 1),
                ..Default::default()
            },
            record: JoinRecord {
                addresses: shape.is_next_too.then(|| address(n + 1)).into_iter().collect(),
                locality: place(n % 3),
                participation,
                ports_without_backend,
                unreachable_since: shape.is_suspect.then_some(Timestamp::UNIX_EPOCH),
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
            sources: self
                .sources
                .iter()
                .map(|(space, n, kind)| subject(*space, *n, *kind))
                .collect(),
            rules: rules.collect(),
            spot: spot(),
        }
    }
}

fn proxy_id(n: usize) -> ProxyId {
    ProxyId(Uuid::from_u128(n as u128))
}

/// The name of the subset of a service.
fn part_of(whole: &ServiceName) -> ServiceName {
    let name = Name::new(&format!("{}-part", whole.name)).unwrap();
    ServiceName::new(whole.namespace.clone(), name)
}

/// A service with its subset.
fn with_parts(whole: &Service) -> Vec<Service> {
    let part = |name: &ServiceName| {
        let labels = [("part", "one")].into_iter().collect();
        let endpoints = EndpointSource::Subset { of: whole.name.clone(), labels };
        Service { name: name.clone(), endpoints, subsets: Vec::new(), ..whole.clone() }
    };
    whole.subsets.iter().map(part).chain([whole.clone()]).collect()
}

/// An account, named as `kind` says.
fn subject(namespace: usize, n: usize, kind: SubjectKind) -> Subject {
    match kind {
        SubjectKind::Account => Subject::Account(account(namespace, n)),
        SubjectKind::Binding => Subject::Binding(name("n", namespace), name("b", n)),
        SubjectKind::Identity => Subject::Binding(name("n", namespace), name("i", n)),
    }
}

/// The external part of a service.
fn external(resolution: Resolution, n: usize) -> External {
    let wildcard = if resolution == Resolution::Passthrough { "*." } else { "" };
    let hostname = Hostname::new(&format!("{wildcard}{}", HOSTNAMES[n])).unwrap();
    External { hostname: Some(hostname), resolution }
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

fn certificate(account: &ServiceAccount, reissues: u32) -> Arc<ServiceCertificate> {
    Arc::new(ServiceCertificate {
        account: account.clone(),
        chain: format!("chain of {account}"),
        key: Secret::new("key".to_owned()),
        serial: "00".to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::MAX,
        renew_at: Timestamp::MAX,
        history: CertificateHistory { reissues, ..CertificateHistory::default() },
    })
}
