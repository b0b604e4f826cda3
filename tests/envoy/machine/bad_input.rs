//! What is wrong on a machine when its supervisor starts, or reloads Envoy.

use ironmesh_agent_envoy::ReloadProgress;
use ironmesh_tests::{Programs, eventually};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::joined::Machine;
use super::{SERVER, SHORT, start_mesh};

#[tokio::test(flavor = "multi_thread")]
async fn supervisor_rejects_bad_input_and_says_what_to_do() {
    let Some(programs) = Programs::find() else { return };
    let mesh = start_mesh(&programs).await;
    let mut machine = Machine::new(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    machine.start_agent(&mesh);
    eventually("the machine to be enrolled", async || {
        if machine.path("proxy").exists() { Ok(()) } else { Err("no folder") }
    })
    .await;

    // At the start.
    let overlay = machine.path("overlay.yaml");
    let with_overlay = "bootstrap_overlay = \"overlay.yaml\"";
    for (text, words) in [
        ("no_such_field: 1", ["Envoy rejects the bootstrap", "no_such_field"]),
        ("node: { id: other }", ["overlay", "node.id"]),
        ("dynamicResources: {}", ["overlay", "dynamic_resources"]),
        ("stats_config: [", ["overlay.yaml", "malformed"]),
    ] {
        fs_err::write(&overlay, text).unwrap();
        machine.write_settings("", with_overlay);
        let reason = machine.rejection(&mesh).await;
        for word in words {
            assert!(reason.contains(word), "no {word:?} in {reason}");
        }
    }
    let other_hash = format!("sha256:{}", "0".repeat(64));
    machine.write_hash(&other_hash);
    let reason = machine.rejection(&mesh).await;
    assert!(reason.contains("belongs to another mesh: its CA hash is"), "{reason}");
    machine.write_settings("", "");

    // Another process has the port of the metrics: Envoy ends. It is started again until the port is free.
    let blocker = TcpListener::bind(machine.socket(15010)).await.unwrap();
    machine.start_supervisor(&mesh);
    let status = eventually("the end of Envoy", async || {
        let status = machine.status().await?;
        anyhow::ensure!(status.restarts >= 2, "{status:?}");
        anyhow::Ok(status)
    })
    .await;
    let error = status.last_error.unwrap();
    assert!(error.starts_with("Envoy ended by itself: exit status: 1; see its log"), "{error}");
    let log = machine.supervisor_log();
    let port = format!("cannot bind '{}'", machine.socket(15010));
    assert!(log.contains(&port), "{log}");
    drop(blocker);
    let started = machine.wait_until_live().await;
    machine.wait_for_connection(true).await;

    // At a reload: the old Envoy serves.
    fs_err::write(&overlay, "no_such_field: 1").unwrap();
    machine.write_settings("", with_overlay);
    let reason = machine.failed_reload(&mesh).await;
    assert!(reason.contains("no_such_field"), "{reason}");
    machine.write_hash(&other_hash);
    let reason = machine.failed_reload(&mesh).await;
    assert!(reason.contains("belongs to another mesh"), "{reason}");
    machine.write_settings("", "");
    assert_eq!(machine.status().await.unwrap().envoy, started.envoy);
    assert!(machine.supervisor.take().unwrap().terminate().await.success());

    // Another process has the port of the mesh: Envoy runs without that listener, and both sides say so.
    let blocker = TcpListener::bind(machine.socket(15003)).await.unwrap();
    machine.start_supervisor(&mesh);
    machine.wait_until_live().await;
    eventually("the problem", async || {
        let problems = machine.agent_status(&mesh).await["problems"].to_string();
        if problems.contains("Envoy NACKs a resource") { Ok(()) } else { Err(problems) }
    })
    .await;
    let shown = mesh.run(&["proxy", "show", &machine.name()]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("cannot bind"), "{shown}");
    // A reload takes the port, as soon as it is free.
    drop(blocker);
    let step = machine.reload(&mesh).await;
    assert!(matches!(step, ReloadProgress::Done { .. }), "{step}");
    eventually("a machine without problems", async || match machine.agent_status(&mesh).await {
        status if status["problems"] == json!([]) => Ok(()),
        status => Err(status),
    })
    .await;
    TcpStream::connect(machine.socket(15003)).await.unwrap();
}
