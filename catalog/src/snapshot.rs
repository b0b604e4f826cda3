//! The snapshot: one moment of the mesh, immutable and structurally shared. Everything that a proxy
//! is sent is a pure function of a snapshot and of the proxy.

mod classifier;
mod endpoint_status;
mod excluded;
mod hosts;
mod localities;
mod misplaced;
mod outages;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, OrdSet};

use crate::access::{TcpAccesses, tcp_accesses};
use crate::certificate::{ServiceCertificate, TrustBundle};
use crate::endpoint::{Application, Discovered, Endpoint, MeshEndpoint, Provider};
use crate::finding::Finding;
use crate::grants::{GrantInputs, Grants};
use crate::identity::TrustDomain;
use crate::ingress::{self, IngressRules};
use crate::name::{Domain, Name, ServiceAccount, ServiceName, ServicePort};
use crate::policy::{EgressMode, Level, UpstreamTrafficSetting};
use crate::proxy::{JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::service::{Mode, Port, Service};
use crate::service_labels::ServiceLabels;
use crate::specification::MeshSpecification;
use classifier::EndpointClassifier;
use hosts::{Distinct, Hosts};

pub use endpoint_status::{EndpointStatus, ExclusionReason, State};

/// What a mesh is called. Fixed at its first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    /// Below which its services have hostnames.
    pub domain: Domain,
    /// The root of its identities.
    pub trust_domain: TrustDomain,
}

/// The join records of all proxies that are or may yet be there.
pub type Records = OrdMap<ProxyId, Arc<JoinRecord>>;

/// Whether both have the same proxies, however far each has come. It costs as much as differs between
/// two that descend from each other.
pub fn have_same_members(one: &Records, other: &Records) -> bool {
    one.diff(other).all(|item| matches!(item, DiffItem::Update { .. }))
}

/// What a snapshot is made of. A copy costs nothing.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The mesh.
    pub mesh: Mesh,
    /// What becomes of calls that no policy allows, where a service does not say.
    pub mode: Mode,
    /// What becomes of calls to the outside that no policy allows, where a namespace does not say.
    pub egress: EgressMode,
    /// What the operators say.
    pub specification: Arc<MeshSpecification>,
    /// Where processes are.
    pub discovered: Discovered,
    /// Who has joined.
    pub records: Records,
    /// Whom an operator has shut out: where they are, nobody is called, in plaintext either.
    pub revoked: Records,
    /// The certificate of each account that a proxy serves.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// What peers are checked against.
    pub trust_bundle: Arc<TrustBundle>,
}

/// One moment of the mesh: what it is made of, and what follows from that. Snapshots that descend from each
/// other share all that has not changed between them.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The mesh.
    pub mesh: Mesh,
    /// What becomes of calls that no policy allows, where a service does not say.
    pub mode: Mode,
    /// What becomes of calls to the outside that no policy allows, where a namespace does not say.
    pub egress: EgressMode,
    /// What the operators say.
    pub specification: Arc<MeshSpecification>,
    /// The certificate of each account that a proxy serves.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// What peers are checked against.
    pub trust_bundle: Arc<TrustBundle>,
    /// Who may call whom, by traffic target.
    pub grants: Grants,
    /// Who may connect to each TCP service port.
    pub tcp_accesses: TcpAccesses,
    /// Who may call service ports from outside of the mesh.
    pub ways_in: IngressRules,
    /// Where each service port is dialled: the participants, and of permissive services the rest.
    /// Sorted by address.
    pub endpoints: OrdMap<ServicePort, Arc<Vec<MeshEndpoint>>>,
    /// The applications behind a proxy that serve one service port, by the ports on which they listen.
    pub local_endpoints: OrdMap<(ProxyId, ServicePort), Arc<Vec<Application>>>,
    /// The service ports that no endpoint takes calls for, though they are not meant to be empty.
    deserted: OrdSet<ServicePort>,
    /// Endpoints that get no traffic, and why.
    findings: OrdMap<ServiceName, Arc<[Finding]>>,
    /// The objects that say of one service whom callers call first by where both are.
    localities: OrdMap<ServiceName, Arc<UpstreamTrafficSetting>>,
    discovered: Discovered,
    records: Records,
    revoked: Records,
    /// Who has joined as each service, whether or not policy defines it.
    joined: OrdMap<ServiceName, Records>,
}

impl Snapshot {
    /// Puts the parts together: who of the discovered takes part, and where it is dialled.
    /// `tcp_accesses` says who might connect to TCP service ports before.
    ///
    /// An endpoint takes part when a proxy that joined as its service stands in front of it, by key
    /// or else by address, and has the service port in force ("participant", docs/concepts/traffic.md). None or
    /// several such proxies: no participant. Of a permissive service that asks a provider, endpoints that
    /// this has found and that take no part are dialled in plaintext. Of a drained one nobody is dialled.
    pub fn assemble(inputs: Inputs, tcp_accesses: TcpAccesses) -> Self {
        let before = Self {
            mesh: inputs.mesh.clone(),
            mode: inputs.mode,
            egress: inputs.egress,
            specification: Arc::default(),
            certificates: OrdMap::new(),
            trust_bundle: Arc::clone(&inputs.trust_bundle),
            grants: Grants::default(),
            tcp_accesses,
            ways_in: IngressRules::new(),
            endpoints: OrdMap::new(),
            local_endpoints: OrdMap::new(),
            deserted: OrdSet::new(),
            findings: OrdMap::new(),
            localities: OrdMap::new(),
            discovered: Discovered::default(),
            records: Records::new(),
            revoked: Records::new(),
            joined: OrdMap::new(),
        };
        before.revise(inputs)
    }

    /// The next moment. It costs as much as has changed (invariant 5), and is the same as if it were
    /// assembled from nothing.
    #[must_use]
    pub fn revise(&self, inputs: Inputs) -> Self {
        let mut changed: BTreeSet<ServiceName> = BTreeSet::new();
        let mut joined = self.joined.clone();
        for item in self.records.diff(&inputs.records) {
            let (before, after) = match item {
                DiffItem::Add(_, after) => (None, Some(after)),
                DiffItem::Remove(_, before) => (Some(before), None),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
            };
            if let Some(record) = before {
                leave(&mut joined, record);
                changed.extend(record.services.iter().cloned());
            }
            if let Some(record) = after {
                join(&mut joined, record);
                changed.extend(record.services.iter().cloned());
            }
        }
        for item in self.revoked.diff(&inputs.revoked) {
            let (DiffItem::Add(_, record)
            | DiffItem::Remove(_, record)
            | DiffItem::Update { new: (_, record), .. }) = item;
            changed.extend(record.services.iter().cloned());
        }
        changed.extend(self.discovered.0.diff(&inputs.discovered.0).map(|item| key(&item)));
        let services = &inputs.specification.services;
        let is_same_value = Arc::ptr_eq(&self.specification, &inputs.specification);
        if !is_same_value {
            changed.extend(self.specification.services.diff(services).map(|item| key(&item)));
        }
        let settings = &inputs.specification.upstream_traffic_settings;
        let localities = if settings.ptr_eq(&self.specification.upstream_traffic_settings) {
            self.localities.clone()
        } else {
            localities(settings)
        };
        changed.extend(self.localities.diff(&localities).map(|item| key(&item)));
        if self.mode != inputs.mode
            || self.specification.namespaces != inputs.specification.namespaces
        {
            changed.extend(services.keys().cloned());
        }
        // What becomes of a service's proxies becomes of its parts.
        let subsets = |name| services.get(name).map_or(&[][..], |known| known.subsets.as_slice());
        let of_changed: Vec<_> = changed.iter().flat_map(subsets).cloned().collect();
        changed.extend(of_changed);
        let same_policy =
            is_same_value || self.specification.differs_in_endpoints_only(&inputs.specification);
        let mut snapshot = Self {
            mesh: inputs.mesh,
            mode: inputs.mode,
            egress: inputs.egress,
            specification: inputs.specification,
            certificates: inputs.certificates,
            trust_bundle: inputs.trust_bundle,
            grants: self.grants.clone(),
            tcp_accesses: self.tcp_accesses.clone(),
            ways_in: self.ways_in.clone(),
            endpoints: self.endpoints.clone(),
            local_endpoints: self.local_endpoints.clone(),
            deserted: self.deserted.clone(),
            findings: self.findings.clone(),
            localities,
            discovered: inputs.discovered,
            records: inputs.records,
            revoked: inputs.revoked,
            joined,
        };
        for name in &changed {
            self.displace(name, &mut snapshot);
            snapshot.place(name);
        }
        snapshot.grants = {
            let inputs = GrantInputs {
                specification: &snapshot.specification,
                trust_domain: &snapshot.mesh.trust_domain,
                labels_of: &|service| snapshot.labels_of(service),
            };
            if same_policy {
                self.grants.follow(&inputs, &changed)
            } else {
                self.grants.resolve(&inputs, &changed)
            }
        };
        if !same_policy || ingress::are_about(&snapshot.specification, &changed) {
            let addresses_of = |service: &ServiceName| snapshot.addresses_of(service);
            snapshot.ways_in =
                ingress::ways_in(&snapshot.specification, addresses_of, &self.ways_in);
        }
        let same_grants = same_policy && snapshot.grants.are_same_as(&self.grants);
        if !same_grants || snapshot.mode != self.mode {
            let (specification, mode) = (&snapshot.specification, snapshot.mode);
            let before = &self.tcp_accesses;
            snapshot.tcp_accesses = tcp_accesses(specification, &snapshot.grants, mode, before);
        }
        snapshot
    }

    /// What is wrong: endpoints that get no traffic, and identities that are nobody's.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let of_endpoints = self.findings.values().flat_map(|findings| findings.iter());
        self.grants.findings().chain(of_endpoints)
    }

    /// The endpoints of a service that get no traffic, and why; or those that are called in plaintext.
    pub fn findings_of(&self, service: &ServiceName) -> &[Finding] {
        self.findings.get(service).map_or(&[], |findings| findings)
    }

    /// What it is made of: of which another moment can be made, with something else in it.
    pub fn inputs(&self) -> Inputs {
        Inputs {
            mesh: self.mesh.clone(),
            mode: self.mode,
            egress: self.egress,
            specification: Arc::clone(&self.specification),
            discovered: self.discovered.clone(),
            records: self.records.clone(),
            revoked: self.revoked.clone(),
            certificates: self.certificates.clone(),
            trust_bundle: Arc::clone(&self.trust_bundle),
        }
    }

    /// The labels of the endpoints and proxies of a service, with who set each.
    fn labels_of(&self, service: &ServiceName) -> ServiceLabels {
        let endpoints = self.discovered.0.get(service).map_or(&[][..], |known| known.as_slice());
        ServiceLabels::new(endpoints, &ProxyIndex::of(self.joined_as(service).cloned()))
    }

    /// The addresses that a service may call an ingress from: those of endpoints that policy lists, and those
    /// of proxies that joined as it and have claimed their certificates. What Consul or Azure finds is left
    /// out, because anyone who may register there would choose who is let in.
    fn addresses_of(&self, name: &ServiceName) -> BTreeSet<IpAddr> {
        let Some(service) = self.service(name) else { return BTreeSet::new() };
        let judge = self.judge(service);
        let known = self.discovered.0.get(service.served_as());
        let endpoints = known.map_or(&[][..], |known| known.as_slice()).iter();
        let is_listed = |endpoint: &&Endpoint| {
            endpoint.provider == Provider::Static && endpoint.exclusion.is_none()
        };
        let listed = endpoints.filter(is_listed);
        let claimed = judge.in_front.all().filter(|record| record.claimed_at.is_some());
        let joined = claimed.map(|record| record.mesh_address.ip());
        listed.map(|endpoint| endpoint.address).chain(joined).collect()
    }

    /// The service of that name, if policy defines it.
    pub fn service(&self, name: &ServiceName) -> Option<&Arc<Service>> {
        self.specification.services.get(name)
    }

    /// The port as which proxies serve a service port: the same, or that of the service of which it is a
    /// part.
    pub fn served_port(&self, port: &ServicePort) -> ServicePort {
        let service =
            self.service(&port.service).map_or(&port.service, |service| service.served_as());
        ServicePort::new(service.clone(), port.port)
    }

    /// What a proxy joined as, and how far it has come.
    pub fn record(&self, id: ProxyId) -> Option<&Arc<JoinRecord>> {
        self.records.get(&id)
    }

    /// Who has joined as a service.
    pub fn joined_as(&self, service: &ServiceName) -> impl Iterator<Item = &Arc<JoinRecord>> {
        self.joined.get(service).into_iter().flat_map(|records| records.values())
    }

    /// Takes out of `next`, which descends from this one, what this one says of a service.
    fn displace(&self, name: &ServiceName, next: &mut Self) {
        next.findings.remove(name);
        let Some(service) = self.service(name) else { return };
        for (service_port, _) in service.service_ports() {
            next.endpoints.remove(&service_port);
            next.deserted.remove(&service_port);
            for record in self.joined_as(name) {
                next.local_endpoints.remove(&(record.id, service_port.clone()));
            }
        }
    }

    /// Places the endpoints of a service, and tells which have no place.
    fn place(&mut self, name: &ServiceName) {
        let Some(service) = self.service(name).cloned() else { return };
        let known = self.discovered.0.get(name).cloned();
        let judge = self.judge(&service);
        let mut findings = judge.findings(known.as_ref().map(|known| known.as_slice()));
        let setting = self.localities.get(name).zip(known.as_ref());
        findings.extend(setting.and_then(|(setting, known)| judge.nowhere(setting, known)));
        if !findings.is_empty() {
            self.findings.insert(name.clone(), findings.into());
        }
        for (service_port, port) in service.service_ports() {
            self.place_port(&service_port, port, &judge, known.as_ref().map_or(&[], |known| known));
        }
    }

    /// What the endpoints of a service are judged by.
    fn judge<'a>(&self, service: &'a Service) -> EndpointClassifier<'a> {
        let served = service.served_as();
        let is_external = service.external.is_some();
        let (in_front, revoked) = if is_external {
            Default::default()
        } else {
            let has_stood = |record: &&Arc<JoinRecord>| record.services.contains(served);
            let revoked = self.revoked.values().filter(has_stood).cloned();
            (ProxyIndex::of(self.joined_as(served).cloned()), ProxyIndex::of(revoked))
        };
        let whole = self.service(served);
        let asked = whole.and_then(|whole| whole.endpoints.providers());
        let asks = |provider: &Provider| asked.is_some_and(|asked| asked.ask(*provider));
        EndpointClassifier {
            service,
            is_drained: service.drained || whole.is_some_and(|whole| whole.drained),
            asked: Provider::external().filter(asks).collect(),
            takes_plaintext: is_external || self.has_plaintext(service),
            in_front,
            revoked,
        }
    }

    /// Whether endpoints of a service of the mesh may be called in plaintext: it is permissive, and asks others
    /// than the proxies that joined. What is tagged as belonging to it without being asked for is no reason.
    pub fn has_plaintext(&self, service: &Service) -> bool {
        let whole = self.service(service.served_as());
        self.mode_of(service).lets_all_in()
            && whole.is_some_and(|whole| !whole.endpoints.is_registered())
    }

    /// Whether calls of accounts of `namespace` to the outside pass that no policy allows.
    pub fn passes_through(&self, namespace: &Name) -> bool {
        self.specification.egress_of(namespace, self.egress) == EgressMode::Passthrough
    }

    /// What becomes of calls of `service` that no policy allows.
    pub fn mode_of(&self, service: &Service) -> Mode {
        self.specification.mode_of(service, self.mode)
    }

    /// Places the endpoints of one service port: behind their proxies, or in plaintext.
    fn place_port(
        &mut self,
        service_port: &ServicePort,
        port: &Port,
        judge: &EndpointClassifier<'_>,
        endpoints: &[Endpoint],
    ) {
        // What is behind each proxy, by the ports of the applications, and what of it is called.
        let mut behind: BTreeMap<ProxyId, Behind<'_>> = BTreeMap::new();
        let mut in_plaintext: Distinct<'_, SocketAddr> = Distinct::default();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.exclusion.is_none()) {
            let target = judge.target(endpoint, port);
            let front = judge.front(endpoint);
            let mut takes_part = false;
            let records = front.proxies();
            for record in records {
                let behind = behind.entry(record.id).or_insert_with(|| Behind::new(record));
                behind.all.insert(target, endpoint);
                takes_part |= judge.takes_part(endpoint, record, port.number);
            }
            for record in judge.called(endpoint, records, port) {
                if let Some(behind) = behind.get_mut(&record.id) {
                    behind.called.insert(target, endpoint);
                }
            }
            if !takes_part && judge.is_called_in_plaintext(endpoint, front) {
                in_plaintext.insert(SocketAddr::new(endpoint.address, target), endpoint);
            }
        }
        let mut hosts = Hosts::default();
        in_plaintext.in_plaintext().for_each(|host| hosts.insert(host));
        for (id, behind) in behind {
            if !behind.called.is_empty() {
                let host = behind.called.together(behind.record.mesh_address);
                hosts.insert(host.or_in(&behind.record.locality));
            }
            if !judge.service.is_subset() {
                let applications = Arc::new(behind.all.applications());
                self.local_endpoints.insert((id, service_port.clone()), applications);
            }
        }
        let hosts = if judge.is_drained { Vec::new() } else { hosts.into_sorted() };
        let is_meant = !judge.is_drained && outages::has_known_endpoints(judge.service);
        if is_meant && !outages::take_calls(&hosts) {
            self.deserted.insert(service_port.clone());
        }
        self.endpoints.insert(service_port.clone(), Arc::new(hosts));
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

/// What is behind one proxy, by the port of the application.
struct Behind<'a> {
    record: &'a JoinRecord,
    all: Distinct<'a, u16>,
    /// That of it which is called there.
    called: Distinct<'a, u16>,
}

impl<'a> Behind<'a> {
    fn new(record: &'a JoinRecord) -> Self {
        Self { record, all: Distinct::default(), called: Distinct::default() }
    }
}

/// What differs between two maps, by key.
fn key<K: Clone, V>(item: &DiffItem<'_, '_, K, V>) -> K {
    match item {
        DiffItem::Add(key, _)
        | DiffItem::Remove(key, _)
        | DiffItem::Update { new: (key, _), .. } => (*key).clone(),
    }
}

/// The settings of one service that are about places.
fn localities(
    settings: &OrdMap<(Name, Name), Arc<UpstreamTrafficSetting>>,
) -> OrdMap<ServiceName, Arc<UpstreamTrafficSetting>> {
    let of_one = |setting: &Arc<UpstreamTrafficSetting>| match &setting.level {
        Level::Service(name) if setting.locality.is_some() => {
            Some((name.clone(), Arc::clone(setting)))
        }
        _ => None,
    };
    settings.values().filter_map(of_one).collect()
}

fn join(joined: &mut OrdMap<ServiceName, Records>, record: &Arc<JoinRecord>) {
    for service in &record.services {
        joined.entry(service.clone()).or_default().insert(record.id, Arc::clone(record));
    }
}

fn leave(joined: &mut OrdMap<ServiceName, Records>, record: &JoinRecord) {
    for service in &record.services {
        if let Some(records) = joined.get_mut(service) {
            records.remove(&record.id);
            if records.is_empty() {
                joined.remove(service);
            }
        }
    }
}

#[cfg(test)]
mod tests;
