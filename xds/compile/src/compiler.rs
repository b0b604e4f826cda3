//! The compiler: what is shared, compiled once, and each proxy's overlay on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    Code, Finding, Participation, Port, Proxy, Service, ServiceAccount, ServicePort, Snapshot,
    TcpAccess,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::FilterChain;
use ironmesh_xds_wire::{Discoverable, Resource, ResourceSet, ResourceType, Version};

use crate::index::PolicyIndex;
use crate::outbound::Destination;
use crate::{inbound, outbound, secret, upstream};

/// A proxy's record names a service that policy does not define.
const SERVICE_UNKNOWN: Code = Code(403);

/// A service account has no certificate.
const NO_CERTIFICATE: Code = Code(406);

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

/// Compiles the proxies of one snapshot. What they share is compiled at its first use and kept.
#[derive(Debug)]
pub struct Compiler {
    snapshot: Arc<Snapshot>,
    index: PolicyIndex,
    scopes: BTreeMap<ServiceAccount, Arc<Scope>>,
    endpoints: BTreeMap<ServicePort, Arc<Resource>>,
    inbound_routes: BTreeMap<ServicePort, Arc<Resource>>,
    tcp_authorizations: BTreeMap<ServicePort, Option<Arc<Resource>>>,
    upstream_routes: BTreeMap<(ServiceAccount, ServicePort), Arc<Resource>>,
    certificates: BTreeMap<ServiceAccount, Option<Arc<Resource>>>,
    trust_bundle: Arc<Resource>,
}

/// What all proxies of one service account have in common.
#[derive(Debug)]
struct Scope {
    resources: ResourceSet,
    callable: BTreeSet<ServicePort>,
}

impl Compiler {
    /// A compiler for `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            index: PolicyIndex::new(&snapshot),
            scopes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            inbound_routes: BTreeMap::new(),
            tcp_authorizations: BTreeMap::new(),
            upstream_routes: BTreeMap::new(),
            certificates: BTreeMap::new(),
            trust_bundle: encode(&secret::trust_bundle(&snapshot.trust_bundle)),
            snapshot,
        }
    }

    /// What `proxy` is to have.
    ///
    /// Calls go out as the account of its first service: a connection can show one certificate only.
    pub fn compile(&mut self, proxy: &Proxy) -> Compiled {
        let mut compiled = Compiled {
            resources: ResourceSet::default(),
            serves: Participation::default(),
            takes_part_with: Vec::new(),
            findings: Vec::new(),
        };
        let snapshot = Arc::clone(&self.snapshot);
        let services = &snapshot.specification.services;
        let mut served = Vec::new();
        for name in &proxy.record.services {
            match services.get(name) {
                Some(service) => served.push(service),
                None => compiled.findings.push(unknown_service(proxy, name)),
            }
        }
        let first = proxy.record.services.first().and_then(|name| services.get(name));
        if let Some(account) = first.map(|service| &service.account)
            // Without its certificate it could show nobody who it is.
            && self.certificate(account).is_some()
        {
            let scope = self.scope(account);
            compiled.resources = scope.resources.clone();
            compiled.resources.insert(encode(&outbound::by_host_listener(proxy)));
            self.upstreams(proxy, account, &scope, &mut compiled);
        }
        self.inbound(proxy, &served, &mut compiled);
        compiled
    }

    /// The proxy's inbound listener, with what it refers to.
    fn inbound(&mut self, proxy: &Proxy, served: &[&Arc<Service>], compiled: &mut Compiled) {
        let snapshot = Arc::clone(&self.snapshot);
        let mut chains = Vec::new();
        for service in served {
            // Without its certificate a chain could never shake hands.
            let Some(certificate) = self.certificate(&service.account) else {
                compiled.findings.push(no_certificate(proxy, service));
                continue;
            };
            for (service_port, port) in service.service_ports() {
                let Some(chain) = self.chain(service, &service_port, port, compiled) else {
                    continue;
                };
                chains.push(chain);
                let applications =
                    snapshot.local_endpoints.get(&(proxy.record.id, service_port.clone()));
                let here = [(port.target, 1)];
                let applications = applications.map_or(&here[..], |known| known.as_slice());
                let cluster =
                    inbound::local_cluster(proxy, &service_port, port.protocol, applications);
                compiled.resources.insert(encode(&cluster));
                compiled.serves.0.insert((service.name.clone(), port.number));
            }
            compiled.needs(certificate);
        }
        if chains.is_empty() {
            compiled.takes_part_with.clear();
        } else {
            compiled.resources.insert(Arc::clone(&self.trust_bundle));
            compiled.needs(encode(&inbound::inbound_listener(proxy, chains)));
        }
    }

    /// The filter chain of one service port, with what lets callers in; none where nobody may call,
    /// which only TCP knows: an empty list of names would let in everybody.
    fn chain(
        &mut self,
        service: &Service,
        service_port: &ServicePort,
        port: &Port,
        compiled: &mut Compiled,
    ) -> Option<FilterChain> {
        let snapshot = Arc::clone(&self.snapshot);
        if port.protocol.is_http() {
            // Envoy takes a listener before it has its routes.
            compiled.needs(self.inbound_routes(service, service_port));
            return Some(inbound::http_filter_chain(&snapshot, service, service_port));
        }
        let access = snapshot.tcp_accesses.get(service_port)?;
        compiled.needs(self.tcp_authorization(service_port, access)?);
        Some(inbound::tcp_filter_chain(&snapshot, service, service_port, access))
    }

    /// The proxy's declared upstreams.
    fn upstreams(
        &mut self,
        proxy: &Proxy,
        account: &ServiceAccount,
        scope: &Scope,
        compiled: &mut Compiled,
    ) {
        let snapshot = Arc::clone(&self.snapshot);
        let mut taken = upstream::own_ports(proxy);
        for declared in &proxy.statement.upstreams {
            if !taken.insert(declared.local_port) {
                compiled.findings.push(upstream::port_taken(proxy, declared));
                continue;
            }
            let (service, port) = match upstream::service_port(&snapshot, proxy, declared) {
                Ok(found) => found,
                Err(finding) => {
                    compiled.findings.push(*finding);
                    continue;
                }
            };
            let index = &self.index;
            if service.port(port.port).is_some_and(|port| !port.protocol.is_http()) {
                // Nothing can be said on TCP: where nobody may call, nobody listens.
                let destination = Destination::of(index, &port);
                let may_call = scope.callable.contains(&port);
                let listener = may_call.then_some(()).and_then(|()| {
                    upstream::tcp_listener(proxy, &port, declared.local_port, &destination)
                });
                if let Some(listener) = listener {
                    compiled.resources.insert(encode(&listener));
                }
                continue;
            }
            let key = (account.clone(), port.clone());
            let routes = self.upstream_routes.entry(key).or_insert_with(|| {
                let host =
                    format!("{}:{}", snapshot.mesh.domain.hostname(&port.service), port.port);
                let action = if scope.callable.contains(&port) {
                    Destination::of(index, &port).action(&port, Some(host))
                } else {
                    upstream::forbidden(&snapshot, account, service)
                };
                encode(&upstream::upstream_routes(&port, action))
            });
            compiled.resources.insert(Arc::clone(routes));
            let listener = upstream::http_listener(proxy, &port, declared.local_port);
            compiled.resources.insert(encode(&listener));
        }
    }

    /// What all proxies of `account` have in common: all that they need to call others.
    fn scope(&mut self, account: &ServiceAccount) -> Arc<Scope> {
        if let Some(scope) = self.scopes.get(account) {
            return Arc::clone(scope);
        }
        let mut resources = ResourceSet::default();
        let snapshot = Arc::clone(&self.snapshot);
        let services = &snapshot.specification.services;
        let callable = self.index.callable(account);
        let destinations: Vec<_> =
            callable.iter().map(|port| Destination::of(&self.index, port)).collect();
        let clusters: BTreeSet<_> =
            destinations.iter().flat_map(Destination::service_ports).collect();
        for service_port in clusters {
            let service = services.get(&service_port.service);
            let Some((service, port)) =
                service.and_then(|service| Some((service, service.port(service_port.port)?)))
            else {
                continue;
            };
            let cluster = outbound::cluster(&snapshot, account, service, port);
            resources.insert(encode(&cluster));
            resources.insert(self.endpoints(service_port));
        }
        let routes = outbound::by_host_routes(&self.index, &snapshot, account, &callable);
        resources.insert(encode(&routes));
        if let Some(certificate) = self.certificate(account) {
            resources.insert(certificate);
        }
        resources.insert(Arc::clone(&self.trust_bundle));
        let scope = Arc::new(Scope { resources, callable });
        self.scopes.insert(account.clone(), Arc::clone(&scope));
        scope
    }

    fn endpoints(&mut self, port: &ServicePort) -> Arc<Resource> {
        let known = self.snapshot.endpoints.get(port);
        let resource = self.endpoints.entry(port.clone()).or_insert_with(|| {
            encode(&outbound::endpoints(port, known.map_or(&[], |endpoints| endpoints)))
        });
        Arc::clone(resource)
    }

    fn inbound_routes(&mut self, service: &Service, port: &ServicePort) -> Arc<Resource> {
        let resource = self.inbound_routes.entry(port.clone()).or_insert_with(|| {
            encode(&inbound::route_configuration(&self.index, &self.snapshot, service, port))
        });
        Arc::clone(resource)
    }

    fn tcp_authorization(
        &mut self,
        port: &ServicePort,
        access: &TcpAccess,
    ) -> Option<Arc<Resource>> {
        let snapshot = &self.snapshot;
        let resource = self.tcp_authorizations.entry(port.clone()).or_insert_with(|| {
            let (trust_domain, bundle) = (&snapshot.mesh.trust_domain, &snapshot.trust_bundle);
            secret::tcp_authorization(trust_domain, bundle, port, &access.callers)
                .as_ref()
                .map(encode)
        });
        resource.clone()
    }

    fn certificate(&mut self, account: &ServiceAccount) -> Option<Arc<Resource>> {
        let certificate = self.snapshot.certificates.get(account);
        let resource = self.certificates.entry(account.clone()).or_insert_with(|| {
            certificate.map(|certificate| encode(&secret::service_certificate(certificate)))
        });
        resource.clone()
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

fn encode<M: Discoverable>(message: &M) -> Arc<Resource> {
    Arc::new(Resource::new(message))
}

fn unknown_service(proxy: &Proxy, name: &ironmesh_catalog::ServiceName) -> Finding {
    let message =
        format!("proxy {} joined as `{name}`, which policy does not define", proxy.record.id);
    Finding::error(SERVICE_UNKNOWN, None, message)
        .help("define the service in policy; until then the proxy serves nothing for it")
}

fn no_certificate(proxy: &Proxy, service: &Service) -> Finding {
    let (id, name, account) = (proxy.record.id, &service.name, &service.account);
    let message = format!("proxy {id} serves nothing for `{name}`: `{account}` has no certificate");
    Finding::error(NO_CERTIFICATE, None, message)
        .help("the log says why none could be issued; it is tried again every 30 s")
}
