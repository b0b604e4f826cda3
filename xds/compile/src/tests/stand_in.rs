//! What stands in for what is refused: never more than is allowed now.

use std::collections::BTreeSet;

use ironmesh_xds_wire::{Resource, ResourceType};
use proptest::prelude::*;
use serde_json::Value;

use super::mesh::{Order, shape, step};
use super::{compile, each, policies};
use crate::stand_in::{carries_authorization, closed, narrowed};

/// Who may do what, by a resource that carries authorization: one text for each grant.
fn grants(resource: &Resource) -> BTreeSet<String> {
    let content = resource.to_json();
    if resource.resource_type() == ResourceType::Route {
        let host = &content["virtualHosts"][0]["typedPerFilterConfig"];
        let rbac = &host["envoy.filters.http.rbac"]["rbac"];
        return policies(rbac)
            .into_iter()
            .map(|(name, policy)| format!("{name} {policy}"))
            .collect();
    }
    let mut names = BTreeSet::new();
    each(&content, "matchTypedSubjectAltNames", &mut |list| {
        let list: Vec<&Value> = list.as_array().unwrap().iter().collect();
        assert!(!list.is_empty(), "without names anyone could call");
        names.extend(list.iter().map(|one| one["matcher"].to_string()));
    });
    names.retain(|name| !name.contains("nobody.invalid"));
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fallback_allows_the_intersection_and_closed_allows_nothing(
        before in shape(),
        other in shape(),
        parts in step(),
    ) {
        let after = before.with_parts_of(&other, parts);
        let sets = [before, after].map(|shape| {
            let (snapshot, proxies) = shape.build(Order::default());
            compile(snapshot, &proxies)
        });
        let [before, after] = &sets;
        for (_, new) in after {
            for refused in new.resources.iter().filter(|one| carries_authorization(one)) {
                let nothing = closed(refused).unwrap();
                prop_assert_eq!(nothing.name(), refused.name());
                prop_assert_eq!(grants(&nothing), BTreeSet::new());
                // What is refused may be a limit.
                prop_assert!(!nothing.to_json().to_string().contains("local_ratelimit"));
                let of_type = |set: &crate::Compiled| {
                    set.resources.of(refused.resource_type()).get(refused.name()).cloned()
                };
                for last_good in before.iter().filter_map(|(_, old)| of_type(old)) {
                    let stand_in = narrowed(refused, &last_good).unwrap();
                    prop_assert_eq!(stand_in.name(), refused.name());
                    let (now, old) = (grants(refused), grants(&last_good));
                    let both: BTreeSet<_> = now.intersection(&old).cloned().collect();
                    prop_assert_eq!(grants(&stand_in), both);
                }
            }
        }
    }
}
