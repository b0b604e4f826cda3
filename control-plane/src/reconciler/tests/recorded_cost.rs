//! Recorded counts of the two changes that meshes have most: an endpoint and one edited document. A change that exceeds a
//! count fails; one that needs less lowers it.
//!
//! Times are in `make bench`. Counts do not depend on the machine.

use std::time::Duration;

use allocation_counter::measure;
use ironmesh_xds_server::simulated::SimulatedClient;
use tokio::time::Instant;

use super::harness::Harness;

/// The sizes of the fleet: callers of the changed service, and as many that do not call it.
const SIZES: [u8; 2] = [10, 60];

/// What one change costs.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// Resources encoded.
    encoded: u64,
    /// Sets published: the proxies visited.
    visited: u64,
    /// Allocations of the reconciler.
    allocations: u64,
}

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
endpoints = { static = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }] }

[[service]]
name = "buyer"

[[service]]
name = "stranger"

[[http_route_group]]
name = "all"
matches = [{ name = "all", methods = ["GET"] }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// A settled mesh with two proxies of the store, at the addresses that policy lists.
fn market(callers: u8) -> (Harness, Vec<SimulatedClient>) {
    let mut harness = Harness::open(POLICY);
    let mut clients = vec![harness.proxy(1, &["store"]), harness.proxy(2, &["store"])];
    for number in 0..callers {
        clients.push(harness.proxy(10 + 2 * number, &["buyer"]));
        clients.push(harness.proxy(11 + 2 * number, &["stranger"]));
    }
    harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
    (harness, clients)
}

/// The cost of the pass after an edit of the policy.
fn cost(callers: u8, from: &str, to: &str) -> Cost {
    let (mut harness, clients) = market(callers);
    assert!(POLICY.contains(from));
    harness.load_policy(&POLICY.replacen(from, to, 1));
    let encoded =
        |harness: &mut Harness| harness.reconciler.snapshot_builder.compiler().unwrap().encoded();
    let (before, sets) = (encoded(&mut harness), harness.hub.counters().sets());
    // A tick of the clock in this pass would cost more.
    harness.reconciler.next_tick = Instant::now() + Duration::from_secs(3600);
    let allocations = measure(|| harness.pass()).count_total;
    let cost = Cost {
        encoded: encoded(&mut harness) - before,
        visited: harness.hub.counters().sets() - sets,
        allocations,
    };
    drop(clients);
    cost
}

/// Checks the cost of an edit at both sizes: `visited` proxies, besides one for each caller if `callers` are visited.
fn check(
    from: &str,
    to: &str,
    encoded: u64,
    (visited, callers): (u64, bool),
    allocations: [u64; 2],
) {
    for (size, recorded) in SIZES.into_iter().zip(allocations) {
        let cost = cost(size, from, to);
        assert_eq!(cost.encoded, encoded, "resources encoded for {size} callers");
        let visited = visited + if callers { u64::from(size) } else { 0 };
        assert_eq!(cost.visited, visited, "proxies visited of {size} callers");
        let allocations = cost.allocations;
        assert!(
            allocations <= recorded,
            "{allocations} allocations for {size} callers, {recorded} recorded"
        );
    }
}

#[test]
fn endpoint_change_does_not_exceed_its_recorded_counts() {
    let (from, to) = ("{ address = \"10.0.0.2\" }", "{ address = \"10.0.0.2\", weight = 3 }");
    // The endpoints, and the local cluster of the endpoint's proxy, which stays the same.
    check(from, to, 2, (0, true), [355, 1395]);
}

#[test]
fn policy_edit_does_not_exceed_its_recorded_counts() {
    // The routes of the store, and the own resources of both of its proxies.
    check("methods = [\"GET\"]", "methods = [\"PUT\"]", 7, (2, false), [672, 674]);
}
