use ironmesh_api::EndpointList;

use super::*;
use crate::endpoints::table::tests::list;

/// The lines between the list and what `change` makes of it.
fn lines(change: impl FnOnce(&mut EndpointList)) -> Vec<String> {
    let before = list();
    let mut after = before.clone();
    change(&mut after);
    changes(&before, &after)
}

#[test]
fn unchanged_endpoints_and_ages_produce_no_lines() {
    assert!(lines(|_| ()).is_empty());
    let later = |list: &mut EndpointList| list.services[0].endpoints[0].since = None;
    assert!(lines(later).is_empty());
}

#[test]
fn added_removed_and_changed_endpoints_are_reported() {
    let all = changes(&EndpointList::default(), &list());
    assert_eq!(
        all[2],
        "shop/till 10.0.0.5:8080 new: consul, healthy, eu/a, weight 2, participant at 10.0.0.5:15003"
    );
    let gone = lines(|list| drop(list.services[0].endpoints.remove(0)));
    assert_eq!(gone, ["shop/till 10.0.0.5:8080 gone"]);
    let changed = lines(|list| {
        let row = &mut list.services[0].endpoints[0];
        (row.health, row.weight) = (ironmesh_api::ReportedHealth::Unhealthy, 3);
    });
    assert_eq!(changed, ["shop/till 10.0.0.5:8080 healthy → unhealthy, weight 2 → weight 3"]);
}

#[test]
fn stale_providers_and_held_removals_report_begin_and_end() {
    let none = EndpointList::default();
    let begun = changes(&none, &list());
    assert_eq!(
        begun[..2],
        [
            "consul is stale since 2026-01-01T00:00:00Z: no agent answers",
            "shop/till consul lost 3 of 4 endpoints at 2026-01-01T00:00:00Z; the removal is held back until \
             2026-01-01T00:01:00Z"
        ]
    );
    let ended = lines(|list| {
        list.providers[0].stale = None;
        list.services[0].sources[0].held = None;
    });
    assert_eq!(ended, ["consul answers", "shop/till consul holds no removal back"]);
}
