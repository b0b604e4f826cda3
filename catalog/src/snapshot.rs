//! The snapshot: one immutable, consistent state of the mesh, structurally shared.
//!
//! All resources of a proxy are a pure function of a snapshot and of the proxy. This module owns the derivation of
//! participants, plaintext endpoints and findings from inputs. It never compiles resources.

mod applications;
mod classifier;
mod endpoint_status;
mod excluded;
mod hosts;
mod localities;
mod misplaced;
mod outages;
mod revise;
mod revoked_callers;
mod service_endpoints;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, OrdSet};
use jiff::Timestamp;

use crate::application_health::ReportedApplications;
use crate::certificate::{ServiceCertificate, TrustBundle};
use crate::endpoint::{Application, Discovered, Endpoint, MeshEndpoint, Provider};
use crate::endpoint_source::Providers;
use crate::finding::Finding;
use crate::grants::Grants;
use crate::identity::TrustDomain;
use crate::ingress::IngressRules;
use crate::name::{Domain, Name, ServiceAccount, ServiceName, ServicePort};
use crate::policy::{EgressMode, UpstreamTrafficSetting};
use crate::proxy::{JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::service::{Mode, Service};
use crate::service_labels::ServiceLabels;
use crate::specification::MeshSpecification;
use crate::tcp_access::TcpAccesses;
use applications::ApplicationsOfService;
use classifier::EndpointClassifier;

pub use endpoint_status::{EndpointState, EndpointStatus, ExclusionReason};
pub use revoked_callers::RevokedCallers;

/// The names of a mesh, fixed at its first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    /// The DNS domain of the hostnames of its services.
    pub domain: Domain,
    /// The root of its SPIFFE IDs.
    pub trust_domain: TrustDomain,
}

/// The join records of all proxies that are connected or can connect.
pub type Records = OrdMap<ProxyId, Arc<JoinRecord>>;

/// The proxies that leave the mesh, or that operators have cordoned, each with the time since which it is so. They stay
/// participants, and callers send them no new requests.
pub type LeavingProxies = OrdMap<ProxyId, Timestamp>;

/// Whether both have the same proxies, whatever their records contain. If one is derived from the other, the cost
/// is linear in their differences.
pub fn have_same_members(one: &Records, other: &Records) -> bool {
    one.diff(other).all(|item| match item {
        DiffItem::Update { old: (_, old), new: (_, new) } => old.services == new.services,
        DiffItem::Add(..) | DiffItem::Remove(..) => false,
    })
}

/// The inputs of a snapshot. A copy is cheap.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The mesh.
    pub mesh: Mesh,
    /// The mode of services whose policy does not set one.
    pub mode: Mode,
    /// The egress mode of namespaces whose policy does not set one.
    pub egress: EgressMode,
    /// The policy of the operators.
    pub specification: Arc<MeshSpecification>,
    /// The endpoints that providers report.
    pub discovered: Discovered,
    /// The join records of proxies in use.
    pub records: Records,
    /// The join records of revoked proxies. Callers use no endpoint at their addresses, not even in plaintext.
    pub revoked: Records,
    /// The proxies that leave the mesh.
    pub leaving: LeavingProxies,
    /// The health of the applications that are probed on their machines.
    pub health: ReportedApplications,
    /// The service certificate of each account that a proxy serves.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// The trust bundle that verifies peers.
    pub trust_bundle: Arc<TrustBundle>,
    /// The callers that peers refuse although their certificates verify.
    pub revoked_callers: Arc<RevokedCallers>,
}

/// One immutable, consistent state of the mesh: its inputs, and what follows from them. A snapshot shares all
/// unchanged parts with the snapshot from which it is derived.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The mesh.
    pub mesh: Mesh,
    /// The mode of services whose policy does not set one.
    pub mode: Mode,
    /// The egress mode of namespaces whose policy does not set one.
    pub egress: EgressMode,
    /// The policy of the operators.
    pub specification: Arc<MeshSpecification>,
    /// The service certificate of each account that a proxy serves.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// The trust bundle that verifies peers.
    pub trust_bundle: Arc<TrustBundle>,
    /// The callers that peers refuse although their certificates verify.
    pub revoked_callers: Arc<RevokedCallers>,
    /// The grants of traffic targets.
    pub grants: Grants,
    /// The callers of each TCP service port.
    pub tcp_accesses: TcpAccesses,
    /// The ingress rules of each service port.
    pub ingress_rules: IngressRules,
    /// The endpoints that callers use for each service port: participants, and the plaintext endpoints of permissive
    /// services. Sorted by address.
    pub endpoints: OrdMap<ServicePort, Arc<Vec<MeshEndpoint>>>,
    /// The applications of a proxy that serve one service port, by the ports on which they listen.
    pub local_endpoints: OrdMap<(ProxyId, ServicePort), Arc<Vec<Application>>>,
    /// The service ports without an available endpoint, except drained services and hostnames.
    ports_without_endpoints: OrdSet<ServicePort>,
    /// The findings about endpoints of each service.
    findings: OrdMap<ServiceName, Arc<[Finding]>>,
    /// The upstream traffic settings with a `locality` of one service.
    localities: OrdMap<ServiceName, Arc<UpstreamTrafficSetting>>,
    discovered: Discovered,
    records: Records,
    revoked: Records,
    leaving: LeavingProxies,
    health: ReportedApplications,
    /// The proxies enrolled for each service, whether or not policy defines it.
    proxies: OrdMap<ServiceName, Records>,
}

impl Snapshot {
    /// Derives a snapshot from inputs alone. `tcp_accesses` are the callers of TCP service ports before it.
    ///
    /// An endpoint is a participant if exactly one proxy of its service matches it, by key or else by address, and
    /// has ACKed the service port (docs/concepts/traffic.md). If a permissive service queries a provider, callers
    /// dial the provider's other endpoints in plaintext. They use no endpoint of a drained service.
    pub fn assemble(inputs: Inputs, tcp_accesses: TcpAccesses) -> Self {
        let before = Self {
            mesh: inputs.mesh.clone(),
            mode: inputs.mode,
            egress: inputs.egress,
            specification: Arc::default(),
            certificates: OrdMap::new(),
            trust_bundle: Arc::clone(&inputs.trust_bundle),
            revoked_callers: Arc::default(),
            grants: Grants::default(),
            tcp_accesses,
            ingress_rules: IngressRules::new(),
            endpoints: OrdMap::new(),
            local_endpoints: OrdMap::new(),
            ports_without_endpoints: OrdSet::new(),
            findings: OrdMap::new(),
            localities: OrdMap::new(),
            discovered: Discovered::default(),
            records: Records::new(),
            revoked: Records::new(),
            leaving: LeavingProxies::new(),
            health: ReportedApplications::new(),
            proxies: OrdMap::new(),
        };
        before.revise(inputs)
    }

    /// The findings: endpoints without traffic, and identities that no caller can have.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let of_endpoints = self.findings.values().flat_map(|findings| findings.iter());
        self.identity_findings().chain(of_endpoints)
    }

    /// The findings about identities that no caller can have.
    pub fn identity_findings(&self) -> impl Iterator<Item = &Finding> {
        self.grants.findings()
    }

    /// The findings about the endpoints of each service that has any.
    pub fn endpoint_findings(&self) -> &OrdMap<ServiceName, Arc<[Finding]>> {
        &self.findings
    }

    /// The findings about the endpoints of a service: no traffic, or plaintext.
    pub fn findings_of(&self, service: &ServiceName) -> &[Finding] {
        self.findings.get(service).map_or(&[], |findings| findings)
    }

    /// Its inputs, from which a modified snapshot can be derived.
    pub fn inputs(&self) -> Inputs {
        Inputs {
            mesh: self.mesh.clone(),
            mode: self.mode,
            egress: self.egress,
            specification: Arc::clone(&self.specification),
            discovered: self.discovered.clone(),
            records: self.records.clone(),
            revoked: self.revoked.clone(),
            leaving: self.leaving.clone(),
            health: self.health.clone(),
            certificates: self.certificates.clone(),
            trust_bundle: Arc::clone(&self.trust_bundle),
            revoked_callers: Arc::clone(&self.revoked_callers),
        }
    }

    /// The labels of the endpoints and proxies of a service, with who set each.
    fn labels_of(&self, service: &ServiceName) -> ServiceLabels {
        let endpoints = self.discovered.0.get(service).map_or(&[][..], |known| known.as_slice());
        ServiceLabels::new(endpoints, &ProxyIndex::of(self.proxies_of(service).cloned()))
    }

    /// The addresses from which a service may call an ingress: those of static endpoints, and those of its proxies
    /// with a claimed certificate. Endpoints of Consul and Azure do not count, because anyone with write access
    /// there could grant ingress.
    fn addresses_of(&self, name: &ServiceName) -> BTreeSet<IpAddr> {
        let Some(service) = self.service(name) else { return BTreeSet::new() };
        let classifier = self.classifier(service);
        let known = self.discovered.0.get(service.served_as());
        let endpoints = known.map_or(&[][..], |known| known.as_slice()).iter();
        let is_listed = |endpoint: &&Endpoint| {
            endpoint.provider == Provider::Static && endpoint.exclusion.is_none()
        };
        let listed = endpoints.filter(is_listed);
        let claimed = classifier.proxies.all().filter(|record| record.claimed_at.is_some());
        let enrolled = claimed.map(|record| record.mesh_address.ip());
        listed.map(|endpoint| endpoint.address).chain(enrolled).collect()
    }

    /// The service of that name, if policy defines it.
    pub fn service(&self, name: &ServiceName) -> Option<&Arc<Service>> {
        self.specification.services.get(name)
    }

    /// The port as which proxies serve a service port: the same port, or for a subset that of its service.
    pub fn served_port(&self, port: &ServicePort) -> ServicePort {
        let service =
            self.service(&port.service).map_or(&port.service, |service| service.served_as());
        ServicePort::new(service.clone(), port.port)
    }

    /// The join record of a proxy.
    pub fn record(&self, id: ProxyId) -> Option<&Arc<JoinRecord>> {
        self.records.get(&id)
    }

    /// The number of enrolled proxies.
    pub fn proxy_count(&self) -> usize {
        self.records.len()
    }

    /// The proxies enrolled for a service.
    pub fn proxies_of(&self, service: &ServiceName) -> impl Iterator<Item = &Arc<JoinRecord>> {
        self.proxies.get(service).into_iter().flat_map(|records| records.values())
    }

    /// The proxies that serve other services than in an earlier snapshot, because an operator changed their join records.
    pub fn proxies_with_other_services<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = ProxyId> + 'a {
        earlier.records.diff(&self.records).filter_map(|item| match item {
            DiffItem::Update { old: (id, old), new: (_, new) } => {
                (old.services != new.services).then_some(*id)
            }
            DiffItem::Add(..) | DiffItem::Remove(..) => None,
        })
    }

    /// The endpoint classifier of a service.
    fn classifier<'a>(&self, service: &'a Service) -> EndpointClassifier<'a> {
        let served = service.served_as();
        let is_external = service.external.is_some();
        let (proxies, revoked) = if is_external {
            Default::default()
        } else {
            let is_of_service = |record: &&Arc<JoinRecord>| record.services.contains(served);
            let revoked = self.revoked.values().filter(is_of_service).cloned();
            (ProxyIndex::of(self.proxies_of(served).cloned()), ProxyIndex::of(revoked))
        };
        let whole = self.service(served);
        let queried = whole.and_then(|whole| whole.endpoints.providers());
        EndpointClassifier {
            service,
            is_drained: service.drained || whole.is_some_and(|whole| whole.drained),
            providers: queried.into_iter().flat_map(Providers::external).collect(),
            takes_plaintext: is_external || self.has_plaintext(service),
            proxies,
            revoked,
            leaving: self.leaving.clone(),
            health: ApplicationsOfService::new(service, whole, &self.health),
        }
    }

    /// Whether callers may dial endpoints of a service of the mesh in plaintext: it is permissive, and policy lists
    /// its endpoints or queries a provider for them. A tag on an endpoint does not suffice.
    pub fn has_plaintext(&self, service: &Service) -> bool {
        let whole = self.service(service.served_as());
        self.mode_of(service).allows_all()
            && whole.is_some_and(|whole| !whole.endpoints.is_registered())
    }

    /// Whether egress is `passthrough` for accounts of `namespace`.
    pub fn passes_through(&self, namespace: &Name) -> bool {
        self.specification.egress_of(namespace, self.egress) == EgressMode::Passthrough
    }

    /// The mode of `service`.
    pub fn mode_of(&self, service: &Service) -> Mode {
        self.specification.mode_of(service, self.mode)
    }

    /// The accounts for which certificates are needed: those of the services that proxies serve.
    pub fn accounts_served(
        specification: &MeshSpecification,
        records: &Records,
    ) -> BTreeSet<ServiceAccount> {
        let services = records.values().flat_map(|record| &record.services);
        services
            .filter_map(|name| Some(specification.services.get(name)?.account.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
