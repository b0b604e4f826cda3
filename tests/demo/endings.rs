//! Every end of a demo leaves neither process nor folder.

use std::path::PathBuf;
use std::process::Stdio;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::time::timeout;

use crate::live::Demo;
use crate::workspace::Workspace;

const JSON: [&str; 2] = ["--output", "json"];
/// The suite itself may run under `nohup`, and ignored signals are inherited.
const WITHOUT_IGNORED_SIGHUP: [&str; 2] = ["env", "--default-signal=HUP"];

/// A demo in the middle of its start: the first Envoy runs.
async fn starting_demo(workspace: &Workspace) -> Demo {
    let mut demo = workspace.start(&JSON);
    eventually("the first Envoy", async || {
        demo.child.assert_running();
        let traces = workspace.processes();
        let is_there = traces.iter().any(|trace| trace.command.contains("envoy.yaml"));
        if is_there { Ok(()) } else { Err(format!("{traces:?}")) }
    })
    .await;
    demo
}

#[tokio::test]
async fn sigkill_while_running_leaves_nothing_behind() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    demo.started().await;
    // The demo, its caretaker, the control plane and five Envoys: all are visible.
    assert_eq!(workspace.processes().len(), 8, "{:?}", workspace.processes());
    demo.child.kill_hard().await;
    workspace.wait_until_nothing_left().await;
}

#[tokio::test]
async fn sigkill_during_startup_leaves_nothing_behind() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = starting_demo(&workspace).await;
    demo.child.kill_hard().await;
    workspace.wait_until_nothing_left().await;
}

#[tokio::test]
async fn sigterm_during_startup_ends_the_demo() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = starting_demo(&workspace).await;
    demo.stop_with(Signal::TERM).await;
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn sigterm_ends_the_demo() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    demo.started().await;
    demo.stop_with(Signal::TERM).await;
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn second_sigint_kills_remaining_processes() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    demo.started().await;
    let envoy = workspace.process(&["/proxies/bookbuyer/envoy.yaml"]).unwrap();
    // From now on it reacts only to SIGKILL.
    kill_process(Pid::from_raw(envoy.id).unwrap(), Signal::STOP).unwrap();
    demo.child.signal(Signal::INT);
    eventually("the others to end", async || workspace.process(&["envoy.yaml"]).map(drop)).await;
    demo.stop_with(Signal::INT).await;
    let words = "ironmesh demo: second signal: killing the remaining programs\n";
    assert!(demo.text().contains(words), "{}", demo.text());
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn sighup_ends_the_demo() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start_through(&WITHOUT_IGNORED_SIGHUP, &JSON);
    demo.started().await;
    demo.stop_with(Signal::HUP).await;
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn demo_under_nohup_survives_sighup() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start_through(&["nohup"], &JSON);
    let started = demo.started().await;
    let active = |text: &str| text.matches(r#""event":"policy_active""#).count();
    let before = active(&demo.text());
    demo.child.signal(Signal::HUP);
    // The demo lives, and goes on.
    fs::remove_file(started.policy_folder.join("thieves.toml")).unwrap();
    demo.wait_for("another policy", |text| (active(text) > before).then_some(())).await;
    demo.stop_with(Signal::TERM).await;
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn closed_stdout_ends_the_demo_without_an_error() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut command = workspace.command(&["demo"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    timeout(patience(), stdout.read_line(&mut line)).await.unwrap().unwrap();
    assert!(line.starts_with("the bookstore runs: "), "{line}");
    drop(stdout);
    let status = timeout(patience(), process.wait()).await.unwrap().unwrap();
    let mut reported = String::new();
    process.stderr.take().unwrap().read_to_string(&mut reported).await.unwrap();
    assert!(status.success(), "{status}\n{reported}");
    assert!(reported.lines().all(|line| line.starts_with("ironmesh demo: ")), "{reported}");
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn envoy_failure_ends_the_demo_and_keeps_the_logs() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    let started = demo.started().await;
    let envoy = workspace.process(&["/proxies/bookbuyer/envoy.yaml"]).unwrap();
    kill_process(Pid::from_raw(envoy.id).unwrap(), Signal::KILL).unwrap();
    let status = demo.child.wait().await;
    let text = demo.text();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("the Envoy of bookbuyer has ended by itself: signal: 9"), "{text}");

    // Only the logs stay, and the output names their folder.
    let kept =
        text.lines().find_map(|line| line.strip_prefix("ironmesh demo: the logs are kept in "));
    let kept = PathBuf::from(kept.unwrap_or_else(|| panic!("{text}")));
    assert_eq!(Some(kept.as_path()), started.policy_folder.parent());
    for log in ["control-plane.log", "envoy-bookbuyer.log"] {
        assert!(!fs::read(kept.join(log)).unwrap().is_empty(), "{log}");
    }
    assert_eq!(workspace.processes(), []);
    fs::remove_dir_all(kept).unwrap();
    workspace.assert_nothing_left();
}
