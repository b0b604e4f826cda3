//! Ways in from outside of the mesh: what ingress backends come to, by service port.
//!
//! A source may be a service, whose addresses do not follow from policy alone. So they are resolved here,
//! once for each moment of the mesh, and all who ask who may call from outside look at this.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use crate::ip_range::IpRange;
use crate::name::{ServiceName, ServicePort};
use crate::policy::{IngressBackend, IngressEntry, IngressSource};
use crate::specification::MeshSpecification;

/// A way in from outside of the mesh to one service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressRule {
    /// The policy.
    pub policy: Arc<IngressBackend>,
    /// Where proxies are called for that.
    pub entry: IngressEntry,
    /// From where callers must connect; `None` where that is no matter. An empty set is nobody.
    pub ranges: Option<BTreeSet<IpRange>>,
}

impl IngressRule {
    /// Whose certificates may call: SPIFFE IDs and names of DNS. None where callers need no certificate.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        self.policy.sources.iter().filter_map(|source| match source {
            IngressSource::Principal(name) => Some(&**name),
            IngressSource::Range(_) | IngressSource::Service(_) => None,
        })
    }

    /// The addresses from where somebody may connect, where policy alone says them all.
    pub fn fixed_ranges(&self) -> Option<&BTreeSet<IpRange>> {
        let is_moving = |source: &IngressSource| matches!(source, IngressSource::Service(_));
        self.ranges.as_ref().filter(|_| !self.policy.sources.iter().any(is_moving))
    }
}

/// The ways in to each service port that has any, in the order of their policies.
pub type IngressRules = OrdMap<ServicePort, Arc<Vec<IngressRule>>>;

/// The ways in that policy allows, where services may call from these addresses. What came to the same in
/// `before` stays the same value.
pub(crate) fn ingress_rules(
    specification: &MeshSpecification,
    addresses_of: impl Fn(&ServiceName) -> BTreeSet<IpAddr>,
    before: &IngressRules,
) -> IngressRules {
    let mut by_port: BTreeMap<&ServicePort, Vec<IngressRule>> = BTreeMap::new();
    for policy in specification.ingress_backends.values() {
        let ranges = ranges(policy, &addresses_of);
        for backend in &policy.backends {
            by_port.entry(&backend.port).or_default().push(IngressRule {
                policy: Arc::clone(policy),
                entry: backend.entry.clone(),
                ranges: ranges.clone(),
            });
        }
    }
    let shared = |(port, ways): (&ServicePort, Vec<IngressRule>)| {
        let known = before.get(port).filter(|known| ***known == ways);
        (port.clone(), known.cloned().unwrap_or_else(|| Arc::new(ways)))
    };
    by_port.into_iter().map(shared).collect()
}

/// Whether the ways in follow from where one of these services runs.
pub(crate) fn are_about(
    specification: &MeshSpecification,
    services: &BTreeSet<ServiceName>,
) -> bool {
    let mut sources = specification.ingress_backends.values().flat_map(|policy| &policy.sources);
    sources.any(|source| match source {
        IngressSource::Service(service) => services.contains(service),
        IngressSource::Principal(_) | IngressSource::Range(_) => false,
    })
}

fn ranges(
    policy: &IngressBackend,
    addresses_of: impl Fn(&ServiceName) -> BTreeSet<IpAddr>,
) -> Option<BTreeSet<IpRange>> {
    let mut ranges = None;
    for source in &policy.sources {
        match source {
            IngressSource::Principal(_) => {}
            IngressSource::Range(range) => {
                ranges.get_or_insert_with(BTreeSet::new).insert(*range);
            }
            IngressSource::Service(service) => {
                let addresses = addresses_of(service).into_iter().map(IpRange::of);
                ranges.get_or_insert_with(BTreeSet::new).extend(addresses);
            }
        }
    }
    ranges
}
