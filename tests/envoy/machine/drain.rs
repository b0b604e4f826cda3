//! The drain of a server before its stop, under load and under faults.

use std::time::Duration;

use ironmesh_tests::{Programs, REQUESTS_PER_FAULT, eventually};
use rustix::process::Signal;
use tokio::time::Instant;

use super::joined::{HeldConnection, Machine};
use super::{Applications, SERVER, SHORT, UPSTREAMS, start_load, start_mesh, wait_until_served};

const MINIMUM: Duration = Duration::from_secs(1);
const MAXIMUM: Duration = Duration::from_secs(5);

/// The host numbers of the servers and of the buyer.
const HOSTS: [u8; 3] = [21, 22, 11];

/// Opens connections until one leads to this server.
async fn connect_to(buyer: &Machine, host: u8) -> HeldConnection {
    let name = format!("ledger-{host}");
    eventually("a connection to the server", async || match buyer.connect().await {
        Ok(connection) if connection.server == name => Ok(connection),
        Ok(other) => Err(other.server),
        Err(error) => Err(format!("{error:#}")),
    })
    .await
}

/// Fails the test unless the log has these texts in this order.
fn assert_order(log: &str, texts: &[&str]) {
    let mut rest = log;
    for text in texts {
        let (_, after) = rest.split_once(text).unwrap_or_else(|| panic!("no {text:?} in {log}"));
        rest = after;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_under_load_fails_nothing_whatever_is_down() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = start_mesh(&programs).await;
    let [first, second, buyer] = HOSTS;
    let first_app = Applications::start(&mesh, first).await;
    let second_app = Applications::start(&mesh, second).await;
    let mut server = Machine::start(&mesh, &programs, first, &SERVER, ("", SHORT)).await;
    let mut other = Machine::start(&mesh, &programs, second, &SERVER, ("", SHORT)).await;
    let buyer =
        Machine::start(&mesh, &programs, buyer, &["default/buyer"], (UPSTREAMS, SHORT)).await;
    wait_until_served(&buyer).await;
    let load = start_load(&buyer);
    for host in [first, second] {
        drop(connect_to(&buyer, host).await);
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    // Under load, with an established TCP connection, which gets the maximum.
    let connection = connect_to(&buyer, first).await.watch();
    let began = Instant::now();
    assert!(server.supervisor.take().unwrap().terminate().await.success());
    assert!(began.elapsed() >= MAXIMUM, "{:?}", began.elapsed());
    connection.await.unwrap();
    assert_order(
        &server.supervisor_log(),
        &["all callers have left", "draining the inbound listeners", "`drain_maximum` has passed"],
    );
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    buyer.assert_no_retries().await;
    let before = first_app.web.requests();
    server.start_supervisor(&mesh);
    server.wait_until_live().await;
    eventually("traffic to the server", async || match first_app.web.requests() {
        count if count > before + 10 => Ok(()),
        count => Err(count),
    })
    .await;

    buyer.assert_no_retries().await;
    // Without such connections, it ends as soon as the requests do.
    let began = Instant::now();
    let before = load.requests();
    assert!(other.supervisor.take().unwrap().terminate().await.success());
    eprintln!("drained without TCP connections in {:?}", began.elapsed());
    assert!((MINIMUM..MAXIMUM).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(load.requests() > before);
    buyer.assert_no_retries().await;
    other.start_supervisor(&mesh);
    other.wait_until_live().await;
    let before = second_app.web.requests();
    eventually("traffic to the server", async || match second_app.web.requests() {
        count if count > before + 10 => Ok(()),
        count => Err(count),
    })
    .await;
    let report = load.finish().await;
    report.assert_undisturbed();
    assert!(report.calls > 0 && report.connections > 0, "{report:?}");
    eprintln!("{} requests, none failed", report.requests);
    buyer.assert_no_retries().await;

    // A caller that hangs delays the drain by 15 s, and the log names it.
    buyer.signal_envoy(Signal::STOP).await;
    let began = Instant::now();
    let mut supervisor = server.supervisor.take().unwrap();
    supervisor.signal(Signal::TERM);
    let laggard = format!("laggards=\"{}\"", buyer.name());
    eventually("the name of the laggard", async || match server.supervisor_log() {
        log if log.contains(&laggard) => Ok(()),
        log => Err(log),
    })
    .await;
    eprintln!("the laggard is named after {:?}", began.elapsed());
    assert!(supervisor.wait().await.success());
    buyer.signal_envoy(Signal::CONT).await;

    // Without a control plane, it does not wait for an answer.
    mesh.kill_control_plane().await;
    let began = Instant::now();
    assert!(other.supervisor.take().unwrap().terminate().await.success());
    eprintln!("drained without a control plane in {:?}", began.elapsed());
    let limits = MINIMUM..MAXIMUM + Duration::from_secs(5);
    assert!(limits.contains(&began.elapsed()), "{:?}", began.elapsed());
    let texts = ["leave request failed", "draining the inbound listeners", "Envoy has ended"];
    assert_order(&other.supervisor_log(), &texts);
}
