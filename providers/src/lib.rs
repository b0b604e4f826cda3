//! Endpoints providers: where the processes of a service are.
//!
//! What a provider that is asked tells ([`EndpointsProvider`]) goes through [`ProviderGuards`], which decide what of
//! it is believed; with what we know ourselves ([`fixed`] lists in policy, and the proxies that joined,
//! [`registered`]) it is combined to what is [`Discovered`]. Who takes part in the mesh is decided by the
//! catalog; this crate never touches policy.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{
    Discovered, Endpoint, EndpointSource, Exclusion, MeshSpecification, Provider, Providers,
    Records, Service, ServiceName,
};

pub mod azure;
mod backoff;
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
    AcceptError, GuardStatus, GuardedEndpoints, Held, Now, ProviderGuards, ShrinkRule, Source,
};
pub use peer_clock::{ClockDifference, PeerClock};
pub use provider::{EndpointsProvider, Problem, ProviderReport, ServiceReport, Stale};

use combine::combine;
use registered::Registered;

/// The endpoints of all services, each from all of its providers, kept up to date.
///
/// By default it excludes no local address.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    excludes_local_addresses: bool,
    specification: Arc<MeshSpecification>,
    registered: Registered,
    believed: GuardedEndpoints,
    discovered: Discovered,
    conflicts: OrdMap<ServiceName, Arc<[Conflict]>>,
}

impl Discovery {
    /// One that takes loopback and link-local addresses from providers only where that is allowed.
    pub fn new(allows_local_addresses: bool) -> Self {
        Self { excludes_local_addresses: !allows_local_addresses, ..Self::default() }
    }

    /// The endpoints of all services, as of now. It costs as much as has changed since the last time.
    pub fn discover(
        &mut self,
        specification: &Arc<MeshSpecification>,
        records: &Records,
        believed: &GuardedEndpoints,
    ) -> Discovered {
        let mut changed: BTreeSet<ServiceName> = self.registered.follow(records);
        for item in self.believed.0.diff(&believed.0) {
            let (DiffItem::Add((_, name), _)
            | DiffItem::Remove((_, name), _)
            | DiffItem::Update { new: ((_, name), _), .. }) = item;
            changed.insert(name.clone());
        }
        self.believed = believed.clone();
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
                // What other providers knew before stays until those that are asked now have told.
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

    /// Where providers contradict each other.
    pub fn conflicts(&self) -> &OrdMap<ServiceName, Arc<[Conflict]>> {
        &self.conflicts
    }

    /// The endpoints of a service that policy defines; none as long as nothing is known of them.
    fn endpoints(&self, name: &ServiceName) -> Option<(Vec<Endpoint>, Vec<Conflict>)> {
        let service = self.specification.services.get(name)?;
        Some(match &service.endpoints {
            EndpointSource::Providers(asked) => self.found(service, asked)?,
            EndpointSource::Hostname => Default::default(),
            EndpointSource::Subset { of, labels } => {
                let whole = self.specification.services.get(of)?;
                let asked = whole.endpoints.providers();
                let found = asked.map(|asked| self.found(whole, asked));
                let (mut endpoints, _) = found.unwrap_or_default()?;
                endpoints.retain(|endpoint| endpoint.labels.include(labels));
                (endpoints, Vec::new())
            }
        })
    }

    /// What all providers together have found of a service. One that is not asked may have been told of it
    /// by the instances themselves.
    fn found(
        &self,
        service: &Service,
        asked: &Providers,
    ) -> Option<(Vec<Endpoint>, Vec<Conflict>)> {
        let mut found = fixed::endpoints(&asked.fixed);
        let mut is_unknown = false;
        for provider in Provider::external() {
            match self.believed.0.get(&(provider, service.name.clone())) {
                // Whoever may register in Consul may tag an instance, and outside nobody asks who it is.
                Some(_) if service.external.is_some() && provider == Provider::Consul => {}
                Some(believed) => found.extend(believed.iter().cloned()),
                None => is_unknown |= asked.ask(provider),
            }
        }
        found.sort_by_key(|endpoint| endpoint.joined_by_tag);
        for endpoint in &mut found {
            // A plan discovers anew what was discovered: a local address that was excluded stays so.
            let allows_local_addresses = !self.excludes_local_addresses
                && endpoint.exclusion != Some(Exclusion::LocalAddress);
            endpoint.exclusion = service.exclusion_of(endpoint, allows_local_addresses);
        }
        if is_unknown && found.is_empty() && !asked.registered {
            return None;
        }
        if asked.registered {
            found.extend(self.registered.endpoints(&service.name));
        }
        let target = match service.ports.as_slice() {
            [only] => Some(only.target),
            _ => None,
        };
        Some(combine(found, target))
    }
}

/// The endpoints of all services, of one moment. It excludes no local address that was not excluded before.
pub fn discover(
    specification: &Arc<MeshSpecification>,
    records: &Records,
    believed: &GuardedEndpoints,
) -> Discovered {
    Discovery::default().discover(specification, records, believed)
}

#[cfg(test)]
mod tests;
