//! The state folder of a control plane when it fails, is lost, or is changed by others.

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use crate::command::Run;
use crate::first_start::greet;
use crate::server::Server;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// A ready server with its process.
async fn ready() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/a.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

/// Runs `status` until it exits with this code and has these words; empty words match anything.
async fn status(server: &Server, code: i32, words: &str) -> Run {
    eventually("the status", async || match server.run(&["status"]) {
        run if run.code == code && run.stdout.contains(words) => Ok(run),
        run => Err(format!("{run:?}")),
    })
    .await
}

/// The codes of the findings of `/readyz`.
async fn codes(server: &Server) -> Vec<String> {
    let readiness = server.readyz().await.json();
    let findings = readiness["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

fn bootstrap(server: &Server, last: u8, more: &[&str]) -> Run {
    let (address, out) = (format!("127.0.0.{last}"), format!("proxy-{last}"));
    let known = ["proxy", "bootstrap", "--service", "store", "--address", &address, "--out", &out];
    server.run(&[&known, more].concat())
}

fn proxies(server: &Server) -> Vec<String> {
    let run = server.run(&["proxy", "list", "--output", "json"]);
    let list: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
    list.iter().map(|proxy| proxy["id"].as_str().unwrap().to_owned()).collect()
}

/// Limits the size of files that a process writes; 0 simulates a full disk.
fn limit_files(child: &Child, current: Option<u64>) {
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap());
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_reported_and_the_store_recovers_without_restart() {
    let Some((server, mut child)) = ready().await else { return };
    assert_eq!(bootstrap(&server, 1, &[]).code, 0);
    status(&server, 0, "").await;

    limit_files(&child, Some(0));
    let run = bootstrap(&server, 2, &[]);
    assert_eq!(run.code, 1, "{run:?}");
    status(&server, 1, "wrong: error[IM0701]: the state file `").await;
    assert_eq!(codes(&server).await, ["IM0701"]);
    child.assert_running();

    limit_files(&child, getrlimit(Resource::Fsize).maximum);
    status(&server, 0, "").await;
    assert!(codes(&server).await.is_empty());
    let run = bootstrap(&server, 3, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = server.run(&["proxy", "revoke", &proxies(&server)[0]]);
    assert_eq!(run.code, 0, "{run:?}");
    child.assert_running();
    assert!(child.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_state_folder_and_new_authority_are_reported() {
    let Some((server, mut child)) = ready().await else { return };
    fs::remove_dir_all(server.state()).unwrap();
    let run = status(&server, 1, "wrong: error[IM0702]: the state file `").await;
    // A restart would make the loss permanent, so no command says that the control plane does not run.
    for command in [&["proxy", "list"][..], &["endpoints"], &["policy", "wait"]] {
        let run = server.run(command);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(
            run.stderr.contains("Do NOT restart it") && run.stderr.contains("IM0702"),
            "{run:?}"
        );
    }
    assert!(run.stdout.contains("wrong: the admin socket"), "{run:?}");
    assert_eq!(codes(&server).await, ["IM0702"]);
    assert!(child.terminate().await.success());

    let mut child = server.start().await;
    server.ready().await;
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert!(log.contains("created a new certificate authority"), "{log}");
    // Nothing is known before a proxy connects.
    status(&server, 0, "").await;
    // A proxy of the old authority does not trust the new one, and reconnects repeatedly.
    for _ in 0..2 {
        let rejection = greet(server.loopback.socket(1, 15128)).await;
        assert!(rejection.contains("UnknownIssuer"), "{rejection}");
    }
    let run = status(&server, 1, "wrong: error[IM0704]: clients reject").await;
    assert!(run.stdout.contains("restore it with its key-encryption key"), "{run:?}");
    let readiness = server.readyz().await.json();
    assert_eq!(readiness["handshakes"]["rejected"], 2, "{readiness:#}");
    let reason = readiness["handshakes"]["last"]["reason"].as_str().unwrap();
    assert!(reason.contains("UnknownCA"), "{readiness:#}");

    let run = bootstrap(&server, 1, &[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("IM0704"), "{run:?}");
    assert!(proxies(&server).is_empty());
    let run = bootstrap(&server, 1, &["--new-authority"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(child.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_handshakes_are_a_note_unless_of_an_enrolled_proxy() {
    let Some((server, _child)) = ready().await else { return };
    for _ in 0..2 {
        greet(server.loopback.socket(1, 15128)).await;
    }
    let run = status(&server, 0, "note: 2 TLS handshakes with 127.0.0.1 failed").await;
    assert!(run.stdout.contains("UnknownCA"), "{run:?}");
    assert_eq!(bootstrap(&server, 1, &["--new-authority"]).code, 0);
    let run = status(&server, 1, "wrong: 2 TLS handshakes with 127.0.0.1 failed").await;
    assert!(run.stdout.contains("proxy store-1 is enrolled at this address"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_join_record_is_not_served_and_is_reported_until_removed() {
    let Some((server, mut child)) = ready().await else { return };
    for last in [1, 2] {
        assert_eq!(bootstrap(&server, last, &[]).code, 0);
    }
    let before = proxies(&server);
    assert!(child.terminate().await.success());
    // The mesh address of one of them, wherever the file has it.
    let file = server.state().join("state.redb");
    let mut bytes = fs::read(&file).unwrap();
    let (from, to) = (b"127.0.0.2:15003", b"127.0.0.2:15803");
    let windows = bytes.windows(from.len()).enumerate();
    let places: Vec<_> = windows.filter(|(_, window)| window == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(&file, bytes).unwrap();

    let mut child = server.start().await;
    server.ready().await;
    let after = proxies(&server);
    assert_eq!(after.len(), 1);
    let lost = before.iter().find(|id| !after.contains(id)).unwrap();
    let words = format!("wrong: error[IM0703]: the stored join record of proxy {lost} is not used");
    status(&server, 1, &words).await;
    let run = server.run(&["proxy", "revoke", lost]);
    assert_eq!(run.code, 0, "{run:?}");
    status(&server, 0, "").await;
    assert!(child.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn older_copy_of_the_state_is_served_and_reported_until_accepted() {
    let Some((server, mut child)) = ready().await else { return };
    assert_eq!(bootstrap(&server, 1, &[]).code, 0);
    assert!(child.terminate().await.success());
    let (file, mark) = (server.state().join("state.redb"), server.state().join("high-water"));
    let copy = fs::read(&file).unwrap();

    let mut child = server.start().await;
    server.ready().await;
    let proxy = &proxies(&server)[0];
    assert_eq!(server.run(&["proxy", "revoke", proxy]).code, 0);
    // The mark was written before the answer, so a crash changes nothing.
    child.kill_hard().await;
    fs::write(&file, copy).unwrap();

    let mut child = server.start().await;
    server.ready().await;
    status(&server, 1, "wrong: error[IM0705]: the state file `").await;
    assert_eq!(codes(&server).await, ["IM0705"]);
    assert_eq!(server.run(&["proxy", "revoke", proxy]).code, 0);
    assert!(child.terminate().await.success());
    let mut child = server.start().await;
    server.ready().await;
    status(&server, 1, "IM0705").await;
    assert!(child.terminate().await.success());

    fs::remove_file(mark).unwrap();
    let mut child = server.start().await;
    server.ready().await;
    status(&server, 0, "").await;
    assert!(child.terminate().await.success());
}
