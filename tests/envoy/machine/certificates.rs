//! The renewal of a machine's certificate while its Envoy runs under the supervisor, and after its end.

use ironmesh_tests::{Http1Connection, Load, Mesh, Programs, REQUESTS_PER_FAULT, eventually};
use serde_json::{Value, json};

use super::joined::{Machine, make_renewal_due};
use super::{Applications, SERVER, SHORT, UPSTREAMS, start_mesh, wait_until_served};

const DAY: i64 = 24 * 3600;

/// All addresses of the control plane but the second one are dead, so this is also a test of failover.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_under_the_supervisor_restarts_nothing() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = start_mesh(&programs).await;
    let _applications = Applications::start(&mesh, 21).await;
    let _server = Machine::start(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    let mut buyer =
        Machine::start(&mesh, &programs, 11, &["default/buyer"], (UPSTREAMS, SHORT)).await;
    wait_until_served(&buyer).await;
    let before = buyer.status().await.unwrap().envoy.unwrap();
    let first = buyer.serial().await;
    let load = Load::start(buyer.socket(14001), "store", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    assert!(buyer.agent.take().unwrap().terminate().await.success());
    make_renewal_due(&buyer.path("proxy"));
    buyer.start_agent(&mesh);
    let second = eventually("another certificate", async || match buyer.serial().await {
        serial if serial != first => Ok(serial),
        serial => Err(serial),
    })
    .await;
    // The stream goes on; the next one presents the new certificate.
    buyer.wait_for_connection(true).await;
    mesh.restart_control_plane().await;
    buyer.wait_for_connection(true).await;
    assert_eq!(buyer.serial().await, second);
    assert!(!mesh.log().contains("should not be in use"));
    let status = buyer.agent_status(&mesh).await;
    assert_eq!(status["problems"], json!([]), "{status:#}");
    assert_eq!(status["control_plane"]["sync"], "synced", "{status:#}");
    assert_eq!(buyer.status().await.unwrap().envoy.unwrap(), before);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    // Without a control plane, a reload is refused, and the old Envoy serves.
    mesh.kill_control_plane().await;
    buyer.wait_for_connection(false).await;
    let reason = buyer.failed_reload(&mesh).await;
    assert!(reason.contains("is not connected to the control plane"), "{reason}");
    let status = buyer.wait_until_live().await;
    assert!(status.last_error.as_deref().is_some_and(|error| error.contains(&reason)));
    assert_eq!(status.envoy.unwrap(), before);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    buyer.assert_no_retries().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_renews_an_expired_certificate_only_within_the_grace() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = start_mesh(&programs).await;
    mesh.restart_with_own_clock().await;
    let mut machine =
        Machine::start(&mesh, &programs, 11, &["default/buyer"], (UPSTREAMS, SHORT)).await;
    machine.wait_for_connection(true).await;
    let first = machine.serial().await;
    stop(&mut machine).await;

    // The certificate of 30 days expired while the machine was off.
    mesh.set_clock(31 * DAY);
    mesh.restart_control_plane().await;
    let status = machine.agent_status(&mesh).await;
    assert!(problems(&status).contains("it can be renewed for 7 days"), "{status:#}");
    machine.start_supervisor(&mesh);
    machine.start_agent(&mesh);
    machine.wait_until_live().await;
    machine.wait_for_connection(true).await;
    assert_ne!(machine.serial().await, first);
    eventually("a machine without problems", async || match machine.agent_status(&mesh).await {
        status if status["problems"] == json!([]) => Ok(()),
        status => Err(status),
    })
    .await;
    let mut connection = Http1Connection::connect(machine.socket(15010)).await.unwrap();
    let metrics = connection.get("/agent/metrics", "machine").await.unwrap().text();
    assert!(metrics.contains("renewals_total{outcome=\"renewed\"} 1"), "{metrics}");
    stop(&mut machine).await;

    // The next one expired more than 7 days ago.
    mesh.set_clock((31 + 30 + 8) * DAY);
    mesh.restart_control_plane().await;
    machine.start_supervisor(&mesh);
    machine.start_agent(&mesh);
    let status = status_with(&machine, &mesh, "the last attempt of the agent failed").await;
    let problems = problems(&status);
    let action = "too old to be renewed: remove the folder and enroll the machine again";
    assert!(problems.contains(action), "{problems}");
    assert!(problems.contains("more than 7 days ago"), "{problems}");
    let output = machine.run(&mesh, &["agent", "status"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

async fn stop(machine: &mut Machine) {
    assert!(machine.supervisor.take().unwrap().terminate().await.success());
    assert!(machine.agent.take().unwrap().terminate().await.success());
}

fn problems(status: &Value) -> String {
    status["problems"].to_string()
}

async fn status_with(machine: &Machine, mesh: &Mesh, problem: &str) -> Value {
    eventually("the status of the machine", async || match machine.agent_status(mesh).await {
        status if problems(&status).contains(problem) => Ok(status),
        status => Err(status),
    })
    .await
}
