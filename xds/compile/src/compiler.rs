//! The compiler: shared resources, compiled once, and each proxy's own resources on top.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    Application, CertificateSource, Code, Finding, Health, HostUpstream, Locality, Participation,
    Port, Proxy, ProxyId, ProxyUpstream, ProxyUpstreams, Service, ServiceAccount, ServicePort,
    Snapshot,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::FilterChain;
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceSet, ResourceType, Version};

use crate::egress::EgressScope;
use crate::egress::upstream::Opened;
use crate::mesh_view::MeshView;
use crate::rate_limit::{counted, global};
use crate::reads::Reads;
use crate::role::ResourceRole;
use crate::shared::{Changes, Scope, Shared};
use crate::telemetry::ServiceTelemetry;
use crate::{caller_name, egress, inbound, ingress, outbound, telemetry, upstream, withdrawals};

/// A proxy is enrolled for a service that policy does not define.
const SERVICE_UNKNOWN: Code = Code(403);

/// A service account has no certificate.
const NO_CERTIFICATE: Code = Code(406);

/// A proxy's node metadata has fields that this version does not know.
const UNKNOWN_FIELDS: Code = Code(661);

/// The result for one proxy.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Its resources.
    pub resources: ResourceSet,
    /// The service ports that its inbound listener serves.
    pub serves: Participation,
    /// The resources that a proxy must have ACKed to participate with these ports: its inbound
    /// listener, its routes and the certificates of its accounts.
    pub participation_resources: Vec<(ResourceType, Arc<str>, Version)>,
    /// The upstreams that take effect in it, from policy and from its bootstrap.
    pub upstreams: Vec<ProxyUpstream>,
    /// The problems with the proxy's record, node metadata and upstreams.
    pub findings: Vec<Finding>,
}

/// Compiles proxies, and follows the mesh from snapshot to snapshot. Shared resources are compiled
/// at their first use, and kept while they stay the same.
#[derive(Debug)]
pub struct Compiler {
    shared: Shared,
}

impl Compiler {
    /// A compiler for `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { shared: Shared::new(snapshot) }
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.shared.mesh.snapshot
    }

    /// Moves to the next snapshot. Returns which proxies it affects.
    pub fn update(&mut self, snapshot: Arc<Snapshot>) -> Changes {
        self.shared.update(snapshot)
    }

    /// Forgets a proxy that needs no resources any more. Later changes do not name it, until it is compiled again.
    pub fn forget(&mut self, proxy: ProxyId) {
        self.shared.forget_reads(proxy);
    }

    /// The endpoints of all proxies of an account in a locality, if they were compiled.
    pub fn endpoints_of(
        &self,
        account: &ServiceAccount,
        locality: &Locality,
    ) -> Option<&ResourceMap> {
        self.shared.endpoints_of(account, locality)
    }

    /// Renews the cluster of the applications at a service port of `proxy`, whose resources are
    /// otherwise the same ([`Changes::applications`]).
    pub fn renew_applications(
        &mut self,
        proxy: &Proxy,
        port: &ServicePort,
        compiled: &mut Compiled,
    ) {
        let mesh = Arc::clone(&self.shared.mesh);
        let number = (port.service.clone(), port.port);
        let known = mesh.snapshot.service(&port.service).and_then(|one| one.port(port.port));
        if let Some(known) = known.filter(|_| compiled.serves.0.contains(&number)) {
            let applications = applications(&mesh.snapshot, proxy, port, known);
            let cluster = self.shared.local_cluster(proxy, port, known, &applications);
            compiled.replace_required(cluster);
        }
    }

    /// The number of resources encoded so far.
    pub fn encoded(&self) -> u64 {
        self.shared.encoder.count()
    }

    /// Compiles `proxy`.
    ///
    /// Outbound calls use the account of its first service: a connection can show only one
    /// certificate.
    pub fn compile(&mut self, proxy: &Proxy) -> Compiled {
        let mut compiled = Compiled {
            resources: ResourceSet::default(),
            serves: Participation::default(),
            participation_resources: Vec::new(),
            upstreams: Vec::new(),
            findings: unknown_fields(proxy).into_iter().collect(),
        };
        let (mesh, reads) = (Arc::clone(&self.shared.mesh), Reads::default());
        self.compile_reading(proxy, mesh.read_by(&reads), &mut compiled);
        self.shared.keep_reads(proxy.record.id, reads);
        compiled
    }

    fn compile_reading(&mut self, proxy: &Proxy, mesh: MeshView<'_>, compiled: &mut Compiled) {
        let ProxyUpstreams { services: upstreams, hosts, findings } = mesh.upstreams_of(proxy);
        compiled.findings.extend(findings);
        let mut served = Vec::new();
        for name in &proxy.record.services {
            match mesh.service(name) {
                Some(service) if service.is_subset() => {
                    compiled.findings.push(enrolled_for_part(proxy, service));
                }
                Some(service) if service.external.is_some() => {
                    compiled.findings.push(enrolled_for_external(proxy, service));
                }
                Some(service) => served.push(service),
                None => compiled.findings.push(unknown_service(proxy, name)),
            }
        }
        let is_agent_fed = proxy.metadata.certificates == CertificateSource::Agent;
        let first = proxy.record.services.first().and_then(|name| mesh.service(name));
        for service in served.iter().copied().chain(first) {
            let finding = telemetry::unwritten_log(mesh, &service.name, proxy);
            // Several services may log by the same telemetry object.
            compiled.findings.extend(finding.filter(|one| !compiled.findings.contains(one)));
        }
        if let Some(first) = first
            // Without its certificate the proxy could not authenticate.
            && (is_agent_fed || self.shared.certificate(&first.account, mesh.reads()).is_some())
        {
            let account = &first.account;
            let scope = self.shared.scope(account, mesh.reads());
            compiled.resources = scope.resources.clone();
            if is_agent_fed {
                self.shared.feed_by_agent(account, &mut compiled.resources, mesh.reads());
            }
            let own = egress::filters::own_addresses(proxy);
            let by_machine = scope.callees.by_machine.iter().filter(|_| !own.is_empty());
            for port in by_machine {
                if let Some(cluster) = self.shared.external_cluster(mesh, port, &own) {
                    compiled.resources.insert(cluster);
                }
            }
            let locality = &proxy.record.locality;
            if let Some(endpoints) = self.shared.localized_endpoints(account, locality) {
                compiled.resources.replace(ResourceType::Endpoint, endpoints);
            }
            let telemetry = ServiceTelemetry::of(mesh, &first.name, proxy);
            let listener = outbound::by_host_listener(proxy, scope.callees.by_host, telemetry);
            let listener = caller_name::with_caller_name(listener, mesh, account);
            compiled.resources.insert(self.shared.encoder.encode(&listener));
            self.collectors(telemetry, compiled);
            let mut used_ports = upstream::own_ports(proxy);
            self.upstreams(
                proxy,
                mesh,
                account,
                &scope,
                &upstreams,
                &mut used_ports,
                telemetry,
                compiled,
            );
            if !hosts.is_empty() {
                let egress_scope = EgressScope::of(mesh, account);
                self.hosts(proxy, &egress_scope, &hosts, &mut used_ports, telemetry, compiled);
            }
        }
        compiled.upstreams = upstreams;
        self.inbound(proxy, mesh, &served, compiled);
        if proxy.metadata.ends_single_callers() {
            let layer = self.withdrawals(mesh, &served);
            compiled.resources.insert(layer);
        }
    }

    /// The withdrawn callers of the TCP ports that a proxy serves. Also a closed port may have
    /// connections that have not ended yet.
    fn withdrawals(&mut self, mesh: MeshView<'_>, served: &[&Arc<Service>]) -> Arc<Resource> {
        let ports = served.iter().flat_map(|service| service.service_ports());
        let accesses = ports.filter_map(|(port, _)| Some((mesh.tcp_access(&port)?, port)));
        let accesses: Vec<_> = accesses.collect();
        let mut keys = accesses
            .iter()
            .flat_map(|(access, port)| access.withdrawn.iter().map(move |account| (port, account)))
            .peekable();
        if keys.peek().is_none() {
            return self.shared.no_withdrawals();
        }
        self.shared.encoder.encode(&withdrawals::layer(keys))
    }

    /// Adds the clusters of collectors.
    fn collectors(&mut self, telemetry: ServiceTelemetry<'_>, compiled: &mut Compiled) {
        for collector in telemetry.collectors() {
            compiled.resources.insert(self.shared.collector(collector));
        }
    }

    /// Adds the proxy's inbound listener, with the resources that it refers to.
    fn inbound(
        &mut self,
        proxy: &Proxy,
        mesh: MeshView<'_>,
        served: &[&Arc<Service>],
        compiled: &mut Compiled,
    ) {
        // What a proxy's applications are concerns only this proxy ([`Shared::update`]).
        let snapshot = &Arc::clone(&self.shared.mesh).snapshot;
        let mut chains = Vec::new();
        let local_ports = compiled.upstreams.iter().map(|one| one.upstream.local_port);
        let mut used = ingress::UsedAddresses::new(proxy, mesh, local_ports);
        let mut called_from_outside = Vec::new();
        for service in served {
            // Without its certificate a chain could never complete a handshake.
            let certificate = match proxy.metadata.certificates {
                CertificateSource::Agent => None,
                CertificateSource::Ads => {
                    let certificate = self.shared.certificate(&service.account, mesh.reads());
                    let Some(certificate) = certificate else {
                        compiled.findings.push(no_certificate(proxy, service));
                        continue;
                    };
                    Some(certificate)
                }
            };
            let served_before = chains.len();
            for (service_port, port) in service.service_ports() {
                let chain = self.chain(proxy, mesh, service, &service_port, port, compiled);
                let Some(chain) = chain else {
                    continue;
                };
                chains.push(chain);
                let applications = applications(snapshot, proxy, &service_port, port);
                let cluster = self.shared.local_cluster(proxy, &service_port, port, &applications);
                compiled.insert_required(cluster);
                compiled.serves.0.insert((service.name.clone(), port.number));
                used.add_applications(&applications);
                let rules = mesh.ingress_rules(&service_port);
                if let Some((port_of, rules)) = rules.filter(|_| port.protocol.is_http()) {
                    called_from_outside.push((service, port_of, port.protocol, rules));
                }
            }
            // Envoy requests the certificate only if a chain names it.
            if let Some(certificate) = certificate.filter(|_| chains.len() > served_before) {
                compiled.insert_required(certificate.served);
            }
        }
        for (service, port, protocol, rules) in called_from_outside {
            for rule in rules {
                let telemetry = ServiceTelemetry::of(mesh, &service.name, proxy);
                let global = mesh.settings(service).global_http();
                let filters = inbound::filters(protocol, global);
                match used.add(service, port, filters, rule, telemetry) {
                    Ok(ingress::IngressResource::Chain(chain)) => chains.push(*chain),
                    Ok(ingress::IngressResource::Listener(listener)) => {
                        compiled.resources.insert(self.shared.encoder.encode_urgent(&*listener));
                    }
                    Err(finding) => compiled.findings.push(*finding),
                }
            }
        }
        if chains.is_empty() {
            compiled.participation_resources.clear();
        } else {
            compiled.resources.insert(self.shared.trust_bundle(mesh.reads()));
            let listener = inbound::inbound_listener(proxy, chains);
            compiled.insert_required(self.shared.encoder.encode_urgent(&listener));
        }
    }

    /// The filter chain of one service port, with the resources that authorize callers; `None` if
    /// no caller is allowed, which is known only for TCP.
    fn chain(
        &mut self,
        proxy: &Proxy,
        mesh: MeshView<'_>,
        service: &Service,
        service_port: &ServicePort,
        port: &Port,
        compiled: &mut Compiled,
    ) -> Option<FilterChain> {
        let telemetry = ServiceTelemetry::of(mesh, &service.name, proxy);
        let settings = mesh.settings(service);
        self.collectors(telemetry, compiled);
        if port.protocol.is_http() {
            // Envoy ACKs a listener before it has its routes.
            compiled.insert_required(self.shared.inbound_routes(service_port, mesh.reads())?);
            let protocol = port.protocol;
            let global = settings.global_http();
            if let Some(limit) = global {
                // Without it, calls pass or fail as policy says, so participation does not require
                // it.
                let cluster = self.shared.encoder.encode(&global::cluster(&limit.service));
                compiled.resources.insert(cluster);
            }
            return Some(inbound::http_filter_chain(
                mesh,
                proxy.metadata.certificates,
                service,
                service_port,
                protocol,
                global,
                telemetry,
            ));
        }
        let access = mesh.tcp_access(service_port)?;
        let authorization = self.shared.tcp_authorization(service_port, mesh.reads())?;
        if access.callers.is_empty() {
            compiled.resources.insert(authorization);
            return None;
        }
        compiled.insert_required(authorization);
        if let Some(limit) = settings.global_tcp() {
            let cluster = self.shared.encoder.encode(&global::cluster(&limit.service));
            compiled.resources.insert(cluster);
            let encoder = &mut self.shared.encoder;
            let role = ResourceRole::Counted(service_port.clone());
            let cluster = counted::cluster(proxy, service_port);
            compiled.insert_required(encoder.encode_as(role, &cluster));
            let listener = counted::listener(proxy, service_port, limit);
            compiled.insert_required(encoder.encode_urgent(&listener));
        }
        let by_caller = proxy.metadata.ends_single_callers();
        if by_caller {
            for resource in self.shared.by_caller(service_port, mesh.reads()).into_iter().flatten()
            {
                compiled.insert_required(resource);
            }
        }
        Some(inbound::tcp_filter_chain(
            mesh,
            proxy.metadata.certificates,
            by_caller,
            service,
            service_port,
            access,
            settings,
            telemetry,
        ))
    }

    /// Adds the proxy's `upstreams`, at local ports that are not in `used_ports`.
    #[expect(clippy::too_many_arguments, reason = "a listener depends on all of them")]
    fn upstreams(
        &mut self,
        proxy: &Proxy,
        mesh: MeshView<'_>,
        account: &ServiceAccount,
        scope: &Scope,
        upstreams: &[ProxyUpstream],
        used_ports: &mut BTreeSet<u16>,
        telemetry: ServiceTelemetry<'_>,
        compiled: &mut Compiled,
    ) {
        for ProxyUpstream { upstream: declared, source } in upstreams {
            let spot = source.spot();
            if !used_ports.insert(declared.local_port) {
                let (service, port) = (declared.service.to_string(), declared.local_port);
                compiled.findings.push(upstream::port_in_use(proxy, &service, port, spot));
                continue;
            }
            let (service, port) = match upstream::service_port(mesh, proxy, declared, spot) {
                Ok(found) => found,
                Err(finding) => {
                    compiled.findings.push(*finding);
                    continue;
                }
            };
            let is_http = service.port(port.port).is_some_and(|port| port.protocol.is_http());
            let listener =
                upstream::UpstreamListener::new(mesh, proxy, &port, declared.local_port, source);
            let listener = if is_http {
                let routes = self.shared.upstream_routes(account, &port, mesh.reads());
                if let Some(routes) = routes {
                    compiled.resources.insert(routes);
                }
                let listener = upstream::http_listener(proxy, service, &port, listener, telemetry);
                Some(caller_name::with_caller_name(listener, mesh, account))
            } else {
                // TCP cannot carry an explanation: without an allowed destination there is no
                // listener.
                let to = scope.callees.callable.get(&port).map(|to| &**to);
                let plaintext = to.is_some_and(|to| outbound::may_be_plaintext(mesh, to));
                let listener = to.and_then(|to| {
                    upstream::tcp_listener(proxy, &port, listener, to, plaintext, telemetry)
                });
                if listener.is_none() {
                    compiled.findings.push(upstream::closed(proxy, declared, spot, account, to));
                }
                listener
            };
            if let Some(listener) = listener {
                compiled.resources.insert(self.shared.encoder.encode(&listener));
            }
        }
    }

    /// Adds the proxy's declared upstreams outside the mesh, at local ports that are not in
    /// `used_ports`.
    fn hosts(
        &mut self,
        proxy: &Proxy,
        egress_scope: &EgressScope<'_>,
        hosts: &[HostUpstream],
        used_ports: &mut BTreeSet<u16>,
        telemetry: ServiceTelemetry<'_>,
        compiled: &mut Compiled,
    ) {
        for declared in hosts {
            if !used_ports.insert(declared.local_port) {
                let (host, port) = (declared.authority(), declared.local_port);
                compiled.findings.push(upstream::port_in_use(proxy, &host, port, None));
                continue;
            }
            let opened = egress::upstream::open(proxy, egress_scope, declared, telemetry);
            let encoder = &mut self.shared.encoder;
            let resources = match opened {
                None => {
                    compiled.findings.push(egress::upstream::closed(
                        proxy,
                        declared,
                        egress_scope.caller,
                    ));
                    continue;
                }
                Some(Opened::Requests(both)) => {
                    let (listener, routes) = *both;
                    let EgressScope { mesh, caller, .. } = *egress_scope;
                    let listener = caller_name::with_caller_name(listener, mesh, caller);
                    [encoder.encode(&listener), encoder.encode(&routes)]
                }
                Some(Opened::Bytes(both)) => [encoder.encode(&both.0), encoder.encode(&both.1)],
            };
            for resource in resources {
                compiled.resources.insert(resource);
            }
        }
    }
}

impl Compiled {
    /// Adds a resource that is required for participation.
    fn insert_required(&mut self, resource: Arc<Resource>) {
        let name = Arc::clone(resource.name());
        let needed = (resource.resource_type(), name, resource.version());
        // Several services may share a certificate.
        if !self.participation_resources.contains(&needed) {
            self.participation_resources.push(needed);
        }
        self.resources.insert(resource);
    }

    /// Replaces a resource without which the proxy does not participate.
    fn replace_required(&mut self, resource: Arc<Resource>) {
        let name = (resource.resource_type(), resource.name());
        for (resource_type, known, version) in &mut self.participation_resources {
            if (*resource_type, &*known) == name {
                *version = resource.version();
            }
        }
        if self.resources.of(name.0).get(name.1).map(|one| one.version())
            != Some(resource.version())
        {
            self.resources.insert(resource);
        }
    }
}

/// The applications of a proxy at a service port: those that providers report, or the one at policy's target port.
fn applications<'a>(
    snapshot: &'a Snapshot,
    proxy: &Proxy,
    service_port: &ServicePort,
    port: &Port,
) -> Cow<'a, [Application]> {
    match snapshot.local_endpoints.get(&(proxy.record.id, service_port.clone())) {
        Some(known) => Cow::Borrowed(known.as_slice()),
        None => Cow::Owned(vec![Application {
            port: port.target,
            weight: 1,
            health: Health::Healthy,
            probed: false,
        }]),
    }
}

fn unknown_service(proxy: &Proxy, name: &ironmesh_catalog::ServiceName) -> Finding {
    let message =
        format!("proxy {} is enrolled for `{name}`, which policy does not define", proxy.record.id);
    Finding::error(SERVICE_UNKNOWN, None, message)
        .object(proxy.record.id)
        .help("define the service in policy; until then the proxy serves nothing for it")
}

fn unknown_fields(proxy: &Proxy) -> Option<Finding> {
    let (id, unknown) = (proxy.record.id, &proxy.metadata.unknown);
    if unknown.is_empty() {
        return None;
    }
    let names = unknown.join("`, `");
    let message = format!("proxy {id} states fields that this control plane ignores: `{names}`");
    Some(Finding::warning(UNKNOWN_FIELDS, None, message).object(id).help(
        "upgrade the control plane before the bootstraps, or write the proxy's bootstrap again",
    ))
}

fn enrolled_for_part(proxy: &Proxy, service: &Service) -> Finding {
    let (id, part, whole) = (proxy.record.id, &service.name, service.served_as());
    let message = format!("proxy {id} is enrolled for `{part}`, which is a part of `{whole}`");
    Finding::error(SERVICE_UNKNOWN, Some(service.spot.clone()), message)
        .object(id)
        .help(format!("enroll it for `{whole}`, with the labels of the part (`--label`)"))
}

fn enrolled_for_external(proxy: &Proxy, service: &Service) -> Finding {
    let (id, name) = (proxy.record.id, &service.name);
    let message = format!("proxy {id} is enrolled for `{name}`, which is outside of the mesh");
    Finding::error(SERVICE_UNKNOWN, Some(service.spot.clone()), message)
        .object(id)
        .help("enroll it for a service of the mesh, or remove `external` from this one")
}

fn no_certificate(proxy: &Proxy, service: &Service) -> Finding {
    let (id, name, account) = (proxy.record.id, &service.name, &service.account);
    let message = format!("proxy {id} serves nothing for `{name}`: `{account}` has no certificate");
    Finding::error(NO_CERTIFICATE, None, message)
        .object(id)
        .help("the log gives the reason; the control plane tries again every 30 s")
}
