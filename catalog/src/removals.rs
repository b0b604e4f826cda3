//! Removed policy objects: the deletions in a plan, and the decision whether a removal from the policy folder
//! is held back.
//!
//! It compares names only; `ironmesh-analysis` compares contents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy_object::PolicyObject;
use crate::specification::MeshSpecification;

/// The objects that a change of policy removes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removals {
    /// The objects that only the earlier policy has, by kind and name.
    pub removed: Vec<PolicyObject>,
    /// How many objects the earlier policy has.
    pub before: usize,
    /// How many objects the later policy has.
    pub after: usize,
}

impl Removals {
    /// The fewest removed objects of a large removal: half of a small policy is one edit.
    pub const LEAST: usize = 5;

    /// The objects of `before` that are missing in `after`.
    pub fn between(before: &MeshSpecification, after: &MeshSpecification) -> Self {
        let (old, new) = (objects(before), objects(after));
        let (count_before, count_after) = (old.len(), new.len());
        let mut removed: Vec<_> =
            old.into_iter().filter(|object| new.binary_search(object).is_err()).collect();
        removed.sort();
        Self { removed, before: count_before, after: count_after }
    }

    /// Whether at least half of the objects vanish and the policy becomes smaller by [`Self::LEAST`] objects or
    /// more. A policy whose objects are renamed does not become smaller.
    pub fn are_large(&self) -> bool {
        self.removed.len() * 2 >= self.before
            && self.before.saturating_sub(self.after) >= Self::LEAST
    }

    /// How many objects of each kind are removed.
    fn by_kind(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for object in &self.removed {
            *kinds.entry(&*object.kind).or_default() += 1;
        }
        kinds
    }
}

/// `12 of 20 objects: 3 service, 9 traffic_target`.
impl fmt::Display for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} objects", self.removed.len(), self.before)?;
        for (number, (kind, count)) in self.by_kind().into_iter().enumerate() {
            let separator = if number == 0 { ":" } else { "," };
            write!(f, "{separator} {count} {kind}")?;
        }
        Ok(())
    }
}

impl MeshSpecification {
    /// How many objects there are, of all kinds.
    pub fn object_count(&self) -> usize {
        let Self {
            revision: _,
            namespaces,
            services,
            traffic_targets,
            http_route_groups,
            tcp_routes,
            identity_bindings,
            traffic_splits,
            http_routes,
            retries,
            upstream_traffic_settings,
            ingress_backends,
            telemetries,
            egresses,
        } = self;
        namespaces.len()
            + services.len()
            + traffic_targets.len()
            + http_route_groups.len()
            + tcp_routes.len()
            + identity_bindings.len()
            + traffic_splits.len()
            + http_routes.len()
            + retries.len()
            + upstream_traffic_settings.len()
            + ingress_backends.len()
            + telemetries.len()
            + egresses.len()
    }
}

/// All objects, in order.
fn objects(specification: &MeshSpecification) -> Vec<PolicyObject> {
    let MeshSpecification {
        revision: _,
        namespaces,
        services,
        traffic_targets,
        http_route_groups,
        tcp_routes,
        identity_bindings,
        traffic_splits,
        http_routes,
        retries,
        upstream_traffic_settings,
        ingress_backends,
        telemetries,
        egresses,
    } = specification;
    let mut all = Vec::with_capacity(specification.object_count());
    let mut add = |kind: &'static str, name: String| {
        all.push(PolicyObject { kind: Cow::Borrowed(kind), name });
    };
    namespaces.keys().for_each(|name| add("namespace", name.to_string()));
    services.keys().for_each(|name| add("service", name.to_string()));
    macro_rules! named {
        ($($kind:literal => $map:expr),* $(,)?) => {
            $($map.keys().for_each(|(namespace, name)| add($kind, format!("{namespace}/{name}")));)*
        };
    }
    named! {
        "traffic_target" => traffic_targets,
        "http_route_group" => http_route_groups,
        "tcp_route" => tcp_routes,
        "identity_binding" => identity_bindings,
        "traffic_split" => traffic_splits,
        "http_route" => http_routes,
        "retry" => retries,
        "upstream_traffic_setting" => upstream_traffic_settings,
        "ingress_backend" => ingress_backends,
        "telemetry" => telemetries,
        "egress" => egresses,
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::finding::Spot;
    use crate::name::Name;
    use crate::policy::{Namespace, TcpRoute};

    /// A policy with these TCP routes, and a namespace.
    fn policy(routes: std::ops::Range<u32>) -> MeshSpecification {
        let spot = Spot::new(&"a.toml".into(), "", 0..0);
        let namespace = Name::default_namespace();
        let mut specification = MeshSpecification::default();
        let shop =
            Namespace { name: namespace.clone(), mode: None, egress: None, spot: spot.clone() };
        specification.namespaces.insert(namespace.clone(), Arc::new(shop));
        for number in routes {
            let name: Name = format!("r{number}").parse().unwrap();
            let route = TcpRoute {
                namespace: namespace.clone(),
                name: name.clone(),
                ports: None,
                spot: spot.clone(),
            };
            specification.tcp_routes.insert((namespace.clone(), name), Arc::new(route));
        }
        specification
    }

    #[test]
    fn removals_name_each_object_and_count_by_kind() {
        let removals = Removals::between(&policy(0..3), &policy(1..5));
        assert_eq!(removals.to_string(), "1 of 4 objects: 1 tcp_route");
        assert_eq!(
            (&*removals.removed[0].kind, &*removals.removed[0].name),
            ("tcp_route", "default/r0")
        );
        let removals = Removals::between(&policy(0..3), &MeshSpecification::default());
        assert_eq!(removals.to_string(), "4 of 4 objects: 1 namespace, 3 tcp_route");
        assert_eq!(policy(0..3).object_count(), 4);
    }

    #[test]
    fn removals_are_large_from_five_objects_and_half_of_all() {
        let are_large =
            |before, after| Removals::between(&policy(before), &policy(after)).are_large();
        assert!(are_large(0..9, 0..4), "5 of 10");
        assert!(!are_large(0..9, 0..5), "4 of 10");
        assert!(!are_large(0..4, 0..0), "4 of 5");
        assert!(!are_large(0..19, 0..12), "7 of 20");
        assert!(!are_large(0..9, 10..19), "all are renamed");
    }
}
