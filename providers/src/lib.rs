//! Endpoints providers: they find the processes of each service.
//!
//! This crate owns the way of an endpoint from its source to [`Discovered`]. The reports of
//! external providers ([`EndpointsProvider`]) pass [`ProviderGuards`]. [`Discovery`] combines the
//! result with static lists of policy ([`fixed`]) and with enrolled proxies ([`registered`]).
//!
//! It never decides which endpoints take part in the mesh (the catalog does), and never changes
//! policy.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{
    Discovered, Endpoint, EndpointSource, Exclusion, MeshSpecification, Provider, Providers,
    Records, Service, ServiceName,
};

pub mod azure;
mod combine;
pub mod consul;
mod findings;
pub mod fixed;
mod guards;
mod http;
mod peer_clock;
mod provider;
pub mod registered;

pub use combine::Conflict;
pub use findings::findings;
pub use guards::{
    AcceptError, GuardStatus, GuardedEndpoints, Now, PendingShrink, ProviderGuards, ShrinkRule,
    Source,
};
pub use peer_clock::{ClockDifference, PeerClock};
pub use provider::{EndpointsProvider, Problem, ProviderReport, ServiceReport, Stale};

use combine::combine;
use registered::Registered;

/// The endpoints of all services, each combined from all of its providers, and updated
/// incrementally.
///
/// By default it excludes no local address.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    excludes_local_addresses: bool,
    specification: Arc<MeshSpecification>,
    registered: Registered,
    guarded: GuardedEndpoints,
    discovered: Discovered,
    conflicts: OrdMap<ServiceName, Arc<[Conflict]>>,
}

impl Discovery {
    /// Creates a discovery that excludes loopback and link-local addresses unless they are allowed.
    pub fn new(allows_local_addresses: bool) -> Self {
        Self { excludes_local_addresses: !allows_local_addresses, ..Self::default() }
    }

    /// Returns the current endpoints of all services. The cost grows with the changes since the
    /// last call.
    pub fn discover(
        &mut self,
        specification: &Arc<MeshSpecification>,
        records: &Records,
        guarded: &GuardedEndpoints,
    ) -> Discovered {
        let mut changed: BTreeSet<ServiceName> = self.registered.follow(records);
        for item in self.guarded.0.diff(&guarded.0) {
            let (DiffItem::Add((_, name), _)
            | DiffItem::Remove((_, name), _)
            | DiffItem::Update { new: ((_, name), _), .. }) = item;
            changed.insert(name.clone());
        }
        self.guarded = guarded.clone();
        if !Arc::ptr_eq(&self.specification, specification) {
            for item in self.specification.services.diff(&specification.services) {
                match item {
                    DiffItem::Add(name, _) | DiffItem::Update { new: (name, _), .. } => {
                        changed.insert(name.clone());
                    }
                    DiffItem::Remove(name, _) => {
                        self.discovered.0.remove(name);
                        self.conflicts.remove(name);
                    }
                }
            }
            self.specification = Arc::clone(specification);
        }
        let subsets = |name| {
            let service = self.specification.services.get(name);
            service.map_or(&[][..], |service| service.subsets.as_slice())
        };
        let of_changed: Vec<_> = changed.iter().flat_map(subsets).cloned().collect();
        changed.extend(of_changed);
        for name in changed {
            let Some((endpoints, conflicts)) = self.endpoints(&name) else {
                // The endpoints of the former providers stay until the current ones have reported.
                continue;
            };
            if self.discovered.0.get(&name).is_none_or(|known| **known != endpoints) {
                self.discovered.0.insert(name.clone(), Arc::new(endpoints));
            }
            if conflicts.is_empty() {
                self.conflicts.remove(&name);
            } else {
                self.conflicts.insert(name, conflicts.into());
            }
        }
        self.discovered.clone()
    }

    /// The contradictions between providers, by service.
    pub fn conflicts(&self) -> &OrdMap<ServiceName, Arc<[Conflict]>> {
        &self.conflicts
    }

    /// Returns the endpoints of a service that policy defines; `None` while no provider has
    /// reported it.
    fn endpoints(&self, name: &ServiceName) -> Option<(Vec<Endpoint>, Vec<Conflict>)> {
        let service = self.specification.services.get(name)?;
        Some(match &service.endpoints {
            EndpointSource::Providers(providers) => self.found(service, providers)?,
            EndpointSource::Hostname => Default::default(),
            EndpointSource::Subset { of, labels } => {
                let whole = self.specification.services.get(of)?;
                let providers = whole.endpoints.providers();
                let found = providers.map(|providers| self.found(whole, providers));
                let (mut endpoints, _) = found.unwrap_or_default()?;
                endpoints.retain(|endpoint| endpoint.labels.include(labels));
                (endpoints, Vec::new())
            }
        })
    }

    /// Combines what all providers report of a service. Instances may register themselves at a
    /// provider that policy does not query.
    fn found(
        &self,
        service: &Service,
        providers: &Providers,
    ) -> Option<(Vec<Endpoint>, Vec<Conflict>)> {
        let mut found = fixed::endpoints(&providers.fixed);
        let mut is_unknown = false;
        for provider in Provider::external() {
            match self.guarded.0.get(&(provider, service.name.clone())) {
                // Every registrant of Consul may set tags, and no proxy authenticates an external
                // endpoint.
                Some(_) if service.external.is_some() && provider == Provider::Consul => {}
                Some(guarded) => found.extend(guarded.iter().cloned()),
                None => is_unknown |= providers.include(provider),
            }
        }
        found.sort_by_key(|endpoint| endpoint.selected_by_tag);
        for endpoint in &mut found {
            // A plan repeats discovery on its own result: a local address that was excluded stays
            // excluded.
            let allows_local_addresses = !self.excludes_local_addresses
                && endpoint.exclusion != Some(Exclusion::LocalAddress);
            endpoint.exclusion = service.exclusion_of(endpoint, allows_local_addresses);
        }
        if is_unknown && found.is_empty() && !providers.registered {
            return None;
        }
        if providers.registered {
            found.extend(self.registered.endpoints(&service.name));
        }
        let target = match service.ports.as_slice() {
            [only] => Some(only.target),
            _ => None,
        };
        Some(combine(found, target))
    }
}

/// Discovers the endpoints of all services once. It keeps earlier exclusions of local addresses,
/// and adds none.
pub fn discover(
    specification: &Arc<MeshSpecification>,
    records: &Records,
    guarded: &GuardedEndpoints,
) -> Discovered {
    Discovery::default().discover(specification, records, guarded)
}

#[cfg(test)]
mod tests;
