//! Ingress rules: resolved ingress backends, by service port.
//!
//! A source may be a service, whose addresses do not follow from policy alone. This module resolves them once
//! per snapshot, for every user of ingress rules. It never compiles listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use crate::ip_range::IpRange;
use crate::name::{ServiceName, ServicePort};
use crate::policy::{IngressBackend, IngressEntry, IngressSource};
use crate::specification::MeshSpecification;

/// An ingress rule: callers outside the mesh that may call one service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressRule {
    /// The ingress backend.
    pub policy: Arc<IngressBackend>,
    /// The listener of the proxies.
    pub entry: IngressEntry,
    /// The address ranges from which callers must connect; `None` if any address will do. An empty set excludes
    /// every caller.
    pub ranges: Option<BTreeSet<IpRange>>,
}

impl IngressRule {
    /// The certificate names that may call: SPIFFE IDs and DNS names. Empty if callers need no certificate.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        self.policy.sources.iter().filter_map(|source| match source {
            IngressSource::Principal(name) => Some(&**name),
            IngressSource::Range(_) | IngressSource::Service(_) => None,
        })
    }

    /// The address ranges, if policy alone defines them.
    pub fn fixed_ranges(&self) -> Option<&BTreeSet<IpRange>> {
        let is_moving = |source: &IngressSource| matches!(source, IngressSource::Service(_));
        self.ranges.as_ref().filter(|_| !self.policy.sources.iter().any(is_moving))
    }
}

/// The ingress rules of each service port, in the order of their ingress backends.
pub type IngressRules = OrdMap<ServicePort, Arc<Vec<IngressRule>>>;

/// The ingress rules of policy, given the addresses of services. Rules equal to those `before` keep their
/// value.
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
    let shared = |(port, rules): (&ServicePort, Vec<IngressRule>)| {
        let known = before.get(port).filter(|known| ***known == rules);
        (port.clone(), known.cloned().unwrap_or_else(|| Arc::new(rules)))
    };
    by_port.into_iter().map(shared).collect()
}

/// Whether the ingress rules depend on the addresses of one of these services.
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
