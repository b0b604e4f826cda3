//! Wrong clocks: the control plane's clock jumps under load, and a proxy's clock differs.

use ironmesh_tests::clock::SkewedClock;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually};
use serde_json::Value;
use tokio::process::Command;

use crate::bookstore::{Bookstore, HOST};
use crate::restart::wait_for_streams;

pub(crate) const HOUR: i64 = 3600;

/// Waits until the control plane reports a clock jump to a time of `direction`.
pub(crate) async fn wait_for_jump_report(mesh: &Mesh, direction: &str) {
    eventually("the jump to be reported", async || {
        let readiness = mesh.readyz().await;
        let findings = readiness.get("findings").and_then(Value::as_array);
        let findings = findings.cloned().unwrap_or_default();
        let mut words = findings.iter().filter(|one| one["code"] == "IM0711");
        let is_reported = words.any(|one| one["message"].as_str().unwrap().contains(direction));
        if is_reported { Ok(()) } else { Err(readiness) }
    })
    .await;
}

async fn wait_until_connected(store: &Bookstore) {
    for envoy in [&store.buyer, &store.v1, &store.v2] {
        wait_for_streams(envoy, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_behind_and_corrected_loses_no_request() {
    let Some(mut store) = Bookstore::open().await else { return };
    store.mesh.restart_with_own_clock().await;
    wait_until_connected(&store).await;
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    store.mesh.set_clock(-HOUR);
    wait_for_jump_report(&store.mesh, "back by 1h").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    // The store's certificates were issued in the future.
    store.mesh.restart_control_plane().await;
    wait_until_connected(&store).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    store.mesh.set_clock(0);
    wait_for_jump_report(&store.mesh, "ahead by 1h").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    store.mesh.restart_control_plane().await;
    wait_until_connected(&store).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let report = load.finish().await;
    report.assert_undisturbed();
    eprintln!("{} requests, none failed", report.requests);
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_days_ahead_and_corrected_loses_no_request() {
    let Some(mut store) = Bookstore::open().await else { return };
    store.mesh.restart_with_own_clock().await;
    wait_until_connected(&store).await;
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let serials = store.v1.serials().await;

    store.mesh.set_clock(72 * HOUR);
    wait_for_jump_report(&store.mesh, "ahead by 72h").await;
    // By that clock all certificates have expired.
    eventually("new certificates", async || match store.v1.serials().await {
        now if now != serials => Ok(()),
        now => Err(format!("{now:?}")),
    })
    .await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    store.mesh.restart_control_plane().await;
    wait_until_connected(&store).await;
    // The proxy's own clock is right, so it accepts the control plane and its certificates.
    let thief = store.mesh.envoy(&ProxyOptions::new("default/bookthief", 12)).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    store.mesh.set_clock(0);
    wait_for_jump_report(&store.mesh, "back by 72h").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    store.mesh.restart_control_plane().await;
    wait_until_connected(&store).await;
    wait_for_streams(&thief, 1).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let report = load.finish().await;
    report.assert_undisturbed();
    eprintln!("{} requests, none failed", report.requests);
    store.assert_no_update_errors().await;
}

/// Starts an Envoy whose clock is `skew` seconds ahead, waits until status reports the skew with
/// the address, and returns why its last handshake failed.
async fn reported_skew(skew: i64) -> Option<String> {
    let policy = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";
    let programs = Programs::find()?;
    let mesh = Mesh::start(&programs, &[("policy.toml", policy)]).await;
    let folder = mesh.bootstrap(&ProxyOptions::new("default/store", 11)).await;
    let clock = SkewedClock::new(&folder);
    clock.set(skew);
    let mut command = Command::new(&programs.envoy);
    command.arg("-c").arg(folder.join("envoy.yaml")).arg("--disable-hot-restart");
    clock.give_to(&mut command);
    let _envoy = Child::start("envoy", &mut command, &folder.join("envoy.log"));
    let readiness = eventually("the wrong clock to be reported", async || {
        let readiness = mesh.readyz().await;
        let findings = readiness.pointer("/findings").and_then(Value::as_array);
        // All programs of a test connect from this address.
        let matches = |one: &Value| {
            let text = one.to_string();
            text.contains("IM0715") && text.contains("127.0.0.1")
        };
        let is_reported = findings.is_some_and(|findings| findings.iter().any(matches));
        if is_reported { Ok(readiness) } else { Err(readiness.to_string()) }
    })
    .await;
    let reason = readiness.pointer("/handshakes/last/reason").and_then(Value::as_str);
    Some(reason.unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_of_a_proxy_far_ahead_is_reported_with_its_address() {
    let Some(reason) = reported_skew(20 * 365 * 24 * HOUR).await else { return };
    assert!(reason.contains("CertificateExpired"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_of_a_proxy_far_behind_is_reported_with_its_address() {
    let Some(reason) = reported_skew(-20 * 365 * 24 * HOUR).await else { return };
    assert!(reason.contains("CertificateExpired"), "{reason}");
}
