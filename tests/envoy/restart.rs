//! Control-plane restarts affect neither traffic nor Envoy's configuration (invariant 8).

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_tests::{App, Envoy, Ledger, Load, ProxyOptions, REQUESTS_PER_FAULT, eventually};

use crate::bookstore::{Bookstore, HOST, ensure_status, wait_for_endpoint};

/// In addition to [`crate::bookstore`], a service with long streams and one long connection.
pub(crate) const WAREHOUSE: &str = r#"
[[http_route_group]]
name = "warehouse"
[[http_route_group.matches]]
name = "ledger"
path_regex = "/.*"

[[traffic_target]]
name = "ledger"
destination = { name = "bookwarehouse" }
sources = [{ name = "bookbuyer" }]
rules = [
  { kind = "HTTPRouteGroup", name = "warehouse", matches = ["ledger"] },
  { kind = "TCPRoute", name = "journal" },
]

[[tcp_route]]
name = "journal"
matches = { ports = [3306] }
"#;

/// Rule 7 (delta).
#[tokio::test(flavor = "multi_thread")]
async fn control_plane_restart_affects_neither_traffic_nor_envoys() {
    let policy = [("warehouse.toml", WAREHOUSE)];
    let upstreams = ["default/bookwarehouse:14002=14002", "default/bookwarehouse:3306=3306"];
    let Some(mut store) = Bookstore::open_with(&policy, &upstreams).await else { return };
    let _ledger = App::http2("bookwarehouse", store.mesh.loopback().socket(31, 8080)).await;
    let _journal = Ledger::start("journal", store.mesh.loopback().socket(31, 8081)).await;
    let warehouse = store.mesh.envoy(&ProxyOptions::new("default/bookwarehouse", 31)).await;
    wait_for_endpoint(&store.buyer, "default/bookwarehouse|14002").await;
    wait_for_endpoint(&store.buyer, "default/bookwarehouse|3306").await;
    let (ledger_address, journal_address) = (store.buyer.socket(14002), store.buyer.socket(3306));
    let mut load = None;
    eventually("the long stream to open", async || {
        let started = Load::start(store.local_address(), HOST, "/books/1");
        let started = started.with_stream(ledger_address, "bookwarehouse").await?;
        load = Some(started.with_connection(journal_address).await?);
        anyhow::Ok(())
    })
    .await;
    let load = load.unwrap();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let before = envoy_states(&[&store.buyer, &store.v1, &store.v2, &warehouse]).await;

    store.mesh.kill_control_plane().await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    for envoy in [&store.buyer, &store.v1, &store.v2, &warehouse] {
        wait_for_streams(envoy, 0).await;
    }
    store.mesh.restart_control_plane().await;
    for envoy in [&store.buyer, &store.v1, &store.v2, &warehouse] {
        wait_for_streams(envoy, 1).await;
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let report = load.finish().await;
    report.assert_undisturbed();
    assert!(report.stream_messages > 0 && report.connection_lines > 0, "{report:?}");
    let retries = store.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
    eprintln!(
        "{} requests, {} messages and {} lines, none failed; upstream_rq_retry: {retries}",
        report.requests, report.stream_messages, report.connection_lines
    );
    assert_eq!(retries, 0);
    let after = envoy_states(&[&store.buyer, &store.v1, &store.v2, &warehouse]).await;
    assert_eq!(after, before, "the restart changed what Envoys hold");
    ensure_status(&store.buy("/books/1").await.unwrap(), 200).unwrap();
    store.assert_no_update_errors().await;
}

/// An Envoy's certificates, and its update counters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnvoyState {
    serials: BTreeSet<String>,
    pub(crate) stats: BTreeMap<String, u64>,
}

pub(crate) async fn envoy_states(envoys: &[&Envoy]) -> Vec<EnvoyState> {
    let mut held = Vec::new();
    let mut seen = BTreeSet::new();
    for envoy in envoys {
        let serials = envoy.serials().await;
        assert!(!serials.is_empty(), "an Envoy has no certificate");
        let mut stats = BTreeMap::new();
        for filter in UPDATES {
            let found = envoy.stats(filter).await;
            if !found.is_empty() {
                seen.insert(filter);
            }
            stats.extend(found);
        }
        held.push(EnvoyState { serials, stats });
    }
    // A misspelt filter would match nothing, and so never change.
    let unseen: Vec<_> = UPDATES.iter().filter(|filter| !seen.contains(*filter)).collect();
    assert!(unseen.is_empty(), "no Envoy has a statistic like {unseen:?}");
    held
}

/// Waits until Envoy has this many streams to the control plane.
pub(crate) async fn wait_for_streams(envoy: &Envoy, streams: u64) {
    eventually("the state of the connection", async || {
        match envoy.stat("control_plane.connected_state").await {
            now if now == streams => Ok(()),
            now => Err(format!("connected_state: {now}")),
        }
    })
    .await;
}

/// Counters that change when a resource is sent, added, changed or removed.
const UPDATES: [&str; 12] = [
    r"^cluster_manager\.cluster_added$",
    r"^cluster_manager\.cluster_modified$",
    r"^cluster_manager\.cluster_removed$",
    r"^cluster_manager\.cds\.update_success$",
    r"^listener_manager\.listener_added$",
    r"^listener_manager\.listener_modified$",
    r"^listener_manager\.listener_removed$",
    r"^listener_manager\.listener_in_place_updated$",
    r"^listener_manager\.lds\.update_success$",
    r"^sds\..*\.update_success$",
    r"\.rds\..*\.update_success$",
    r"^cluster\..*\|\d+\.update_success$",
];
