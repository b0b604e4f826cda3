//! Which proxies have not ACKed everything.

use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType::{Listener, Route};

use super::harness::Harness;
use crate::reconciler::convergence::{Convergence, Lag};

/// Two services that each have a caller; only the requests to `store` depend on `path`.
fn policy(path: &str) -> String {
    let group = format!(
        "[[http_route_group]]\nname = \"store\"\nmatches = [{{ name = \"all\", path_regex = \"{path}\" }}]\n"
    );
    let pair = |(called, caller): (&str, &str)| {
        format!(
            "[[service]]\nname = \"{called}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n\
             [[service]]\nname = \"{caller}\"\n\
             [[traffic_target]]\nname = \"{called}\"\ndestination = {{ name = \"{called}\" }}\n\
             sources = [{{ name = \"{caller}\" }}]\n\
             rules = [{{ kind = \"HTTPRouteGroup\", name = \"{called}\" }}]\n"
        )
    };
    let other = "[[http_route_group]]\nname = \"bank\"\nmatches = [{ name = \"all\" }]\n";
    [&group, other, &pair(("store", "buyer")), &pair(("bank", "clerk"))].concat()
}

/// A harness with proxies of all four services, which have ACKed everything: the store and the others.
fn settled() -> (Harness, SimulatedClient, Vec<SimulatedClient>) {
    let mut harness = Harness::open(&policy("/a"));
    let mut store = harness.proxy(1, &["store"]);
    let mut others: Vec<_> = [(2, "buyer"), (3, "bank"), (4, "clerk")]
        .map(|(number, service)| harness.proxy(number, &[service]))
        .into();
    let mut all: Vec<_> = others.iter_mut().chain([&mut store]).collect();
    harness.settle(&mut all);
    harness.pass();
    assert_eq!(lags(&harness), []);
    (harness, store, others)
}

fn convergence(harness: &Harness) -> Convergence {
    harness.feeds.convergence.borrow().clone()
}

/// The laggards by number.
fn lags(harness: &Harness) -> Vec<(u128, Lag)> {
    let convergence = convergence(harness);
    convergence.laggards().iter().map(|(id, laggard)| (id.0.as_u128(), laggard.lag)).collect()
}

#[tokio::test(start_paused = true)]
async fn revision_is_pending_only_for_proxies_whose_set_it_changes() {
    let (mut harness, mut store, _others) = settled();
    let before = convergence(&harness);
    harness.set_policy(&policy("/b"));
    assert_eq!(lags(&harness), [(1, Lag::Updating)], "its authorization differs");
    let after = convergence(&harness);
    assert_eq!(after.generations().policy, before.generations().policy + 1);
    assert_ne!(after.revision(), before.revision());
    let laggard = after.laggards().values().next().unwrap();
    assert_eq!(after.revision_of(laggard.acked.policy), before.revision());
    store.ack_all();
    harness.pass();
    assert_eq!(lags(&harness), []);
    // No set differs by a comment.
    harness.set_policy(&format!("{}# the same", policy("/b")));
    assert_eq!(lags(&harness), []);
    assert_ne!(convergence(&harness).revision(), after.revision());
}

#[tokio::test(start_paused = true)]
async fn nacking_proxy_lags_until_it_acks_another_revision() {
    let (mut harness, mut store, _others) = settled();
    harness.set_policy(&policy("/b"));
    let name = "inbound|default/store|80";
    store.nack(Route, name, "no such thing");
    harness.pass();
    assert_eq!(lags(&harness), [(1, Lag::Nacked)]);
    // It ACKs the fallback, which is not the revision.
    store.ack_all();
    harness.pass();
    assert_eq!(lags(&harness), [(1, Lag::Nacked)]);
    harness.set_policy(&policy("/c"));
    store.ack_all();
    harness.settle(&mut [&mut store]);
    assert_eq!(lags(&harness), []);
}

#[tokio::test(start_paused = true)]
async fn disconnected_proxy_is_no_laggard_and_returns_as_one() {
    let (mut harness, store, _others) = settled();
    drop(store);
    harness.pass();
    let departed = convergence(&harness).departed().clone();
    assert_eq!(departed.len(), 1);
    harness.set_policy(&policy("/b"));
    assert_eq!(lags(&harness), []);
    let mut store = harness.returning(1);
    harness.pass();
    let now = convergence(&harness);
    assert_eq!(now.pending_policy().count(), 1);
    store.ack_all();
    harness.pass();
    assert_eq!((lags(&harness), convergence(&harness).departed().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn hot_restart_is_synced_once_the_new_process_has_acked() {
    let (mut harness, mut parent, _others) = settled();
    let record = harness.register.records().values().next().unwrap().clone();
    let mut child = harness.connect(&record);
    harness.pass();
    assert_eq!(lags(&harness), [(1, Lag::Updating)]);
    parent.ack_all();
    child.ack(Listener);
    harness.pass();
    assert_eq!(lags(&harness), [(1, Lag::Updating)]);
    child.ack_all();
    harness.pass();
    assert_eq!(lags(&harness), []);
    // What the parent still NACKs is of no account.
    harness.set_policy(&policy("/b"));
    child.ack_all();
    parent.nack(Route, "inbound|default/store|80", "no such thing");
    harness.pass();
    assert_eq!(lags(&harness), []);
}
