//! Endpoints by the caller's locality (docs/decisions/0036).
//!
//! All callers of a service port share one assignment, unless a locality setting applies. Then all
//! callers of one locality share one. It has the same name, so that clusters, routes and counters
//! do not depend on localities; the set of a caller contains the one of its locality.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Locality, LocalitySetting, ServiceAccount, ServicePort};
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceType};

use super::visibility::View;
use super::{Shared, ViewId};
use crate::outbound;
use crate::reads::{ChangedReads, ReadSet, Reads};
use crate::role::ResourceRole;

/// The endpoints of one service port, by the callers' locality, as far as compiled; callers of
/// unknown locality have the empty one. Localities are cut to the depth that the setting needs.
#[derive(Debug, Default)]
pub(super) struct LocalizedEndpoints {
    /// What decides the setting.
    reads: ReadSet,
    setting: Option<Arc<LocalitySetting>>,
    by_locality: BTreeMap<Locality, Arc<Resource>>,
}

impl LocalizedEndpoints {
    pub(super) fn reads(&self) -> &ReadSet {
        &self.reads
    }
}

impl Shared {
    /// The endpoints of the proxies of `account` in `locality`, if they were compiled.
    pub(crate) fn endpoints_of(
        &self,
        account: &ServiceAccount,
        locality: &Locality,
    ) -> Option<&ResourceMap> {
        let view = self.views.get(&self.scopes.get(account)?.view)?;
        let localized = view.localized.get(&view.callees.locality(locality));
        Some(localized.unwrap_or_else(|| view.resources.of(ResourceType::Endpoint)))
    }

    /// The endpoints that replace those of the scope, for proxies of `account` in `locality`, if
    /// they differ.
    pub(crate) fn localized_endpoints(
        &mut self,
        account: &ServiceAccount,
        locality: &Locality,
    ) -> Option<ResourceMap> {
        let id = self.scopes.get(account)?.view;
        let view = self.views.get(&id)?;
        let locality = view.callees.locality(locality);
        if locality.is_empty() {
            return None;
        }
        if let Some(known) = view.localized.get(&locality) {
            return Some(known.clone());
        }
        let callees = Arc::clone(&view.callees);
        let mut endpoints = view.resources.of(ResourceType::Endpoint).clone();
        for port in callees.by_locality.keys() {
            let resource = self.endpoints(port, &locality);
            endpoints.insert(resource);
        }
        self.views.get_mut(&id)?.localized.insert(locality, endpoints.clone());
        Some(endpoints)
    }

    /// The endpoints of a service port for callers in `locality`.
    pub(super) fn endpoints(&mut self, port: &ServicePort, locality: &Locality) -> Arc<Resource> {
        let setting = if let Some(views) = self.endpoints.get(port) {
            views.setting.clone()
        } else {
            let (setting, reads) = self.locality_setting(port);
            let views = LocalizedEndpoints {
                reads,
                setting: setting.clone(),
                by_locality: BTreeMap::new(),
            };
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
        let views = LocalizedEndpoints {
            reads: known.reads,
            setting: known.setting,
            by_locality: BTreeMap::new(),
        };
        self.endpoints.insert(port.clone(), views);
        let views = self.endpoint_views.get(port).cloned().unwrap_or_default();
        let mut localities = self.retain_localities_of(&views, depth);
        // The view itself has the endpoints for callers of unknown locality.
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
        let mut all_accounts = BTreeSet::new();
        for id in &views {
            let accounts = self.view_table.accounts(*id);
            let Some(view) = self.views.get_mut(id) else { continue };
            for (locality, endpoints) in &mut view.localized {
                if let Some(resource) = others.get(&locality.up_to(depth)) {
                    endpoints.insert(Arc::clone(resource));
                }
            }
            let of_view = others.get(&Locality::default());
            if let Some(resource) = of_view {
                view.resources.insert(Arc::clone(resource));
            }
            let endpoints = view.resources.of(ResourceType::Endpoint);
            for account in accounts {
                if let Some(scope) = self.scopes.get_mut(account).filter(|_| of_view.is_some()) {
                    Arc::make_mut(scope)
                        .resources
                        .replace(ResourceType::Endpoint, endpoints.clone());
                }
                all_accounts.insert(account.clone());
            }
        }
        others.into_values().next().map(|resource| (resource, all_accounts))
    }

    /// The localities of the proxies of these views, cut to `depth`. Forgets what was compiled
    /// for others: machines come and go, and so do localities.
    fn retain_localities_of(
        &mut self,
        views: &BTreeSet<ViewId>,
        depth: usize,
    ) -> BTreeSet<Locality> {
        let mut localities = BTreeSet::new();
        if depth == 0 {
            return localities;
        }
        let mesh = Arc::clone(&self.mesh);
        // The records of proxies are no input of what is compiled here.
        let none = Reads::default();
        for view in views {
            let accounts = self.view_table.accounts(*view);
            let services = accounts.flat_map(|account| mesh.read_by(&none).services_of(account));
            let records = services.flat_map(|service| mesh.snapshot.proxies_of(service));
            let own: BTreeSet<_> = records.map(|record| &record.locality).collect();
            if let Some(View { callees, localized, .. }) = self.views.get_mut(view) {
                let own: BTreeSet<_> = own.iter().map(|one| callees.locality(one)).collect();
                localized.retain(|locality, _| own.contains(locality));
            }
            localities.extend(own.into_iter().map(|locality| locality.up_to(depth)));
        }
        localities
    }
}
