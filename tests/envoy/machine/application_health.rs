//! Applications that fail beside real Envoys: their callers' endpoints follow. Each case runs with applications that an agent
//! probes, and with applications that an Envoy probes which runs by hand.

mod probes;
mod shop;

use http::StatusCode;
use ironmesh_tests::{Programs, REQUESTS_PER_FAULT, eventually};

use shop::{HTTP, Kind, Shop};

/// The flaps of a test, which take some seconds each.
const FLAPS: u32 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn application_that_the_agent_probes_fails_and_returns() {
    fail_and_return(Kind::Agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn application_that_envoy_probes_fails_and_returns() {
    fail_and_return(Kind::Envoy).await;
}

async fn fail_and_return(kind: Kind) {
    let Some(programs) = Programs::find() else { return };
    let mut shop = Shop::start(&programs, kind, HTTP).await;
    // No application listens yet: a slow start is unknown, and never unhealthy.
    shop.wait_for_unknown("the health of its application is unknown").await;
    shop.wait_for_hosts(2).await;
    let [first, second] = [shop.app(21).await, shop.app(22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;

    // One answers errors: it leaves, and the others lose no request, nor does its return fail one.
    first.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    shop.wait_for_status("warning[IM0735]").await;
    let load = shop.load();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    first.answer_with(StatusCode::OK);
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
    let before = first.requests();
    eventually("calls of the one that is back", async || {
        if first.requests() > before + 20 { Ok(()) } else { Err(first.requests()) }
    })
    .await;
    load.finish().await.assert_undisturbed();

    // One hangs: it accepts, and never answers.
    let hold = second.hold().await;
    shop.wait_for(["healthy", "unhealthy"]).await;
    shop.wait_for_hosts(1).await;
    drop(hold);
    shop.wait_for(["healthy", "healthy"]).await;

    // All are killed: 503, and an error in the status, also after a restart of the control plane.
    drop((first, second));
    shop.wait_for(["unhealthy", "unhealthy"]).await;
    shop.wait_for_answer(503).await;
    shop.wait_for_status("error[IM0735]").await;
    shop.wait_for_status("error[IM0732]").await;
    assert_eq!(shop.status().await.0, Some(1));
    shop.mesh.restart_control_plane().await;
    shop.wait_for(["unhealthy", "unhealthy"]).await;
    let _back = [shop.app(21).await, shop.app(22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_answer(200).await;
    shop.wait_for_hosts(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flaps_that_the_agent_reports_are_not_stored() {
    flap(Kind::Agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flaps_that_envoy_reports_are_not_stored() {
    flap(Kind::Envoy).await;
}

async fn flap(kind: Kind) {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start(&programs, kind, HTTP).await;
    let [first, _second] = [shop.app(21).await, shop.app(22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
    let before = shop.store_writes();
    for _ in 0..FLAPS {
        first.answer_with(StatusCode::SERVICE_UNAVAILABLE);
        shop.wait_for_hosts(1).await;
        first.answer_with(StatusCode::OK);
        shop.wait_for_hosts(2).await;
    }
    // Something else may be stored meanwhile, such as the end of the start.
    let writes = shop.store_writes() - before;
    assert!(writes < u64::from(FLAPS) / 2, "{writes} writes in {FLAPS} flaps");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_reports_go_on_after_a_restart_of_the_control_plane() {
    restart(Kind::Agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_reports_go_on_after_a_restart_of_the_control_plane() {
    restart(Kind::Envoy).await;
}

async fn restart(kind: Kind) {
    let Some(programs) = Programs::find() else { return };
    let mut shop = Shop::start(&programs, kind, HTTP).await;
    let [first, _second] = [shop.app(21).await, shop.app(22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
    let changes = "cluster.default/store|14001.membership_change";
    let before = shop.buyer.stat(changes).await;

    // Healthy applications stay, also before the first report.
    let load = shop.load();
    shop.mesh.restart_control_plane().await;
    shop.wait_for(["healthy", "healthy"]).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    assert_eq!(shop.buyer.stat(changes).await, before, "no endpoint has left or returned");

    // One that fails afterwards leaves, and stays away although the control plane forgets.
    first.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    shop.mesh.restart_control_plane().await;
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    first.answer_with(StatusCode::OK);
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_with_an_earlier_bootstrap_serves_with_unknown_health() {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start_with_first_bootstrap(&programs).await;
    let app = shop.app(21).await;
    shop.wait_for_answer(200).await;
    app.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    shop.wait_for_answer(503).await;
    let rows = shop.rows().await;
    assert!(rows.iter().all(|row| row.health == "unknown" && row.source.is_none()), "{rows:?}");
    shop.wait_for_hosts(1).await;
}
