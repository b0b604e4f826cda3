//! Endpoints as callers in a place have them (docs/decisions/0036).
//!
//! All callers of a service port have one assignment of it, unless a setting says that where they are makes a
//! difference. Then all callers of one place have one: it is named alike, so that clusters, routes and what
//! is counted know nothing of places, and a caller's own set has that of its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Locality, LocalitySetting, ServiceAccount, ServiceName, ServicePort};
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceType};

use super::{Scope, Shared};
use crate::outbound;

/// The endpoints of one service port, for callers in each place in which one was compiled; for those of whom
/// nothing is known, at none. Of places no more is said here than the setting needs.
#[derive(Debug, Default)]
pub(super) struct Views {
    setting: Option<Arc<LocalitySetting>>,
    by_place: BTreeMap<Locality, Arc<Resource>>,
}

impl Scope {
    /// As much of `place` as makes a difference.
    fn place(&self, place: &Locality) -> Locality {
        let depths = self.by_place.values().map(|setting| setting.depth());
        place.up_to(depths.max().unwrap_or_default())
    }
}

impl Shared {
    /// The endpoints that proxies of `account` in `place` have, where one was compiled.
    pub(crate) fn endpoints_of(
        &self,
        account: &ServiceAccount,
        place: &Locality,
    ) -> Option<&ResourceMap> {
        let scope = self.scopes.get(account)?;
        let placed = self.placed.get(account).and_then(|all| all.get(&scope.place(place)));
        Some(placed.unwrap_or_else(|| scope.resources.of(ResourceType::Endpoint)))
    }

    /// The endpoints that proxies of `account` in `place` have instead of those of its scope, if they do.
    pub(crate) fn placed_endpoints(
        &mut self,
        account: &ServiceAccount,
        place: &Locality,
    ) -> Option<ResourceMap> {
        let scope = Arc::clone(self.scopes.get(account)?);
        let place = scope.place(place);
        if place.is_empty() {
            return None;
        }
        if let Some(known) = self.placed.get(account).and_then(|all| all.get(&place)) {
            return Some(known.clone());
        }
        let mut endpoints = scope.resources.of(ResourceType::Endpoint).clone();
        for port in scope.by_place.keys() {
            let resource = self.endpoints(port, &place);
            endpoints.insert(Arc::clone(resource.name()), resource);
        }
        let all = self.placed.entry(account.clone()).or_default();
        all.insert(place, endpoints.clone());
        Some(endpoints)
    }

    /// The endpoints of a service port for callers in `place`.
    pub(super) fn endpoints(&mut self, port: &ServicePort, place: &Locality) -> Arc<Resource> {
        let setting = match self.endpoints.get(port) {
            Some(views) => views.setting.clone(),
            None => self.locality_setting(port),
        };
        let place = place.up_to(setting.as_ref().map_or(0, |setting| setting.depth()));
        let known = self.endpoints.get(port).and_then(|views| views.by_place.get(&place));
        if let Some(resource) = known {
            return Arc::clone(resource);
        }
        let known = self.snapshot.endpoints.get(port);
        let endpoints = outbound::endpoints(
            port,
            known.map_or(&[], |endpoints| endpoints),
            setting.as_ref().map(|setting| (&**setting, &place)),
        );
        let resource = self.encoder.encode(&endpoints);
        let views = self.endpoints.entry(port.clone()).or_default();
        views.setting = setting;
        views.by_place.insert(place, Arc::clone(&resource));
        resource
    }

    fn locality_setting(&self, port: &ServicePort) -> Option<Arc<LocalitySetting>> {
        let service = self.snapshot.service(&port.service)?;
        self.index.upstream_settings().locality(service).cloned()
    }

    /// Forgets the endpoints of these services for which another order holds now. Who calls them is compiled
    /// again.
    pub(super) fn forget_other_orders(&mut self, touched: &BTreeSet<ServiceName>) {
        if touched.is_empty() {
            return;
        }
        let mut endpoints = std::mem::take(&mut self.endpoints);
        endpoints.retain(|port, views| {
            !touched.contains(&port.service) || views.setting == self.locality_setting(port)
        });
        self.endpoints = endpoints;
    }

    /// Encodes the endpoints of a service port again for each place in which one is told them, and puts those that
    /// are of other content where they are told. Says whom they are told, with one of them, if there is one.
    pub(super) fn renew_endpoints(
        &mut self,
        port: &ServicePort,
    ) -> Option<(Arc<Resource>, BTreeSet<ServiceAccount>)> {
        let known = self.endpoints.remove(port)?;
        if !self.snapshot.endpoints.contains_key(port) {
            return None;
        }
        let depth = known.setting.as_ref().map_or(0, |setting| setting.depth());
        let mut others = BTreeMap::new();
        let views = Views { setting: known.setting, by_place: BTreeMap::new() };
        self.endpoints.insert(port.clone(), views);
        let told = self.told.get(port).cloned().unwrap_or_default();
        let mut places = self.keep_places_of(&told, depth);
        // Those of whom nothing is known are told what is in the scope.
        places.insert(Locality::default());
        let is_there = |(place, _): &(Locality, Arc<Resource>)| places.contains(place);
        for (place, known) in known.by_place.into_iter().filter(is_there) {
            let resource = self.endpoints(port, &place);
            if resource.version() != known.version() {
                others.insert(place, resource);
            } else if let Some(views) = self.endpoints.get_mut(port) {
                views.by_place.insert(place, known);
            }
        }
        for account in &told {
            let scope = self.scopes.get_mut(account);
            if let Some((scope, resource)) = scope.zip(others.get(&Locality::default())) {
                Arc::make_mut(scope).resources.insert(Arc::clone(resource));
            }
            for (place, endpoints) in self.placed.get_mut(account).into_iter().flatten() {
                if let Some(resource) = others.get(&place.up_to(depth)) {
                    endpoints.insert(Arc::clone(resource.name()), Arc::clone(resource));
                }
            }
        }
        others.into_values().next().map(|resource| (resource, told))
    }

    /// Where the proxies of these accounts are, said up to `depth`. What was compiled for them in other places is
    /// forgotten: machines come and go, and so do places.
    fn keep_places_of(
        &mut self,
        accounts: &BTreeSet<ServiceAccount>,
        depth: usize,
    ) -> BTreeSet<Locality> {
        let mut places = BTreeSet::new();
        if depth == 0 {
            return places;
        }
        for account in accounts {
            let services = self.index.services_of(account);
            let records = services.flat_map(|service| self.snapshot.joined_as(service));
            let own: BTreeSet<_> = records.map(|record| &record.locality).collect();
            if let Some((scope, placed)) =
                self.scopes.get(account).zip(self.placed.get_mut(account))
            {
                let own: BTreeSet<_> = own.iter().map(|place| scope.place(place)).collect();
                placed.retain(|place, _| own.contains(place));
            }
            places.extend(own.into_iter().map(|place| place.up_to(depth)));
        }
        places
    }
}
