//! The bookstore with Envoys that use the state-of-the-world variant.

use std::collections::BTreeMap;

use ironmesh_tests::{Envoy, Http1Connection, Load, REQUESTS_PER_FAULT, eventually, get_once};

use crate::bookstore::{Bookstore, HOST, buyers, ensure_status, split};
use crate::restart::wait_for_streams;

#[tokio::test(flavor = "multi_thread")]
async fn sotw_granted_caller_is_served_and_others_are_denied() {
    let Some(store) = Bookstore::open_sotw().await else { return };
    let thief = store.thief().await;
    let (seen, denied) = (store.requests_seen(), store.denied_by_store().await);
    assert_eq!(store.buy("/books/1").await.unwrap().status, 200);
    assert_eq!(store.requests_seen(), seen + 1);
    assert_eq!(store.buy("/admin").await.unwrap().status, 403);
    let response = get_once(thief.socket(14001), "/books/1", &[]).await.unwrap();
    assert_eq!(response.status, 403, "{}", response.text());
    assert_eq!((store.requests_seen(), store.denied_by_store().await), (seen + 1, denied + 2));

    // A withdrawal removes the clusters, and a new grant restores them.
    store.mesh.remove_policy("buyers.toml");
    eventually("the buyer to be denied", async || {
        ensure_status(&store.buy("/books/1").await?, 403)
    })
    .await;
    eventually("the clusters of the store to be removed", async || {
        let clusters = store.buyer.stats(r"^cluster\..*bookstore.*\.membership_total$").await;
        if clusters.is_empty() { Ok(()) } else { Err(format!("{clusters:?}")) }
    })
    .await;
    store.mesh.write_policy("buyers.toml", &buyers("/books/.*"));
    eventually("the buyer to be allowed again", async || {
        ensure_status(&store.buy("/books/1").await?, 200)
    })
    .await;
    thief.assert_no_update_errors().await;
    store.assert_no_update_errors().await;
}

/// R53.
#[tokio::test(flavor = "multi_thread")]
async fn sotw_split_change_under_load_fails_no_request() {
    let Some(store) = Bookstore::open_sotw().await else { return };
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    for (v1, v2) in [(0, 100), (100, 0), (50, 50)] {
        store.mesh.write_policy("split.toml", &split(v1, v2));
        eventually("the new weights", async || match (v2, second_version_of_100(&store).await) {
            (0, 0) | (100, 100) | (50, 30..=70) => Ok(()),
            (_, second) => Err(format!("{second} of 100")),
        })
        .await;
    }
    load.finish().await.assert_undisturbed();
    store.assert_no_update_errors().await;
    wait_until_updates_stop(&store.buyer).await;
}

/// Rule 7.
#[tokio::test(flavor = "multi_thread")]
async fn sotw_control_plane_restart_affects_neither_traffic_nor_envoys() {
    let Some(mut store) = Bookstore::open_sotw().await else { return };
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let before = sotw_states(&store).await;
    store.mesh.kill_control_plane().await;
    for envoy in [&store.buyer, &store.v1, &store.v2] {
        wait_for_streams(envoy, 0).await;
    }
    store.mesh.restart_control_plane().await;
    for envoy in [&store.buyer, &store.v1, &store.v2] {
        wait_for_streams(envoy, 1).await;
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    // The new streams serve changes.
    store.mesh.write_policy("split.toml", &split(100, 0));
    eventually("the new weights", async || match second_version_of_100(&store).await {
        0 => Ok(()),
        second => Err(format!("{second} of 100")),
    })
    .await;
    load.finish().await.assert_undisturbed();
    assert_eq!(sotw_states(&store).await, before, "the restart changed what Envoys hold");
    store.assert_no_update_errors().await;
    wait_until_updates_stop(&store.buyer).await;
}

/// The number of 100 requests that the second version answers, amid all others. None may fail.
async fn second_version_of_100(store: &Bookstore) -> u64 {
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    let mut second = 0;
    for _ in 0..100 {
        let response = connection.get("/books/1", HOST).await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        second += u64::from(response.header("x-app") == Some("bookstore-v2"));
    }
    second
}

/// The certificates, and the update counters of clusters and listeners, which are not resent if the
/// version is current (R12). Endpoints, routes and secrets are resent, and Envoy finds them
/// unchanged.
async fn sotw_states(store: &Bookstore) -> Vec<(Vec<String>, BTreeMap<String, u64>)> {
    let mut held = Vec::new();
    for envoy in [&store.buyer, &store.v1, &store.v2] {
        let filter = r"^(cluster|listener)_manager\.(cluster_|listener_|cds\.update_success|lds\.update_success)(added|modified|removed|in_place_updated)?$";
        let stats = envoy.stats(filter).await;
        assert!(stats.len() > 5, "is the filter right? {stats:?}");
        held.push((envoy.serials().await.into_iter().collect(), stats));
    }
    held
}

/// Nothing is pushed when nothing changes: an ACK is not read as a request (R21).
async fn wait_until_updates_stop(envoy: &Envoy) {
    let updates = async || envoy.sum(r"update_(success|attempt)$").await;
    let mut before = updates().await;
    eventually("the end of updates", async || {
        let now = updates().await;
        let last = std::mem::replace(&mut before, now);
        if now == last { Ok(()) } else { Err(format!("{last} updates, then {now}")) }
    })
    .await;
}
