//! The snapshot: one moment of the mesh, immutable and structurally shared. Everything that a proxy
//! is sent is a pure function of a snapshot and of the proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use imbl::OrdMap;

use crate::access::{TcpAccesses, tcp_accesses};
use crate::certificate::{ServiceCertificate, TrustBundle};
use crate::endpoint::{Discovered, Endpoint, MeshEndpoint, Transport};
use crate::finding::{Code, Finding};
use crate::identity::TrustDomain;
use crate::name::{Domain, ServiceAccount, ServiceName, ServicePort};
use crate::proxy::{JoinRecord, ProxyId};
use crate::service::{Mode, Service};
use crate::specification::MeshSpecification;

/// What a mesh is called. Fixed at its first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    /// Below which its services have hostnames.
    pub domain: Domain,
    /// The root of its identities.
    pub trust_domain: TrustDomain,
}

/// The applications behind a proxy that serve one service port: where each listens, and its weight.
pub type Applications = Vec<(u16, u32)>;

/// One moment of the mesh.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The mesh.
    pub mesh: Mesh,
    /// What becomes of calls that no policy allows, where a service does not say.
    pub mode: Mode,
    /// What the operators say.
    pub specification: Arc<MeshSpecification>,
    /// Who may connect to each TCP service port.
    pub tcp_accesses: TcpAccesses,
    /// Where each service port is dialled: the participants, and of permissive services the rest.
    /// Sorted by address.
    pub endpoints: OrdMap<ServicePort, Arc<Vec<MeshEndpoint>>>,
    /// Where the applications behind a proxy listen: port and weight, sorted.
    pub local_endpoints: OrdMap<(ProxyId, ServicePort), Arc<Applications>>,
    /// The certificate of each account that a proxy serves.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// What peers are checked against.
    pub trust_bundle: Arc<TrustBundle>,
    /// Endpoints that get no traffic, and why.
    pub findings: Vec<Finding>,
}

/// An endpoint in front of which there is no proxy.
const ENDPOINT_WITHOUT_PROXY: Code = Code(404);

/// An endpoint in front of which there may be several proxies.
const ENDPOINT_WITH_SEVERAL_PROXIES: Code = Code(405);

/// What a snapshot is made of.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The mesh.
    pub mesh: Mesh,
    /// What becomes of calls that no policy allows, where a service does not say.
    pub mode: Mode,
    /// What the operators say.
    pub specification: Arc<MeshSpecification>,
    /// Where processes are.
    pub discovered: &'a Discovered,
    /// Who has joined.
    pub proxies: &'a [JoinRecord],
    /// The certificates of accounts.
    pub certificates: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// What peers are checked against.
    pub trust_bundle: Arc<TrustBundle>,
    /// Who might connect to TCP service ports in the snapshot before.
    pub tcp_accesses: &'a TcpAccesses,
}

impl Snapshot {
    /// Puts the parts together: who of the discovered takes part, and where it is dialled.
    ///
    /// An endpoint takes part when a proxy that joined as its service stands in front of it, by key
    /// or else by address, and has the service port in force ("participant", docs/concepts/traffic.md). None or
    /// several such proxies: no participant. Of a permissive service, endpoints that a provider has
    /// found and that take no part are dialled in plaintext.
    pub fn assemble(inputs: Inputs<'_>) -> Self {
        let Inputs { specification, discovered, proxies, .. } = inputs;
        let mut by_service: BTreeMap<&ServiceName, Vec<&JoinRecord>> = BTreeMap::new();
        for record in proxies {
            for service in &record.services {
                by_service.entry(service).or_default().push(record);
            }
        }
        let mut snapshot = Self {
            mesh: inputs.mesh,
            mode: inputs.mode,
            tcp_accesses: tcp_accesses(&specification, inputs.mode, inputs.tcp_accesses),
            specification: Arc::clone(&specification),
            endpoints: OrdMap::new(),
            local_endpoints: OrdMap::new(),
            certificates: inputs.certificates,
            trust_bundle: inputs.trust_bundle,
            findings: Vec::new(),
        };
        let none = Arc::default();
        for (name, service) in &specification.services {
            let endpoints = discovered.0.get(name).unwrap_or(&none);
            let records = by_service.get(name).map_or(&[][..], Vec::as_slice);
            snapshot.place(service, endpoints, records);
            let mode = snapshot.mode_of(service);
            let misplaced = |endpoint| misplaced(name, mode, endpoint, records);
            snapshot.findings.extend(endpoints.iter().filter_map(misplaced));
        }
        snapshot
    }

    /// What becomes of calls of `service` that no policy allows.
    pub fn mode_of(&self, service: &Service) -> Mode {
        service.mode.unwrap_or(self.mode)
    }

    /// Places the endpoints of one service: behind their proxies, or in plaintext.
    fn place(&mut self, service: &Service, endpoints: &[Endpoint], records: &[&JoinRecord]) {
        for (service_port, port) in service.service_ports() {
            // Proxies that serve it, with what is behind each: port of the application → weight.
            let mut behind: BTreeMap<ProxyId, (&JoinRecord, BTreeMap<u16, u32>)> = BTreeMap::new();
            let mut dialled: BTreeMap<SocketAddr, (Transport, u32)> = BTreeMap::new();
            for endpoint in endpoints {
                let target = endpoint.port.unwrap_or(port.target);
                let mut takes_part = false;
                for record in proxies_of(endpoint, records) {
                    let (_, ports) = behind.entry(record.id).or_insert((record, BTreeMap::new()));
                    let weight = ports.entry(target).or_insert(0);
                    *weight = weight.saturating_add(endpoint.weight);
                    takes_part |= has_in_force(record, &service_port);
                }
                // One that is known by its proxy alone may have an application that nobody else reaches.
                let is_reachable = endpoint.proxy.is_none();
                if !takes_part && is_reachable && self.mode_of(service) == Mode::Permissive {
                    let address = SocketAddr::new(endpoint.address, target);
                    let (_, weight) = dialled.entry(address).or_insert((Transport::Plaintext, 0));
                    *weight = weight.saturating_add(endpoint.weight);
                }
            }
            for (id, (record, ports)) in behind {
                if has_in_force(record, &service_port) {
                    let sum =
                        ports.values().fold(0, |sum: u32, weight| sum.saturating_add(*weight));
                    // Records at one address are one proxy that joined again: it counts once.
                    let proxied =
                        dialled.entry(record.mesh_address).or_insert((Transport::MutualTls, 1));
                    *proxied = (Transport::MutualTls, proxied.1.max(sum));
                }
                let local = Arc::new(ports.into_iter().collect());
                self.local_endpoints.insert((id, service_port.clone()), local);
            }
            let dialled = dialled.into_iter().map(|(address, (transport, weight))| MeshEndpoint {
                address,
                transport,
                weight,
            });
            self.endpoints.insert(service_port, Arc::new(dialled.collect()));
        }
    }

    /// The accounts for which certificates are needed: those of the services that proxies serve.
    pub fn accounts_served<'a>(
        specification: &MeshSpecification,
        proxies: impl IntoIterator<Item = &'a JoinRecord>,
    ) -> BTreeSet<ServiceAccount> {
        let services = proxies.into_iter().flat_map(|record| &record.services);
        services
            .filter_map(|name| Some(specification.services.get(name)?.account.clone()))
            .collect()
    }
}

/// The proxies in front of an endpoint: the one that the provider names, else those that joined with
/// its address. Several of these are one proxy that joined again, if they agree on where they are
/// dialled; if not, nobody can say which of them it is, and it is none.
fn proxies_of<'a>(endpoint: &Endpoint, records: &[&'a JoinRecord]) -> Vec<&'a JoinRecord> {
    let candidates = candidates(endpoint, records);
    let addresses: BTreeSet<_> = candidates.iter().map(|record| record.mesh_address).collect();
    if addresses.len() > 1 { Vec::new() } else { candidates }
}

fn has_in_force(record: &JoinRecord, port: &ServicePort) -> bool {
    record.participation.0.contains(&(port.service.clone(), port.port))
}

fn candidates<'a>(endpoint: &Endpoint, records: &[&'a JoinRecord]) -> Vec<&'a JoinRecord> {
    let is_candidate = |record: &&&JoinRecord| match endpoint.proxy {
        Some(id) => record.id == id,
        None => record.mesh_address.ip() == endpoint.address,
    };
    records.iter().filter(is_candidate).copied().collect()
}

fn misplaced(
    service: &ServiceName,
    mode: Mode,
    endpoint: &Endpoint,
    records: &[&JoinRecord],
) -> Option<Finding> {
    if !proxies_of(endpoint, records).is_empty() {
        return None;
    }
    let address = endpoint.address;
    let what = match mode {
        Mode::Permissive if endpoint.proxy.is_none() => "is called in plaintext",
        Mode::Permissive | Mode::Strict => "gets no traffic",
    };
    let message = format!("endpoint {address} of service `{service}` {what}:");
    let candidates: Vec<_> =
        candidates(endpoint, records).iter().map(|record| record.id.to_string()).collect();
    if candidates.is_empty() {
        let message = format!("{message} no proxy joined as this service at its address");
        let help = format!(
            "let one in: `ironmesh proxy bootstrap --service {service} --address {address} …`"
        );
        return Some(Finding::warning(ENDPOINT_WITHOUT_PROXY, None, message).help(help));
    }
    let candidates = candidates.join(", ");
    let message =
        format!("{message} several proxies joined as this service at its address: {candidates}");
    Some(Finding::warning(ENDPOINT_WITH_SEVERAL_PROXIES, None, message))
}

#[cfg(test)]
mod tests;
