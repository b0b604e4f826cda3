//! Periodically closed xDS connections affect neither traffic nor Envoy's configuration.

use ironmesh_tests::{Load, REQUESTS_PER_FAULT, eventually};

use crate::bookstore::{Bookstore, HOST};
use crate::restart::envoy_states;

/// A46 (bystander).
#[tokio::test(flavor = "multi_thread")]
async fn max_connection_age_of_xds_fails_no_request() {
    let settings = "xds = { max_connection_age = \"2s\" }";
    let Some(store) = Bookstore::open_with_settings(settings, &[], &[], |proxy| proxy).await else {
        return;
    };
    let envoys = [&store.buyer, &store.v1, &store.v2];
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let before = envoy_states(&envoys).await;
    let connections = r"^cluster\.ironmesh-control-plane\.upstream_cx_total$";
    let mut first = Vec::new();
    for envoy in envoys {
        first.push(envoy.sum(connections).await);
    }
    for (envoy, first) in envoys.into_iter().zip(first) {
        eventually("three connections more", async || match envoy.sum(connections).await {
            now if now >= first + 3 => Ok(()),
            now => Err(format!("{now}, after {first}")),
        })
        .await;
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let report = load.finish().await;
    report.assert_undisturbed();
    assert_eq!(store.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
    assert_eq!(envoy_states(&envoys).await, before, "nothing that Envoys have is sent again");
}
