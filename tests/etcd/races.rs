//! Concurrent pushes, and interrupted pushes.

use std::process::{Output, Stdio};

use ironmesh_tests::{Etcd, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::documents::{service, write_large};
use crate::relay::Relay;
use crate::workspace::Workspace;

const CHUNKS: &str = "/ironmesh/default/policy/revisions/";
const CURRENT: &str = "/ironmesh/default/policy/current";

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Starts to push a large policy, and stops the process in the middle.
async fn push_half(etcd: &Etcd, workspace: &Workspace) -> Child {
    let before = etcd.keys(CHUNKS).await.len();
    let mut command = workspace.command(&["policy", "push", "large"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a first chunk", async || match etcd.keys(CHUNKS).await.len() {
        chunks if chunks > before => Ok(()),
        chunks => Err(chunks),
    })
    .await;
    signal(&child, Signal::STOP);
    child
}

#[tokio::test]
async fn concurrent_pushes_have_one_winner_named_to_the_loser() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("base/a.toml", &service("a"));
    let mut base = workspace.push("base").await;
    for round in 0..5 {
        for side in ["left", "right"] {
            workspace.write(&format!("{side}/a.toml"), &service(&format!("{side}{round}")));
        }
        let push = async |side: &str| {
            workspace.policy(&["push", side, "--expect", &base, "--message", side]).await
        };
        let (left, right) = tokio::join!(push("left"), push("right"));
        let (winner, loser, name) =
            if left.code == 0 { (left, right, "left") } else { (right, left, "right") };
        assert_eq!((winner.code, loser.code), (0, 1), "{winner:?} {loser:?}");
        let list =
            workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
        let current = &list["revisions"][0];
        assert_eq!(current["message"], name);
        base = current["revision"].as_str().unwrap().to_owned();
        let reported = format!("has pushed the revision {base} at ");
        assert!(loser.stderr.contains(&reported) && loser.stderr.contains("anna@"), "{loser:?}");
        assert!(loser.stderr.contains(&format!("(\"{name}\")")), "{loser:?}");
    }
}

#[tokio::test]
async fn overtaken_push_names_the_winner_and_leaves_nothing() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    write_large(&workspace, "large", "large", 1000);
    workspace.write("small/a.toml", &service("small"));
    let slow = push_half(&etcd, &workspace).await;
    // Meanwhile another push may succeed, and removes no chunks of a push in flight.
    let small = workspace.push("small").await;
    assert!(etcd.keys(CHUNKS).await.len() > 1, "the push in flight keeps its chunks");
    signal(&slow, Signal::CONT);
    let Output { status, stderr, .. } = slow.wait_with_output().await.unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("has pushed the revision {small}")), "{stderr}");
    assert_eq!(etcd.keys(CHUNKS).await.len(), 1, "of the other nothing is left");
    workspace.policy(&["pull", "out"]).await.assert_success();
}

#[tokio::test]
async fn push_retry_does_not_conflict_with_its_own_late_commit() {
    let Some(etcd) = Etcd::start().await else { return };
    let relay = Relay::start(etcd.socket(0)).await;
    let settings = format!("[policy.etcd]\nendpoints = [\"{}\"]\n", relay.endpoint());
    let Some(workspace) = Workspace::open(&settings) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let pushing = async { workspace.policy(&["push", "policy"]).await };
    let network = async {
        // The first attempt gets no answer, so there is a second: it has read that no revision is
        // current.
        eventually("a second attempt", async || match relay.held() {
            2 => Ok(()),
            held => Err(held),
        })
        .await;
        relay.release_alone(0);
        eventually("the first to come to its end", async || match etcd.keys(CURRENT).await {
            keys if keys.is_empty() => Err("nothing is current"),
            _ => Ok(()),
        })
        .await;
        relay.release(1);
    };
    let (run, ()) = tokio::join!(pushing, network);
    assert!(run.assert_success().stdout.starts_with("pushed revision "));
    assert_eq!(etcd.keys(CHUNKS).await.len(), 1, "of the second attempt nothing is left");
    workspace.set(&etcd.settings("mesh"));
    workspace.policy(&["pull", "out"]).await.assert_success();
}

#[tokio::test]
async fn killed_push_is_removed_when_its_lease_expires() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("small/a.toml", &service("small"));
    let small = workspace.push("small").await;
    let kept = etcd.keys("/ironmesh").await;
    write_large(&workspace, "large", "large", 1000);
    let mut killed = push_half(&etcd, &workspace).await;
    killed.kill().await.unwrap();
    assert!(etcd.keys("/ironmesh").await.len() > kept.len());
    let list = workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
    assert_eq!(list["revisions"].as_array().unwrap().len(), 1);
    assert_eq!(list["revisions"][0]["revision"], small);

    // All chunks hang on a lease without keepalive: etcd expires it and removes them.
    let leases = etcd.ctl(&["lease", "list"]).await;
    assert!(leases.contains("found 1 leases"), "{leases}");
    eventually("etcd to remove the interrupted push", async || {
        match etcd.keys("/ironmesh").await {
            keys if keys == kept => Ok(()),
            keys => Err(format!("{keys:?}")),
        }
    })
    .await;
    let list = workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
    assert_eq!(list["revisions"][0]["revision"], small);
    // A repeated push succeeds.
    workspace.push("large").await;
    assert!(etcd.ctl(&["lease", "list"]).await.contains("found 0 leases"), "none is left over");
}
