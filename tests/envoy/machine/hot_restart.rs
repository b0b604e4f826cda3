//! Hot restarts of the server's and of the caller's Envoy under load.

use ironmesh_agent_envoy::ReloadProgress;
use ironmesh_tests::{Programs, REQUESTS_PER_FAULT};
use jiff::{SignedDuration, Timestamp};

use super::joined::Machine;
use super::{Applications, SERVER, SHORT, UPSTREAMS, start_load, start_mesh, wait_until_served};

/// The new epoch tells the old one to end; the supervisor notices the new one a moment later, on a busy machine.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn three_hot_restarts_under_load_fail_nothing() {
    hot_restarts_under_load_fail_nothing(3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-long-restarts"]
async fn ten_hot_restarts_under_load_fail_nothing() {
    hot_restarts_under_load_fail_nothing(10).await;
}

async fn hot_restarts_under_load_fail_nothing(count: u32) {
    let Some(programs) = Programs::find() else { return };
    let mesh = start_mesh(&programs).await;
    let _applications = Applications::start(&mesh, 21).await;
    let mut server = Machine::start(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    let mut buyer =
        Machine::start(&mesh, &programs, 11, &["default/buyer"], (UPSTREAMS, SHORT)).await;
    wait_until_served(&buyer).await;
    let load = start_load(&buyer);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    for number in 1..=count {
        for machine in [&server, &buyer] {
            // A previous epoch has ended when the reload begins, and closes nothing of this.
            let connection = buyer.connect().await.unwrap().watch();
            let step = machine.reload(&mesh).await;
            let ReloadProgress::Done { epoch, previous_ends_at, tcp_connections, .. } = &step
            else {
                panic!("reload {number}: {step}");
            };
            assert_eq!(*epoch, number);
            assert!(tcp_connections.is_some_and(|count| count > 0), "{step}");
            let ends_at = previous_ends_at.unwrap();
            let left = ends_at.duration_since(Timestamp::now());
            load.wait_for_requests(REQUESTS_PER_FAULT).await;
            assert!(!left.is_negative(), "{step}: {left}");
            let ended = connection.await.unwrap();
            let difference = ended.duration_since(ends_at);
            assert!(difference.abs() < TOLERANCE, "{step}: closed at {ended}");
            machine.assert_no_retries().await;
        }
    }
    let report = load.finish().await;
    assert_eq!(report.failed, 0, "{:#?}", report.failures);
    assert!(report.calls > 0 && report.connections > 0, "{report:?}");
    eprintln!(
        "{} requests, {} calls and {} connections, none failed; {} connections drained",
        report.requests, report.calls, report.connections, report.reconnects
    );
    for machine in [&mut server, &mut buyer] {
        let rejected = machine.stats("(init_fetch_timeout|update_rejected)$").await;
        assert!(rejected.values().all(|count| *count == 0), "{rejected:?}");
        assert_eq!(machine.wait_until_live().await.restarts, 0);
    }
}
