//! Endpoints by the caller's locality (docs/decisions/0036).
//!
//! All callers of a service port share one assignment, unless a locality setting applies. Then all
//! callers of one locality share one. It has the same name, so that clusters, routes and counters
//! do not depend on localities; the set of a caller contains the one of its locality.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Locality, LocalitySetting, ServiceAccount, ServicePort};
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceType};

use super::{Scope, Shared};
use crate::outbound;
use crate::reads::{ChangedReads, ReadSet, Reads};
use crate::role::ResourceRole;

/// The endpoints of one service port, by the callers' locality, as far as compiled; callers of
/// unknown locality have the empty one. Localities are cut to the depth that the setting needs.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// What decides the setting.
    reads: ReadSet,
    setting: Option<Arc<LocalitySetting>>,
    by_locality: BTreeMap<Locality, Arc<Resource>>,
}

impl Views {
    pub(super) fn reads(&self) -> &ReadSet {
        &self.reads
    }
}

impl Scope {
    /// As much of `locality` as makes a difference.
    fn locality(&self, locality: &Locality) -> Locality {
        let depths = self.by_locality.values().map(|setting| setting.depth());
        locality.up_to(depths.max().unwrap_or_default())
    }
}

impl Shared {
    /// The endpoints of the proxies of `account` in `locality`, if they were compiled.
    pub(crate) fn endpoints_of(
        &self,
        account: &ServiceAccount,
        locality: &Locality,
    ) -> Option<&ResourceMap> {
        let scope = self.scopes.get(account)?;
        let localized =
            self.localized.get(account).and_then(|all| all.get(&scope.locality(locality)));
        Some(localized.unwrap_or_else(|| scope.resources.of(ResourceType::Endpoint)))
    }

    /// The endpoints that replace those of the scope, for proxies of `account` in `locality`, if
    /// they differ.
    pub(crate) fn localized_endpoints(
        &mut self,
        account: &ServiceAccount,
        locality: &Locality,
    ) -> Option<ResourceMap> {
        let scope = Arc::clone(self.scopes.get(account)?);
        let locality = scope.locality(locality);
        if locality.is_empty() {
            return None;
        }
        if let Some(known) = self.localized.get(account).and_then(|all| all.get(&locality)) {
            return Some(known.clone());
        }
        let mut endpoints = scope.resources.of(ResourceType::Endpoint).clone();
        for port in scope.by_locality.keys() {
            let resource = self.endpoints(port, &locality);
            endpoints.insert(Arc::clone(resource.name()), resource);
        }
        let all = self.localized.entry(account.clone()).or_default();
        all.insert(locality, endpoints.clone());
        Some(endpoints)
    }

    /// The endpoints of a service port for callers in `locality`.
    pub(super) fn endpoints(&mut self, port: &ServicePort, locality: &Locality) -> Arc<Resource> {
        let setting = if let Some(views) = self.endpoints.get(port) {
            views.setting.clone()
        } else {
            let (setting, reads) = self.locality_setting(port);
            let views = Views { reads, setting: setting.clone(), by_locality: BTreeMap::new() };
            self.endpoints.insert(port.clone(), views);
            setting
        };
        let locality = locality.up_to(setting.as_ref().map_or(0, |setting| setting.depth()));
        let known = self.endpoints.get(port).and_then(|views| views.by_locality.get(&locality));
        if let Some(resource) = known {
            return Arc::clone(resource);
        }
        let known = self.mesh.snapshot.endpoints.get(port);
        let endpoints = outbound::endpoints(
            port,
            known.map_or(&[], |endpoints| endpoints),
            setting.as_ref().map(|setting| (&**setting, &locality)),
        );
        let resource = self.encoder.encode_as(ResourceRole::Called(port.clone()), &endpoints);
        let views = self.endpoints.entry(port.clone()).or_default();
        views.by_locality.insert(locality, Arc::clone(&resource));
        resource
    }

    fn locality_setting(&mut self, port: &ServicePort) -> (Option<Arc<LocalitySetting>>, ReadSet) {
        let reads = Reads::default();
        let mesh = self.mesh.read_by(&reads);
        let service = mesh.service(&port.service);
        let setting = service.and_then(|service| mesh.settings(service).locality()).cloned();
        (setting, self.read_table.store(reads))
    }

    /// Forgets the endpoints of services whose locality setting has changed. Their callers
    /// are compiled again, since they have read the setting too.
    pub(super) fn forget_other_orders(&mut self, changed: &ChangedReads) {
        if changed.is_empty() {
            return;
        }
        let mut endpoints = std::mem::take(&mut self.endpoints);
        endpoints.retain(|port, views| {
            !changed.touch(&views.reads) || {
                let (setting, reads) = self.locality_setting(port);
                views.reads = reads;
                views.setting == setting
            }
        });
        self.endpoints = endpoints;
    }

    /// Encodes the endpoints of a service port again for each locality of its callers, and replaces
    /// those that changed. Returns the accounts that have them, with one of the changed resources,
    /// if there is one.
    pub(super) fn renew_endpoints(
        &mut self,
        port: &ServicePort,
    ) -> Option<(Arc<Resource>, BTreeSet<ServiceAccount>)> {
        let known = self.endpoints.remove(port)?;
        if !self.mesh.snapshot.endpoints.contains_key(port) {
            return None;
        }
        let depth = known.setting.as_ref().map_or(0, |setting| setting.depth());
        let mut others = BTreeMap::new();
        let views =
            Views { reads: known.reads, setting: known.setting, by_locality: BTreeMap::new() };
        self.endpoints.insert(port.clone(), views);
        let accounts = self.endpoint_accounts.get(port).cloned().unwrap_or_default();
        let mut localities = self.retain_localities_of(&accounts, depth);
        // The scope itself has the endpoints for callers of unknown locality.
        localities.insert(Locality::default());
        let is_there = |(locality, _): &(Locality, Arc<Resource>)| localities.contains(locality);
        for (locality, known) in known.by_locality.into_iter().filter(is_there) {
            let resource = self.endpoints(port, &locality);
            if resource.version() != known.version() {
                others.insert(locality, resource);
            } else if let Some(views) = self.endpoints.get_mut(port) {
                views.by_locality.insert(locality, known);
            }
        }
        for account in &accounts {
            let scope = self.scopes.get_mut(account);
            if let Some((scope, resource)) = scope.zip(others.get(&Locality::default())) {
                Arc::make_mut(scope).resources.insert(Arc::clone(resource));
            }
            for (locality, endpoints) in self.localized.get_mut(account).into_iter().flatten() {
                if let Some(resource) = others.get(&locality.up_to(depth)) {
                    endpoints.insert(Arc::clone(resource.name()), Arc::clone(resource));
                }
            }
        }
        others.into_values().next().map(|resource| (resource, accounts))
    }

    /// The localities of the proxies of these accounts, cut to `depth`. Forgets what was compiled
    /// for others: machines come and go, and so do localities.
    fn retain_localities_of(
        &mut self,
        accounts: &BTreeSet<ServiceAccount>,
        depth: usize,
    ) -> BTreeSet<Locality> {
        let mut localities = BTreeSet::new();
        if depth == 0 {
            return localities;
        }
        let mesh = Arc::clone(&self.mesh);
        for account in accounts {
            // The records of proxies are no input of what is compiled here.
            let none = Reads::default();
            let services = mesh.read_by(&none).services_of(account).iter();
            let records = services.flat_map(|service| mesh.snapshot.proxies_of(service));
            let own: BTreeSet<_> = records.map(|record| &record.locality).collect();
            if let Some((scope, localized)) =
                self.scopes.get(account).zip(self.localized.get_mut(account))
            {
                let own: BTreeSet<_> =
                    own.iter().map(|locality| scope.locality(locality)).collect();
                localized.retain(|locality, _| own.contains(locality));
            }
            localities.extend(own.into_iter().map(|locality| locality.up_to(depth)));
        }
        localities
    }
}
