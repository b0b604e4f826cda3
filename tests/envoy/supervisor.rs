//! `ironmesh envoy run` and `reload` with a real Envoy: crashes, hot restarts and drain. A static bootstrap
//! stands for the mesh.

mod machine;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use ironmesh_agent_envoy::{EnvoyState, SupervisorClient};
use ironmesh_tests::ledger::{Ledger, TcpConnection};
use ironmesh_tests::{Load, Programs, REQUESTS_PER_FAULT, eventually};
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::Instant;

use machine::{Machine, command, is_running, kill, write_settings};

const SHORT: &str = "drain_time = \"1s\"\nparent_shutdown_time = \"2s\"\ndrain_minimum = \"1s\"";

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_envoy_is_back_within_three_seconds() {
    let Some(programs) = Programs::find() else { return };
    let mut machine = Machine::start(&programs, SHORT).await;
    let socket = machine.path().join("supervisor.sock");
    assert_eq!(fs_err::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
    let first = machine.envoy().await;
    kill(first, Signal::KILL);
    let killed = Instant::now();
    eventually("a new Envoy", async || {
        let status = machine.status().await?;
        anyhow::ensure!(status.envoy.is_some_and(|envoy| envoy.pid != first), "not yet");
        machine.get().await
    })
    .await;
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    let status = machine.wait_until_live().await;
    assert_eq!((status.restarts, status.envoy.unwrap().epoch), (1, 0));
    assert!(status.last_error.unwrap().contains("Envoy ended by itself"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_restart_loses_no_request_and_a_bad_one_changes_nothing() {
    let Some(programs) = Programs::find() else { return };
    let mut machine = Machine::start(&programs, SHORT).await;
    let _ledger = Ledger::start("ledger", machine.socket(8081)).await;
    let load = Load::start(machine.socket(15003), "test", "/");
    let mut connection = TcpConnection::connect(machine.socket(15004)).await.unwrap();
    connection.line().await.unwrap();
    connection.exchange("before").await.unwrap();

    machine.write_bootstrap("two", 15004);
    let output = machine.command("reload").await;
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("serves as epoch 1; epoch 0 ends at"), "{stdout}");
    assert!(stdout.contains("closes 1 TCP connection"), "{stdout}");
    assert_eq!(machine.get().await.unwrap(), "two");
    // An established TCP connection goes on, until its Envoy ends.
    connection.exchange("during").await.unwrap();
    eventually("the end of the connection", async || {
        let exchanged = connection.exchange("after").await;
        if exchanged.is_ok() { Err("still open") } else { Ok(()) }
    })
    .await;

    // Envoy rejects this bootstrap.
    let serving = machine.envoy().await;
    fs_err::write(machine.path().join("envoy.yaml"), "no_such_field: 1").unwrap();
    let output = machine.command("reload").await;
    let (stdout, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(
        stdout.contains("Envoy rejects the bootstrap") && stdout.contains("no_such_field"),
        "{stdout}"
    );
    assert_eq!(machine.envoy().await, serving);

    // Envoy accepts this one, and its start fails: the port is in use.
    let blocker = TcpListener::bind(machine.socket(15005)).await.unwrap();
    machine.write_bootstrap("three", 15005);
    let output = machine.command("reload").await;
    let (stdout, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("ended before it was live"), "{stdout}");
    assert_eq!(machine.envoy().await, serving);
    assert_eq!(machine.get().await.unwrap(), "two");

    // The next reload succeeds in spite of the failed ones.
    drop(blocker);
    let output = machine.command("reload").await;
    assert!(output.status.success(), "{:?}", texts(&output));
    assert_eq!(machine.get().await.unwrap(), "three");
    let status = machine.wait_until_live().await;
    assert_eq!(status.envoy.unwrap().epoch, 2);
    load.wait_for_requests(load.requests() + REQUESTS_PER_FAULT).await;
    let report = load.finish().await;
    assert_eq!(report.failed, 0, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_supervisor_leaves_no_envoy_and_the_next_starts_at_once() {
    let Some(programs) = Programs::find() else { return };
    let mut machine = Machine::start(&programs, SHORT).await;
    let output = machine.command("run").await;
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    let supervisor = machine.supervisor.id().unwrap();
    let rejected = format!("process {supervisor} already supervises the Envoy of");
    assert!(stderr.contains(&rejected), "{stderr}");

    let envoy = machine.envoy().await;
    machine.supervisor.kill_hard().await;
    // At once: the old Envoy may still be ending.
    machine.start_supervisor();
    let status = machine.wait_until_live().await;
    assert_ne!(status.envoy.unwrap().pid, envoy);
    assert_eq!(machine.get().await.unwrap(), "one");
    eventually(
        "the end of the old Envoy",
        async || {
            if is_running(envoy) { Err("it runs") } else { Ok(()) }
        },
    )
    .await;
    // Its end affects nothing of the new one.
    let output = machine.command("reload").await;
    assert!(output.status.success(), "{:?}", texts(&output));
    assert_eq!(machine.wait_until_live().await.envoy.unwrap().epoch, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_supervisor_starts_envoy_again_or_stops() {
    let Some(programs) = Programs::find() else { return };
    let settings = format!("{SHORT}\ndrain_maximum = \"4s\"");
    let mut machine = Machine::start(&programs, &settings).await;
    let _ledger = Ledger::start("ledger", machine.socket(8081)).await;
    let client = SupervisorClient::new(machine.path());
    let state = async |expected: EnvoyState| {
        eventually(&format!("the state {expected:?}"), async || match client.status().await {
            Ok(status) if status.state == expected => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await
    };
    let first = machine.envoy().await;
    client.resume().await.unwrap();
    client.hold().await.unwrap();
    assert!(state(EnvoyState::Drained).await.envoy.is_none());
    assert!(!is_running(first));
    machine.supervisor.assert_running();
    // Nothing but the command starts it, and the command is repeatable.
    client.hold().await.unwrap();
    let output = machine.command("reload").await;
    let (stdout, _) = texts(&output);
    assert!(stdout.contains("Envoy is drained, until the proxy is uncordoned"), "{stdout}");
    for _ in 0..2 {
        client.resume().await.unwrap();
    }
    let second = machine.wait_until_live().await;
    assert!(second.restarts == 0 && second.envoy.unwrap().pid != first);
    assert_eq!(machine.get().await.unwrap(), "one");

    // A signal during the drain does not cut it: an established connection gets the maximum.
    let mut connection = TcpConnection::connect(machine.socket(15004)).await.unwrap();
    connection.line().await.unwrap();
    client.hold().await.unwrap();
    state(EnvoyState::Draining).await;
    let began = Instant::now();
    machine.supervisor.signal(Signal::TERM);
    connection.exchange("during the drain").await.unwrap();
    assert!(machine.supervisor.wait().await.success());
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());

    // A held supervisor ends at a signal.
    machine.start_supervisor();
    machine.wait_until_live().await;
    client.hold().await.unwrap();
    state(EnvoyState::Drained).await;
    assert!(machine.supervisor.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_connections_until_the_maximum() {
    let Some(programs) = Programs::find() else { return };
    let settings = format!("{SHORT}\ndrain_maximum = \"4s\"");
    let mut machine = Machine::start(&programs, &settings).await;
    let _ledger = Ledger::start("ledger", machine.socket(8081)).await;
    let client = SupervisorClient::new(machine.path());
    let connect = async || {
        let mut connection = TcpConnection::connect(machine.socket(15004)).await.unwrap();
        connection.line().await.unwrap();
        connection.exchange("line").await.unwrap();
        connection
    };

    // The connection ends first.
    let mut connection = connect().await;
    client.drain().await.unwrap();
    eventually("the drain", async || match client.status().await {
        Ok(status) if status.state == EnvoyState::Draining => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    connection.exchange("during the drain").await.unwrap();
    let ended = Instant::now();
    drop(connection);
    assert!(machine.supervisor.wait().await.success());
    assert!(ended.elapsed() < Duration::from_secs(3), "{:?}", ended.elapsed());

    // The maximum ends first.
    machine.start_supervisor();
    let envoy = machine.wait_until_live().await.envoy.unwrap().pid;
    let mut connection = TcpConnection::connect(machine.socket(15004)).await.unwrap();
    connection.line().await.unwrap();
    connection.exchange("line").await.unwrap();
    let began = Instant::now();
    assert!(machine.supervisor.terminate().await.success());
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(!is_running(envoy));
    connection.exchange("closed").await.unwrap_err();

    // A second signal ends the drain.
    machine.start_supervisor();
    machine.wait_until_live().await;
    let _connection = TcpConnection::connect(machine.socket(15004)).await.unwrap();
    machine.supervisor.signal(Signal::INT);
    eventually("the drain", async || match client.status().await {
        Ok(status) if status.state == EnvoyState::Draining => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let began = Instant::now();
    assert!(machine.supervisor.terminate().await.success());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_binary_is_rejected_with_the_reason() {
    let Some(programs) = Programs::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("envoy");
    let problem = async |binary: &Path| {
        write_settings(folder.path(), binary, "");
        let output = command(&programs, folder.path(), "run").await;
        assert_eq!(output.status.code(), Some(1));
        texts(&output).1
    };
    let missing = problem(&binary).await;
    assert!(missing.contains("does not exist"), "{missing}");

    // A program of a different architecture: 8 is MIPS.
    let mut program = fs_err::read(&programs.ironmesh).unwrap();
    program[18..20].copy_from_slice(&[8, 0]);
    fs_err::write(&binary, &program[..4096]).unwrap();
    fs_err::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let other = problem(&binary).await;
    assert!(other.contains("it is for architecture 8, and this machine is"), "{other}");

    let not_envoy = problem(&programs.ironmesh).await;
    assert!(not_envoy.contains("is not Envoy: `--version` printed `ironmesh"), "{not_envoy}");

    let source = folder.path().join("old.c");
    let line =
        "envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.30.0/Clean/RELEASE/BoringSSL";
    fs_err::write(&source, format!("#include <stdio.h>\nint main() {{ puts(\"{line}\"); }}\n"))
        .unwrap();
    fs_err::remove_file(&binary).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).status().await.unwrap();
    assert!(compiled.success());
    let old = problem(&binary).await;
    assert!(old.contains("Envoy 1.30.0 at") && old.contains("is too old: install 1.39"), "{old}");
}
