//! Incremental compilation: what is compiled again between two snapshots, and which proxies that
//! affects.
//!
//! Endpoints take a short path, including those of lists in policy: a new assignment of a service
//! port is encoded once, and replaced in the scopes that contain it. A change of policy compiles
//! again what it touches ([`Touched`]), and compares the results: a proxy that shares no changed
//! resource is not affected.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{ProxyId, ServiceAccount, ServiceName, ServicePort, Snapshot};
use ironmesh_xds_wire::Resource;

use super::touched::{Differences, Touched, keys};
use super::{Scope, Shared};
use crate::index::PolicyIndex;
use crate::{revoked, secret};

/// The proxies affected by a new snapshot. Others would compile to what they have.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// All proxies.
    pub all_proxies: bool,
    /// The proxies whose calls use one of these accounts.
    pub accounts: BTreeSet<ServiceAccount>,
    /// The proxies that serve one of these services, or declare it as an upstream.
    pub services: BTreeSet<ServiceName>,
    /// Single proxies, whose applications listen elsewhere, that serve other services, or whose services have other
    /// upstreams.
    pub proxies: BTreeSet<ProxyId>,
    /// The new endpoints of a service port, for one locality, with the accounts whose proxies have
    /// them in some locality ([`Compiler::endpoints_of`]). Unless these are affected otherwise, the
    /// endpoints of this port are all that differs for them.
    ///
    /// [`Compiler::endpoints_of`]: crate::Compiler::endpoints_of
    pub endpoints: Vec<(Arc<Resource>, BTreeSet<ServiceAccount>)>,
}

impl Shared {
    /// Moves to `snapshot`.
    pub(crate) fn update(&mut self, snapshot: Arc<Snapshot>) -> Changes {
        let old = std::mem::replace(&mut self.snapshot, snapshot);
        let new = Arc::clone(&self.snapshot);
        let mut changes = Changes::default();
        let local = keys(&old.local_endpoints, &new.local_endpoints);
        changes.proxies.extend(local.into_iter().map(|(proxy, _)| proxy));
        changes.proxies.extend(new.proxies_with_other_services(&old));
        changes.proxies.extend(new.proxies_with_other_upstreams(&old));

        let touched = self.update_policy(&old);
        changes.services.extend(touched.services.iter().chain(&touched.telemetry_changed).cloned());
        changes.services.extend(touched.ingress_changed.iter().cloned());
        let same_trust = old.trust_bundle == new.trust_bundle;
        if !same_trust {
            self.trust_bundle = self.encoder.encode(&secret::trust_bundle(&new.trust_bundle));
            changes.all_proxies = true;
        }
        self.update_tcp_authorizations(&old, same_trust, &mut changes);
        let certificates = keys(&old.certificates, &new.certificates);
        for account in &certificates {
            self.certificates.remove(account);
            changes.services.extend(self.index.services_of(account).cloned());
        }
        if !certificates.is_empty() {
            let all = new.certificates.values();
            self.reissued.retain(&all.map(|one| one.history.reissues).collect());
        }
        self.forget_other_orders(&touched.services);
        self.update_endpoints(&old, &mut changes);
        let is_revocation = self.update_revoked(&old);
        self.update_inbound_routes(&touched, is_revocation, &mut changes);
        let is_stale = |account: &&ServiceAccount| {
            !same_trust
                || certificates.contains(*account)
                || touched.is_caller(account)
                || self.index.services_of(account).next().is_none()
        };
        let stale: Vec<_> = self.scopes.keys().filter(is_stale).cloned().collect();
        self.update_clusters(&touched);
        self.update_scopes(stale, &mut changes);
        self.update_upstream_routes(&touched, &mut changes);
        changes
    }

    /// Moves the index, and returns the effect of policy differences.
    fn update_policy(&mut self, old: &Snapshot) -> Touched {
        let new = &*self.snapshot;
        let differences = Differences::between(old, new);
        if differences.are_none() {
            self.index.follow(&new.specification);
            return Touched::default();
        }
        let before = std::mem::replace(&mut self.index, PolicyIndex::new(new));
        let telemetries = self.index.telemetries();
        self.collectors.retain(|collector, _| telemetries.use_collector(collector));
        differences.touch([(old, &before), (new, &self.index)])
    }

    /// Encodes the refusal of revoked callers again. Returns whether that changes inbound routes.
    fn update_revoked(&mut self, old: &Snapshot) -> bool {
        let (old, new) = (&old.revoked_callers, &self.snapshot.revoked_callers);
        let is_changed = !Arc::ptr_eq(old, new) && old.dns_names != new.dns_names;
        if is_changed {
            self.revoked = revoked::per_route(new);
        }
        is_changed
    }

    fn update_tcp_authorizations(
        &mut self,
        old: &Snapshot,
        same_trust: bool,
        changes: &mut Changes,
    ) {
        let new = &self.snapshot.tcp_accesses.ports;
        for port in keys(&old.tcp_accesses.ports, new) {
            self.tcp_authorizations.remove(&port);
            self.by_caller.forget(&port);
            changes.services.insert(port.service);
        }
        if !same_trust {
            self.tcp_authorizations.clear();
        }
        if old.revoked_callers.lists != self.snapshot.revoked_callers.lists {
            let ports = std::mem::take(&mut self.tcp_authorizations).into_keys();
            changes.services.extend(ports.map(|port| port.service));
        }
        let last_listed = &self.snapshot.revoked_callers.last_listed;
        let before = &old.revoked_callers.last_listed;
        if before != last_listed {
            let accounts = before.keys().chain(last_listed.keys());
            let differs = |one: &&ServiceAccount| before.get(*one) != last_listed.get(*one);
            let refused: Vec<_> = accounts.filter(differs).collect();
            for (port, access) in &self.snapshot.tcp_accesses.ports {
                if refused.iter().any(|account| access.named().contains(*account)) {
                    self.by_caller.forget(port);
                    changes.services.insert(port.service.clone());
                }
            }
        }
    }

    /// Encodes changed endpoints again, and replaces them in the scopes.
    fn update_endpoints(&mut self, old: &Snapshot, changes: &mut Changes) {
        let new = Arc::clone(&self.snapshot);
        for port in keys(&old.endpoints, &new.endpoints) {
            changes.endpoints.extend(self.renew_endpoints(&port));
        }
    }

    fn update_inbound_routes(
        &mut self,
        touched: &Touched,
        is_revocation: bool,
        changes: &mut Changes,
    ) {
        let is_stale =
            |port: &&ServicePort| is_revocation || touched.served.contains(&port.service);
        let stale: Vec<_> = self.inbound_routes.keys().filter(is_stale).cloned().collect();
        for port in stale {
            let Some(known) = self.inbound_routes.remove(&port) else { continue };
            let Some(service) = self.snapshot.service(&port.service).cloned() else { continue };
            if !service.port(port.port).is_some_and(|port| port.protocol.is_http()) {
                continue;
            }
            let resource = self.inbound_routes(&service, &port);
            if resource.version() == known.version() {
                self.inbound_routes.insert(port, known);
            } else {
                changes.services.insert(port.service);
            }
        }
    }

    /// Compiles stale clusters again. Unchanged ones keep their values.
    fn update_clusters(&mut self, touched: &Touched) {
        if touched.services.is_empty() {
            return;
        }
        let is_stale = |port: &&ServicePort| touched.services.contains(&port.service);
        let stale: Vec<_> = self.clusters.keys().filter(is_stale).cloned().collect();
        for service_port in stale {
            let Some(known) = self.clusters.remove(&service_port) else { continue };
            let service = self.snapshot.service(&service_port.service).cloned();
            let port = service.as_ref().and_then(|service| service.port(service_port.port));
            let Some((service, port)) = service.as_ref().zip(port) else {
                self.agent_fed.forget_cluster(&service_port);
                self.reissued.forget_cluster(&service_port);
                continue;
            };
            let cluster = self.cluster(service, port, &service_port);
            if cluster.version() == known.version() {
                self.clusters.insert(service_port, known);
            } else {
                self.agent_fed.forget_cluster(&service_port);
                self.reissued.forget_cluster(&service_port);
            }
        }
    }

    /// Compiles these scopes again. Unchanged resources keep their values.
    fn update_scopes(&mut self, accounts: Vec<ServiceAccount>, changes: &mut Changes) {
        for account in accounts {
            let Some(known) = self.scopes.remove(&account) else { continue };
            let destinations = known.callable.values();
            for port in destinations.flat_map(|destination| destination.service_ports()) {
                if let Some(accounts) = self.endpoint_accounts.get_mut(port) {
                    accounts.remove(&account);
                }
            }
            if self.index.services_of(&account).next().is_none() {
                // No service runs as this account any more; the removal of the service affects its
                // proxies.
                self.localized.remove(&account);
                self.agent_fed.forget_scope(&account);
                continue;
            }
            let compiled = self.compile_scope(&account);
            let is_same = compiled.resources.is_same_as(&known.resources)
                && compiled.callable == known.callable
                && compiled.by_host == known.by_host
                && compiled.egresses == known.egresses
                && compiled.passes_through == known.passes_through
                && compiled.by_locality == known.by_locality;
            let scope = if is_same {
                known
            } else {
                let resources = compiled.resources.sharing_with(&known.resources);
                self.localized.remove(&account);
                self.agent_fed.forget_scope(&account);
                changes.accounts.insert(account.clone());
                Arc::new(Scope { resources, ..compiled })
            };
            self.scopes.insert(account, scope);
        }
        self.endpoint_accounts.retain(|_, accounts| !accounts.is_empty());
    }

    /// Compiles stale routes of declared upstreams again. They follow from scopes and services.
    fn update_upstream_routes(&mut self, touched: &Touched, changes: &mut Changes) {
        let is_stale = |(account, port): &&(ServiceAccount, ServicePort)| {
            touched.is_caller(account)
                || touched.services.contains(&port.service)
                || !self.scopes.contains_key(account)
        };
        let stale: Vec<_> = self.upstream_routes.keys().filter(is_stale).cloned().collect();
        for key in stale {
            let Some(known) = self.upstream_routes.remove(&key) else { continue };
            let (account, port) = key;
            let service = self.snapshot.service(&port.service).cloned();
            let (Some(service), Some(scope)) = (service, self.scopes.get(&account).cloned()) else {
                continue;
            };
            let resource = self.upstream_routes(&account, &scope, &service, &port);
            if resource.version() == known.version() {
                self.upstream_routes.insert((account, port), known);
            } else {
                changes.accounts.insert(account);
            }
        }
    }
}
