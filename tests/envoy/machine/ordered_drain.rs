//! An operator drains a machine over the network under load: its agent ends Envoy, and starts it again.

use ironmesh_agent_envoy::EnvoyState;
use ironmesh_tests::operator::RemoteOperator;
use ironmesh_tests::{LongConnections, Mesh, Programs, REQUESTS_PER_FAULT, eventually};
use serde_json::Value;

use super::joined::Machine;
use super::{Applications, SERVER, SHORT, STORE, UPSTREAMS, start_load, wait_until_served};
use crate::enrollment::text;

/// A service that nobody may call, which is a finding.
const TILL: &str = r#"
[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]
"#;

/// The code of that finding.
const NO_CALLERS: &str = "IM0308";

/// A mesh with the listener for operators on the network.
async fn start_mesh(programs: &Programs) -> Mesh {
    let policy =
        [("store.toml", STORE), ("beside.toml", LongConnections::POLICY), ("till.toml", TILL)];
    let mut mesh = Mesh::prepare("", programs, &policy);
    // The last table is `[listen]`.
    mesh.add_settings(&format!("api = \"{}\"", mesh.loopback().socket(1, 15130)));
    mesh.restart_control_plane().await;
    mesh
}

/// The finding about the service that nobody may call, as a remote operator sees it.
async fn finding_of_till(operator: &RemoteOperator) -> Value {
    let list = operator.succeed(&["finding", "list", "--output", "json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let findings = list["findings"].as_array().unwrap().iter();
    let mut ours = findings.filter(|one| {
        one["code"] == NO_CALLERS && one["message"].as_str().unwrap().contains("till")
    });
    match (ours.next(), ours.next()) {
        (Some(finding), None) => finding.clone(),
        _ => panic!("{list:#}"),
    }
}

/// The cordon of a proxy, as `proxy show` prints it.
async fn cordon(mesh: &Mesh, name: &str) -> anyhow::Result<Value> {
    let output = mesh.run(&["proxy", "show", name, "--output", "json"]).await;
    anyhow::ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice::<Value>(&output.stdout)?["cordon"].take())
}

async fn wait_for_state(machine: &Machine, expected: EnvoyState) {
    eventually("the state of the supervisor", async || {
        let status = machine.status().await?;
        anyhow::ensure!(status.state == expected, "{status:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_drain_fails_no_request_and_can_be_undone() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = start_mesh(&programs).await;
    let ann = RemoteOperator::new(&mesh, "ann", "operator").await;
    let first_app = Applications::start(&mesh, 21).await;
    let _second_app = Applications::start(&mesh, 22).await;
    let mut server = Machine::start(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    let _other = Machine::start(&mesh, &programs, 22, &SERVER, ("", SHORT)).await;
    let buyer = Machine::start(&mesh, &programs, 11, &["default/buyer"], (UPSTREAMS, SHORT)).await;
    wait_until_served(&buyer).await;
    let load = start_load(&buyer);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let name = server.name();
    eventually("the version of the agent", async || {
        let output = mesh.run(&["proxy", "show", &name, "--output", "json"]).await;
        let shown: Value = serde_json::from_slice(&output.stdout)?;
        anyhow::ensure!(shown["versions"]["agent"] == env!("CARGO_PKG_VERSION"), "{shown:#}");
        Ok(())
    })
    .await;

    let versions = ann.succeed(&["proxy", "versions"]).await;
    assert!(versions.contains(env!("CARGO_PKG_VERSION")), "{versions}");
    let shown = ann.succeed(&["proxy", "drain", &name, "--reason", "a new kernel"]).await;
    assert!(shown.contains("all connected callers have ACKed that"), "{shown}");
    assert!(shown.contains("its agent drains and ends Envoy"), "{shown}");
    wait_for_state(&server, EnvoyState::Drained).await;
    eventually("the report of the agent", async || {
        let cordon = cordon(&mesh, &name).await?;
        anyhow::ensure!(cordon["machine"] == "drained", "{cordon:#}");
        Ok(())
    })
    .await;
    assert!(server.status().await.unwrap().envoy.is_none());
    let log = server.supervisor_log();
    assert!(log.contains("all callers have left") && log.contains("Envoy has ended"), "{log}");
    let reason = server.failed_reload(&mesh).await;
    assert!(reason.contains("until the proxy is uncordoned"), "{reason}");
    let status = server.agent_status(&mesh).await;
    assert!(status["problems"].to_string().contains("Envoy is drained by an order"), "{status:#}");
    let journal = ann.succeed(&["journal", "--kind", "drain"]).await;
    assert!(journal.contains("  ann  ") && journal.contains("a new kernel"), "{journal}");
    // A machine that is off on purpose is no problem of the mesh.
    let status = text(&mesh.run(&["status"]).await);
    assert!(status.contains("note: 1 proxy is out of service, by an operator"), "{status}");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    let finding = finding_of_till(&ann).await;
    assert_eq!(finding["silenced"], Value::Null, "{finding:#}");
    let silence = ["finding", "silence", NO_CALLERS, "--for", "2s", "--reason", "no machine yet"];
    ann.succeed(&silence).await;
    let silenced = finding_of_till(&ann).await["silenced"].take();
    assert_eq!(silenced["by"], "operator ann", "{silenced:#}");
    eventually("the silence to expire", async || {
        match finding_of_till(&ann).await["silenced"].take() {
            Value::Null => Ok(()),
            silenced => Err(silenced),
        }
    })
    .await;

    // The machine boots, and the control plane, too: callers do not use it, and it is not drained again.
    assert!(server.supervisor.take().unwrap().terminate().await.success());
    assert!(server.agent.take().unwrap().terminate().await.success());
    mesh.restart_control_plane().await;
    server.start_agent(&mesh);
    server.start_supervisor(&mesh);
    server.wait_until_live().await;
    server.wait_for_connection(true).await;
    let before = first_app.web.requests();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(first_app.web.requests(), before, "callers do not use it");
    assert_eq!(cordon(&mesh, &name).await.unwrap()["machine"], "drained");

    // A second order, whose end starts Envoy again.
    let shown = ann.succeed(&["proxy", "uncordon", &name]).await;
    assert!(shown.contains("its agent starts Envoy again within "), "{shown}");
    let is_used = async |before: u64| {
        eventually("traffic to the server", async || match first_app.web.requests() {
            count if count > before + 10 => Ok(()),
            count => Err(count),
        })
        .await;
    };
    is_used(before).await;
    text(&mesh.run(&["proxy", "drain", &name]).await);
    wait_for_state(&server, EnvoyState::Drained).await;
    let before = first_app.web.requests();
    text(&mesh.run(&["proxy", "uncordon", &name]).await);
    server.wait_until_live().await;
    is_used(before).await;
    let report = load.finish().await;
    report.assert_undisturbed();
    assert!(report.calls > 0 && report.connections > 0, "{report:?}");
    buyer.assert_no_retries().await;
    assert_eq!(cordon(&mesh, &name).await.unwrap(), Value::Null);
}
