//! The compiler: what is shared, compiled once, and each proxy's overlay on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    Application, Code, Finding, Health, Locality, Participation, Port, Proxy, Service,
    ServiceAccount, ServicePort, Snapshot,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::FilterChain;
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceSet, ResourceType, Version};

use crate::egress::upstream::Opened;
use crate::rate_limit::{counted, global};
use crate::shared::{Changes, Scope, Shared};
use crate::telemetry::Telling;
use crate::{egress, inbound, ingress, outbound, telemetry, upstream};

/// A proxy's record names a service that policy does not define.
const SERVICE_UNKNOWN: Code = Code(403);

/// A service account has no certificate.
const NO_CERTIFICATE: Code = Code(406);

/// A proxy states fields that this version does not know.
const UNKNOWN_FIELDS: Code = Code(661);

/// What a proxy is to have.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Its resources.
    pub resources: ResourceSet,
    /// The service ports that its inbound listener serves.
    pub serves: Participation,
    /// The resources that are in force when the proxy takes part with these ports: its inbound
    /// listener, that one's routes and the certificates of its accounts.
    pub takes_part_with: Vec<(ResourceType, Arc<str>, Version)>,
    /// What is wrong with what the proxy asks for.
    pub findings: Vec<Finding>,
}

/// Compiles proxies, and follows the mesh from one moment to the next. What proxies share is compiled
/// at its first use and kept for as long as it stays the same.
#[derive(Debug)]
pub struct Compiler {
    shared: Shared,
}

impl Compiler {
    /// A compiler for `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { shared: Shared::new(snapshot) }
    }

    /// The moment that is compiled.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.shared.snapshot
    }

    /// Moves on to another moment, and says whom that affects.
    pub fn update(&mut self, snapshot: Arc<Snapshot>) -> Changes {
        self.shared.update(snapshot)
    }

    /// The endpoints that all proxies of an account in a place have, where one was compiled.
    pub fn endpoints_of(&self, account: &ServiceAccount, place: &Locality) -> Option<&ResourceMap> {
        self.shared.endpoints_of(account, place)
    }

    /// How many resources have been encoded since the beginning.
    pub fn encoded(&self) -> u64 {
        self.shared.encoder.count()
    }

    /// What `proxy` is to have.
    ///
    /// Calls go out as the account of its first service: a connection can show one certificate only.
    pub fn compile(&mut self, proxy: &Proxy) -> Compiled {
        let mut compiled = Compiled {
            resources: ResourceSet::default(),
            serves: Participation::default(),
            takes_part_with: Vec::new(),
            findings: unknown_fields(proxy).into_iter().collect(),
        };
        let snapshot = Arc::clone(&self.shared.snapshot);
        let services = &snapshot.specification.services;
        let mut served = Vec::new();
        for name in &proxy.record.services {
            match services.get(name) {
                Some(service) if service.is_subset() => {
                    compiled.findings.push(joined_as_a_part(proxy, service));
                }
                Some(service) if service.external.is_some() => {
                    compiled.findings.push(joined_as_external(proxy, service));
                }
                Some(service) => served.push(service),
                None => compiled.findings.push(unknown_service(proxy, name)),
            }
        }
        let first = proxy.record.services.first().and_then(|name| services.get(name));
        let telemetries = self.shared.telemetries();
        for service in served.iter().copied().chain(first) {
            let finding = telemetry::unwritten_log(&telemetries, &service.name, proxy);
            // Several services may log as one telemetry says.
            compiled.findings.extend(finding.filter(|one| !compiled.findings.contains(one)));
        }
        if let Some(first) = first
            // Without its certificate it could show nobody who it is.
            && self.shared.certificate(&first.account).is_some()
        {
            let account = &first.account;
            let scope = self.shared.scope(account);
            compiled.resources = scope.resources.clone();
            let own = egress::filters::own_addresses(proxy);
            let by_machine = scope.by_machine.iter().filter(|_| !own.is_empty());
            for cluster in by_machine.filter_map(|port| self.shared.external_cluster(port, &own)) {
                compiled.resources.insert(cluster);
            }
            let place = &proxy.record.locality;
            if let Some(endpoints) = self.shared.placed_endpoints(account, place) {
                compiled.resources.replace(ResourceType::Endpoint, endpoints);
            }
            let telemetries = self.shared.telemetries();
            let telling = Telling::of(&telemetries, &first.name, proxy);
            let listener = outbound::by_host_listener(proxy, scope.by_host, telling);
            compiled.resources.insert(self.shared.encoder.encode(&listener));
            self.collectors(telling, &mut compiled);
            self.upstreams(proxy, account, &scope, telling, &mut compiled);
        }
        self.inbound(proxy, &served, &mut compiled);
        compiled
    }

    /// Those who are told of calls.
    fn collectors(&mut self, telling: Telling<'_>, compiled: &mut Compiled) {
        for collector in telling.collectors() {
            compiled.resources.insert(self.shared.collector(collector));
        }
    }

    /// The proxy's inbound listener, with what it refers to.
    fn inbound(&mut self, proxy: &Proxy, served: &[&Arc<Service>], compiled: &mut Compiled) {
        let snapshot = Arc::clone(&self.shared.snapshot);
        let mut chains = Vec::new();
        let mut taken = ingress::Taken::new(proxy, &snapshot);
        let mut called_from_outside = Vec::new();
        for service in served {
            // Without its certificate a chain could never shake hands.
            let Some(certificate) = self.shared.certificate(&service.account) else {
                compiled.findings.push(no_certificate(proxy, service));
                continue;
            };
            let served_before = chains.len();
            for (service_port, port) in service.service_ports() {
                let chain = self.chain(proxy, service, &service_port, port, compiled);
                let Some(chain) = chain else {
                    continue;
                };
                chains.push(chain);
                let applications =
                    snapshot.local_endpoints.get(&(proxy.record.id, service_port.clone()));
                let here = [Application {
                    port: port.target,
                    weight: 1,
                    health: Health::Healthy,
                    probed: false,
                }];
                let applications = applications.map_or(&here[..], |known| known.as_slice());
                let cluster =
                    inbound::local_cluster(proxy, &service_port, port.protocol, applications);
                compiled.needs(self.shared.encoder.encode(&cluster));
                compiled.serves.0.insert((service.name.clone(), port.number));
                taken.by_applications(applications);
                let ways = snapshot.ways_in.get_key_value(&service_port);
                if let Some((port_of, ways)) = ways.filter(|_| port.protocol.is_http()) {
                    called_from_outside.push((service, port_of, port.protocol, ways));
                }
            }
            // Envoy asks for the certificate only where a chain names it.
            if chains.len() > served_before {
                compiled.needs(certificate);
            }
        }
        let telemetries = self.shared.telemetries();
        for (service, port, protocol, ways) in called_from_outside {
            for way in ways.iter() {
                let telling = Telling::of(&telemetries, &service.name, proxy);
                let global = self.shared.upstream_settings().global_http(service);
                let filters = inbound::filters(protocol, global);
                match taken.take(service, port, filters, way, telling) {
                    Ok(ingress::Way::Chain(chain)) => chains.push(*chain),
                    Ok(ingress::Way::Listener(listener)) => {
                        compiled.resources.insert(self.shared.encoder.encode_urgent(&*listener));
                    }
                    Err(finding) => compiled.findings.push(*finding),
                }
            }
        }
        if chains.is_empty() {
            compiled.takes_part_with.clear();
        } else {
            compiled.resources.insert(self.shared.trust_bundle());
            let listener = inbound::inbound_listener(proxy, chains);
            compiled.needs(self.shared.encoder.encode_urgent(&listener));
        }
    }

    /// The filter chain of one service port, with what lets callers in; none where nobody may call,
    /// which only TCP knows.
    fn chain(
        &mut self,
        proxy: &Proxy,
        service: &Service,
        service_port: &ServicePort,
        port: &Port,
        compiled: &mut Compiled,
    ) -> Option<FilterChain> {
        let snapshot = Arc::clone(&self.shared.snapshot);
        let telemetries = self.shared.telemetries();
        let telling = Telling::of(&telemetries, &service.name, proxy);
        self.collectors(telling, compiled);
        if port.protocol.is_http() {
            // Envoy takes a listener before it has its routes.
            compiled.needs(self.shared.inbound_routes(service, service_port));
            let protocol = port.protocol;
            let global = self.shared.upstream_settings().global_http(service).cloned();
            if let Some(limit) = &global {
                // Without it calls pass or fail as policy says: it is not asked for taking part.
                let cluster = self.shared.encoder.encode(&global::cluster(&limit.service));
                compiled.resources.insert(cluster);
            }
            return Some(inbound::http_filter_chain(
                &snapshot,
                service,
                service_port,
                protocol,
                global.as_ref(),
                telling,
            ));
        }
        let access = snapshot.tcp_accesses.ports.get(service_port)?;
        let authorization = self.shared.tcp_authorization(service_port, access);
        if access.callers.are_nobody() {
            compiled.resources.insert(authorization);
            return None;
        }
        compiled.needs(authorization);
        if let Some(limit) = self.shared.upstream_settings().global_tcp(service).cloned() {
            let asked = self.shared.encoder.encode(&global::cluster(&limit.service));
            compiled.resources.insert(asked);
            let encoder = &mut self.shared.encoder;
            compiled.needs(encoder.encode(&counted::cluster(proxy, service_port)));
            let listener = counted::listener(proxy, service_port, &limit);
            compiled.needs(encoder.encode_urgent(&listener));
        }
        let settings = self.shared.upstream_settings();
        Some(inbound::tcp_filter_chain(&snapshot, service, service_port, access, settings, telling))
    }

    /// The proxy's declared upstreams.
    fn upstreams(
        &mut self,
        proxy: &Proxy,
        account: &ServiceAccount,
        scope: &Scope,
        telling: Telling<'_>,
        compiled: &mut Compiled,
    ) {
        let snapshot = Arc::clone(&self.shared.snapshot);
        let mut taken = upstream::own_ports(proxy);
        for declared in &proxy.statement.upstreams {
            if !taken.insert(declared.local_port) {
                let (service, port) = (declared.service.to_string(), declared.local_port);
                compiled.findings.push(upstream::port_taken(proxy, &service, port));
                continue;
            }
            let (service, port) = match upstream::service_port(&snapshot, proxy, declared) {
                Ok(found) => found,
                Err(finding) => {
                    compiled.findings.push(*finding);
                    continue;
                }
            };
            let is_http = service.port(port.port).is_some_and(|port| port.protocol.is_http());
            let listener = if is_http {
                let routes = self.shared.upstream_routes(account, scope, service, &port);
                compiled.resources.insert(routes);
                Some(upstream::http_listener(proxy, service, &port, declared.local_port, telling))
            } else {
                // Nothing can be said on TCP: where nobody may call, nobody listens.
                let to = scope.callable.get(&port).map(|to| &**to);
                let plaintext = to.is_some_and(|to| outbound::may_be_plaintext(&snapshot, to));
                let listener = to.and_then(|to| {
                    upstream::tcp_listener(
                        proxy,
                        &port,
                        declared.local_port,
                        to,
                        plaintext,
                        telling,
                    )
                });
                if listener.is_none() {
                    compiled.findings.push(upstream::closed(proxy, declared, account, to));
                }
                listener
            };
            if let Some(listener) = listener {
                compiled.resources.insert(self.shared.encoder.encode(&listener));
            }
        }
        self.hosts(proxy, account, &mut taken, telling, compiled);
    }

    /// The proxy's declared upstreams outside of the mesh, at local ports that are not `taken`.
    fn hosts(
        &mut self,
        proxy: &Proxy,
        account: &ServiceAccount,
        taken: &mut BTreeSet<u16>,
        telling: Telling<'_>,
        compiled: &mut Compiled,
    ) {
        for declared in &proxy.statement.hosts {
            if !taken.insert(declared.local_port) {
                let port = declared.local_port;
                compiled.findings.push(upstream::port_taken(proxy, &declared.authority(), port));
                continue;
            }
            let outward = self.shared.outward(account);
            let opened = egress::upstream::open(proxy, &outward, declared, telling);
            let encoder = &mut self.shared.encoder;
            let resources = match opened {
                None => {
                    compiled.findings.push(egress::upstream::closed(proxy, declared, account));
                    continue;
                }
                Some(Opened::Requests(both)) => [encoder.encode(&both.0), encoder.encode(&both.1)],
                Some(Opened::Bytes(both)) => [encoder.encode(&both.0), encoder.encode(&both.1)],
            };
            for resource in resources {
                compiled.resources.insert(resource);
            }
        }
    }
}

impl Compiled {
    /// Puts a resource in without which the proxy does not take part.
    fn needs(&mut self, resource: Arc<Resource>) {
        let name = Arc::clone(resource.name());
        let needed = (resource.resource_type(), name, resource.version());
        // Several services may share a certificate.
        if !self.takes_part_with.contains(&needed) {
            self.takes_part_with.push(needed);
        }
        self.resources.insert(resource);
    }
}

fn unknown_service(proxy: &Proxy, name: &ironmesh_catalog::ServiceName) -> Finding {
    let message =
        format!("proxy {} joined as `{name}`, which policy does not define", proxy.record.id);
    Finding::error(SERVICE_UNKNOWN, None, message)
        .help("define the service in policy; until then the proxy serves nothing for it")
}

fn unknown_fields(proxy: &Proxy) -> Option<Finding> {
    let (id, unknown) = (proxy.record.id, &proxy.statement.unknown);
    if unknown.is_empty() {
        return None;
    }
    let names = unknown.join("`, `");
    let message = format!("proxy {id} states fields that this control plane ignores: `{names}`");
    Some(Finding::warning(UNKNOWN_FIELDS, None, message).help(
        "upgrade the control plane before the bootstraps, or write the proxy's bootstrap again",
    ))
}

fn joined_as_a_part(proxy: &Proxy, service: &Service) -> Finding {
    let (id, part, whole) = (proxy.record.id, &service.name, service.served_as());
    let message = format!("proxy {id} joined as `{part}`, which is a part of `{whole}`");
    Finding::error(SERVICE_UNKNOWN, Some(service.spot.clone()), message)
        .help(format!("let it join as `{whole}`, with the labels of the part (`--label`)"))
}

fn joined_as_external(proxy: &Proxy, service: &Service) -> Finding {
    let (id, name) = (proxy.record.id, &service.name);
    let message = format!("proxy {id} joined as `{name}`, which is outside of the mesh");
    Finding::error(SERVICE_UNKNOWN, Some(service.spot.clone()), message)
        .help("let it join as a service of the mesh, or take `external` from this one")
}

fn no_certificate(proxy: &Proxy, service: &Service) -> Finding {
    let (id, name, account) = (proxy.record.id, &service.name, &service.account);
    let message = format!("proxy {id} serves nothing for `{name}`: `{account}` has no certificate");
    Finding::error(NO_CERTIFICATE, None, message)
        .help("the log says why none could be issued; it is tried again every 30 s")
}
