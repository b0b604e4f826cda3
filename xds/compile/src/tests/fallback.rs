//! Fallbacks of NACKed resources: never more than is allowed now.

use std::collections::BTreeSet;

use ironmesh_xds_wire::{Resource, ResourceType};
use proptest::prelude::*;
use serde_json::Value;

use super::mesh::{Edit, PartOrder, Shape, shape, step};
use super::{compile, each, policies};
use crate::ResourceRole;
use crate::fallback::{closed, narrowed};

/// The grants of a resource that carries authorization, one text each.
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
            let (snapshot, proxies) = shape.build(PartOrder::default());
            compile(snapshot, &proxies)
        });
        let [before, after] = &sets;
        for (_, new) in after {
            for nacked in new.resources.iter().filter(|one| ResourceRole::authorized_port(one).is_some()) {
                let nothing = closed(nacked).unwrap();
                prop_assert_eq!(nothing.name(), nacked.name());
                prop_assert_eq!(ResourceRole::of(&nothing), ResourceRole::of(nacked));
                prop_assert_eq!(grants(&nothing), BTreeSet::new());
                // The reason for the NACK may be a limit.
                prop_assert!(!nothing.to_json().to_string().contains("local_ratelimit"));
                let of_type = |set: &crate::Compiled| {
                    set.resources.of(nacked.resource_type()).get(nacked.name()).cloned()
                };
                for last_good in before.iter().filter_map(|(_, old)| of_type(old)) {
                    let fallback = narrowed(nacked, &last_good).unwrap();
                    prop_assert_eq!(fallback.name(), nacked.name());
                    prop_assert_eq!(ResourceRole::of(&fallback), ResourceRole::of(nacked));
                    let (now, old) = (grants(nacked), grants(&last_good));
                    let both: BTreeSet<_> = now.intersection(&old).cloned().collect();
                    prop_assert_eq!(grants(&fallback), both);
                }
            }
        }
    }
}

/// Invariant 7: the last good routes refuse whom the newest refuse, and only those.
#[test]
fn narrowed_routes_have_the_newest_refusal_of_revoked_callers() {
    let routes = |edits: &[Edit]| -> Vec<_> {
        let (snapshot, proxies) = Shape::teams(2).with(edits).build(PartOrder::default());
        let compiled = compile(snapshot, &proxies);
        let all =
            compiled.iter().flat_map(|(_, one)| one.resources.of(ResourceType::Route).values());
        all.filter(|one| ResourceRole::authorized_port(one).is_some()).cloned().collect()
    };
    let refused = |resource: &Resource| -> Value {
        let host = &resource.to_json()["virtualHosts"][0]["typedPerFilterConfig"];
        host["revoked"].clone()
    };
    let (none, one, two) =
        (routes(&[]), routes(&[Edit::Revoked]), routes(&[Edit::Revoked, Edit::Revoked]));
    assert!(!none.is_empty() && none.len() == two.len());
    for ((none, one), two) in none.iter().zip(&one).zip(&two) {
        assert!(refused(none).is_null());
        for (nacked, last_good) in [(two, one), (two, none), (one, two), (none, one)] {
            assert_eq!(refused(&narrowed(nacked, last_good).unwrap()), refused(nacked));
            assert!(refused(&closed(nacked).unwrap()).is_null(), "its filter may be the reason");
        }
        let text = refused(two).to_string();
        assert!(text.contains("p0.proxy.mesh.internal") && text.contains("p1.proxy."), "{text}");
    }
}

/// The same for TCP: the newest revocation lists, and none where nobody is allowed.
#[test]
fn narrowed_callers_have_the_newest_revocation_lists() {
    let secrets = |edits: &[Edit]| -> Vec<_> {
        let (snapshot, proxies) = Shape::teams(2).with(edits).build(PartOrder::default());
        let compiled = compile(snapshot, &proxies);
        let all =
            compiled.iter().flat_map(|(_, one)| one.resources.of(ResourceType::Secret).values());
        all.filter(|one| ResourceRole::authorized_port(one).is_some()).cloned().collect()
    };
    let lists = |resource: &Resource| {
        let context = &resource.to_json()["validationContext"];
        (context["crl"].clone(), context["onlyVerifyLeafCertCrl"].clone())
    };
    let (none, one) = (secrets(&[]), secrets(&[Edit::Revoked]));
    assert!(!none.is_empty() && none.len() == one.len());
    for (none, one) in none.iter().zip(&one) {
        assert_eq!(lists(none), (Value::Null, Value::Null));
        assert_eq!(lists(one).1, true);
        assert!(lists(one).0.to_string().contains("the list of"));
        for (nacked, last_good) in [(one, none), (none, one)] {
            assert_eq!(lists(&narrowed(nacked, last_good).unwrap()), lists(nacked));
            assert_eq!(lists(&closed(nacked).unwrap()), (Value::Null, Value::Null));
        }
    }
}
