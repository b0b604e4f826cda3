//! What a snapshot derives for one service: its endpoints, those of each proxy, and its findings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::classifier::EndpointClassifier;
use super::hosts::{Distinct, Hosts};
use super::{Snapshot, outages};
use crate::endpoint::Endpoint;
use crate::name::{ServiceName, ServicePort};
use crate::proxy::{JoinRecord, ProxyId};
use crate::service::Port;

impl Snapshot {
    /// Removes what this snapshot derived for a service from `next`, which is derived from it.
    pub(super) fn remove_service(&self, name: &ServiceName, next: &mut Self) {
        next.findings.remove(name);
        let Some(service) = self.service(name) else { return };
        for (service_port, _) in service.service_ports() {
            next.endpoints.remove(&service_port);
            next.ports_without_endpoints.remove(&service_port);
            for record in self.proxies_of(name) {
                next.local_endpoints.remove(&(record.id, service_port.clone()));
            }
        }
    }

    /// Derives the endpoints and findings of a service.
    pub(super) fn add_service(&mut self, name: &ServiceName) {
        let Some(service) = self.service(name).cloned() else { return };
        let known = self.discovered.0.get(name).cloned();
        let classifier = self.classifier(&service);
        let mut findings = classifier.findings(known.as_ref().map(|known| known.as_slice()));
        let setting = self.localities.get(name).zip(known.as_ref());
        findings.extend(
            setting.and_then(|(setting, known)| classifier.unmatched_localities(setting, known)),
        );
        findings.extend(known.as_ref().and_then(|known| classifier.failing_applications(known)));
        if !findings.is_empty() {
            self.findings.insert(name.clone(), findings.into());
        }
        for (service_port, port) in service.service_ports() {
            self.add_service_port(
                &service_port,
                port,
                &classifier,
                known.as_ref().map_or(&[], |known| known),
            );
        }
    }

    /// Derives the endpoints of one service port: through their proxies, or in plaintext.
    fn add_service_port(
        &mut self,
        service_port: &ServicePort,
        port: &Port,
        classifier: &EndpointClassifier<'_>,
        endpoints: &[Endpoint],
    ) {
        // The applications of each proxy by port, and those that callers use.
        let mut backends: BTreeMap<ProxyId, ProxyBackends<'_>> = BTreeMap::new();
        let mut in_plaintext: Distinct<'_, SocketAddr> = Distinct::default();
        let mut leaving_in_plaintext: BTreeSet<SocketAddr> = BTreeSet::new();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.exclusion.is_none()) {
            let target = classifier.target(endpoint, port);
            let proxy_match = classifier.proxy_match(endpoint);
            let mut participates = false;
            let records = proxy_match.proxies();
            let is_leaving = classifier.leaving_since(records).is_some();
            for record in records {
                let backends =
                    backends.entry(record.id).or_insert_with(|| ProxyBackends::new(record));
                backends.all.insert(target, endpoint);
                backends.is_leaving |= is_leaving;
                participates |= classifier.participates(endpoint, record, port.number);
            }
            for record in classifier.participants(endpoint, records, port) {
                if let Some(backends) = backends.get_mut(&record.id) {
                    backends.active.insert(target, endpoint);
                    let is_failing = classifier.health.is_failing(record.id, port.number, target);
                    backends.failing.extend(is_failing.then_some(target));
                }
            }
            if !participates && classifier.is_called_in_plaintext(endpoint, proxy_match) {
                let address = SocketAddr::new(endpoint.address, target);
                in_plaintext.insert(address, endpoint);
                leaving_in_plaintext.extend(is_leaving.then_some(address));
            }
        }
        let mut hosts = Hosts::default();
        for host in in_plaintext.in_plaintext() {
            let is_leaving = leaving_in_plaintext.contains(&host.address);
            hosts.insert(if is_leaving { host.drained() } else { host });
        }
        for (id, backends) in backends {
            if !backends.active.is_empty() {
                let (address, failing) = (backends.record.mesh_address, &backends.failing);
                let host = backends.active.merged(address, failing);
                let host = host.or_in(&backends.record.locality);
                hosts.insert(if backends.is_leaving { host.drained() } else { host });
            }
            if !classifier.service.is_subset() {
                let applications = Arc::new(backends.all.applications());
                self.local_endpoints.insert((id, service_port.clone()), applications);
            }
        }
        let hosts = if classifier.is_drained { Vec::new() } else { hosts.into_sorted() };
        let needs_endpoints =
            !classifier.is_drained && outages::has_known_endpoints(classifier.service);
        if needs_endpoints && !outages::are_available(&hosts) {
            self.ports_without_endpoints.insert(service_port.clone());
        }
        self.endpoints.insert(service_port.clone(), Arc::new(hosts));
    }
}

/// The applications of one proxy, by port.
struct ProxyBackends<'a> {
    record: &'a JoinRecord,
    all: Distinct<'a, u16>,
    /// Those that callers use.
    active: Distinct<'a, u16>,
    /// The ports of the applications among them that fail their health check.
    failing: BTreeSet<u16>,
    /// Whether the proxy leaves the mesh. It goes on serving what arrives.
    is_leaving: bool,
}

impl<'a> ProxyBackends<'a> {
    fn new(record: &'a JoinRecord) -> Self {
        Self {
            record,
            all: Distinct::default(),
            active: Distinct::default(),
            failing: BTreeSet::new(),
            is_leaving: false,
        }
    }
}
