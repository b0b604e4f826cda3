//! Agents that report to one control plane, while the Envoys are connected to another.

use http::StatusCode;
use ironmesh_tests::{App, Envoy, Load, ProxyOptions, REQUESTS_PER_FAULT, eventually, get_once};

use crate::machine::Machine;
use crate::replicas::{POLICY, Replicas};

/// The health check of the service, which its table precedes.
const HEALTH: &str = r#"
[service.health]
http = { path = "/healthz" }
interval = "1s"
timeout = "1s"
unhealthy_threshold = 2
healthy_threshold = 2
[[service]]
name = "buyer""#;

/// Waits until the buyer uses this many endpoints.
async fn wait_for_healthy(buyer: &Envoy, count: u64) {
    eventually(&format!("{count} endpoints"), async || {
        let healthy = buyer.stat("cluster.default/store|80.membership_healthy").await;
        anyhow::ensure!(healthy == count, "{healthy}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_to_one_control_plane_count_at_the_other() {
    let policy = POLICY.replace("[[service]]\nname = \"buyer\"", HEALTH);
    let Some(replicas) = Replicas::start_with(2, &policy, |addresses, number| {
        // Envoys of machines that enroll at the first control plane connect to the second.
        vec![addresses[1 - number]]
    })
    .await
    else {
        return;
    };
    let [reported, connected] = [&replicas.all[0], &replicas.all[1]];
    let socket = |host| reported.loopback().socket(host, 8080);
    let first_app = App::http1("one", socket(21)).await;
    let second_app = App::http1("other", socket(22)).await;
    let _first = Machine::start(reported, "default/store", 21).await;
    let mut second = Machine::start(reported, "default/store", 22).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = reported.envoy(&buyer).await;
    let streams = connected.proxies().await;
    assert!(streams.as_array().unwrap().iter().all(|one| one["streams"] == 1), "{streams:#}");

    // The ports that accept callers.
    wait_for_healthy(&buyer, 2).await;
    // Health.
    first_app.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    wait_for_healthy(&buyer, 1).await;
    first_app.answer_with(StatusCode::OK);
    wait_for_healthy(&buyer, 2).await;

    // A drain: it waits for the callers of both control planes.
    let load = Load::start(buyer.socket(14001), "store", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let log = second.drain().await;
    assert!(log.contains("all callers have left"), "{log}");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let before = second_app.requests();
    second.start_supervisor().await;
    eventually("calls of the machine that is back", async || {
        let requests = second_app.requests();
        anyhow::ensure!(requests > before + 20, "{requests}");
        Ok(())
    })
    .await;
    load.finish().await.assert_undisturbed();
    let answer = get_once(buyer.socket(14001), "/", &[("host", "store")]).await.unwrap();
    assert_eq!(answer.status, 200);
    for mesh in [reported, connected] {
        eventually("the leave to end", async || {
            let proxies = mesh.proxies().await;
            let mut all = proxies.as_array().unwrap().iter();
            anyhow::ensure!(all.all(|one| one["leaving_since"].is_null()), "{proxies:#}");
            Ok(())
        })
        .await;
    }
}
