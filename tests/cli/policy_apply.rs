//! `ironmesh policy apply`, and rollback with releases.

use fs_err as fs;
use ironmesh_tests::Http1Connection;
use ironmesh_tests::process::Child;
use serde_json::Value;
use tokio::process::Command;

use crate::server::{Server, files};

fn service(name: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\n")
}

/// Applies one service. Returns the revision.
fn apply(server: &Server, name: &str) -> String {
    server.workspace.write("rules/a/b.toml", &service(name));
    let done = server.json(&["policy", "apply", "rules", "--message", name]);
    assert_eq!(done["applied"], true, "{done:#}");
    done["policy"]["revision"].as_str().unwrap().to_owned()
}

async fn policy(server: &Server) -> Value {
    server.readyz().await.json()["policy"].clone()
}

#[tokio::test]
async fn applied_policy_is_active_and_a_restart_keeps_it() {
    let Some(server) = Server::open_with_releases() else { return };
    let mut child = server.start().await;
    let run = server.run(&["status"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("there is no release yet: `ironmesh policy apply DIR`"), "{run:?}");
    assert_eq!(server.readyz().await.status, 503);

    server.workspace.write("rules/a.toml", &service("one"));
    let run = server.run(&["policy", "apply", "rules", "--wait"]);
    assert_eq!(run.code, 0, "{run:?}");
    let first = policy(&server).await["revision"].as_str().unwrap().to_owned();
    let mut lines = run.stdout.lines();
    assert_eq!(lines.next(), Some(&*format!("applied revision {first}: 1 document")), "{run:?}");
    assert!(lines.next().unwrap().starts_with(&format!("revision {first} is synced")), "{run:?}");
    let run = server.run(&["policy", "apply", "rules"]);
    let expected = format!("revision {first} is already active: nothing to apply\n");
    assert_eq!((run.code, run.stdout), (0, expected));
    // What changes nothing is no entry of the journal.
    let journal = server.json(&["journal", "--kind", "apply"]);
    let entries = journal["entries"].as_array().unwrap();
    assert!(entries.len() == 1 && entries[0]["subject"]["revision"] == first, "{journal:#}");

    fs::remove_file(server.workspace.path().join("rules/a.toml")).unwrap();
    let second = apply(&server, "two");
    let active = policy(&server).await;
    assert_eq!(
        (&active["revision"], &active["active"]["message"]),
        (&second.clone().into(), &"two".into())
    );
    // A killed control plane loses nothing: the release is durable when the command ends.
    child.kill_hard().await;
    let mut child = server.start().await;
    server.ready().await;
    assert_eq!(policy(&server).await, active);
    assert_eq!(files(&server.state().join("releases")), names(&[&first, &second]));
    assert!(child.terminate().await.success());
    let run = server.run(&["policy", "apply", "rules"]);
    assert_eq!(run.code, 4, "{run:?}");
}

/// The names that the folder of releases must have.
fn names(revisions: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = revisions.iter().chain(&["current"]).map(ToString::to_string).collect();
    names.sort();
    names
}

#[tokio::test]
async fn invalid_apply_keeps_the_active_policy() {
    let Some(server) = Server::open_with_releases() else { return };
    let _child = server.start().await;
    let first = apply(&server, "one");
    server.workspace.write("rules/b.toml", "[[service]]\nnam = \"two\"\n");
    let run = server.run(&["policy", "apply", "rules", "--wait"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(
        run.stdout.contains("b.toml:2:1") && run.stderr.contains("`rules` is rejected"),
        "{run:?}"
    );
    let run = server.run(&["policy", "apply", "rules", "--output", "json"]);
    let done: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &done["accepted"], &done["applied"]), (3, &false.into(), &false.into()));
    assert_eq!(policy(&server).await["revision"], first);
    assert_eq!(files(&server.state().join("releases")), names(&[&first]));
    // The TCP port only reads.
    let port = server.loopback.socket(1, 15014);
    let port = Http1Connection::connect(port).await.unwrap();
    let answer = { port }.request(http::Method::POST, "/v1/policy/apply", &[]).await;
    assert_eq!(answer.unwrap().status, 403);
}

#[tokio::test]
async fn rollback_selects_an_earlier_release() {
    let Some(server) = Server::open_with_releases() else { return };
    let mut child = server.start().await;
    let (first, second) = (apply(&server, "one"), apply(&server, "two"));
    let run =
        server.run(&["policy", "rollback", &first[..8], "--message", "two is slow", "--wait"]);
    assert_eq!(run.code, 0, "{run:?}");
    let expected = format!("revision {first} is active\nit removes 1 of 1 objects: 1 service\n");
    assert!(run.stdout.starts_with(&expected), "{run:?}");
    assert!(run.stdout.contains(&format!("revision {first} is synced")), "{run:?}");
    let list = server.json(&["policy", "revisions"]);
    let row = |at: usize| {
        let one = &list["revisions"][at];
        (
            one["revision"].as_str().unwrap(),
            one["message"].as_str().unwrap(),
            one["current"] == true,
        )
    };
    assert_eq!(row(0), (&*first, "two is slow", true));
    assert_eq!(row(1), (&*second, "two", false));
    assert!(list["revisions"][1]["by"].is_string(), "{list:#}");
    let run = server.run(&["policy", "rollback", &first]);
    assert_eq!((run.code, run.stdout), (0, format!("revision {first} is already active\n")));
    let run = server.run(&["policy", "rollback", &second, "--expect", &second]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    let expected = format!("not rolled back: `{second}` is not active, but the revision {first}");
    assert!(run.stderr.contains(&expected), "{run:?}");
    assert_eq!(server.run(&["policy", "rollback", &second, "--expect", ""]).code, 2);
    assert_eq!(policy(&server).await["revision"], first);
    let run = server.run(&["policy", "rollback", "nonsense"]);
    assert!(run.code == 1 && run.stderr.contains("no stored policy has a revision"), "{run:?}");
    assert!(child.terminate().await.success());
    let mut child = server.start().await;
    server.ready().await;
    let active = policy(&server).await;
    assert_eq!((&active["revision"], &active["stale_since"]), (&first.into(), &Value::Null));
    assert_eq!(server.run(&["status"]).code, 0);
    assert!(child.terminate().await.success());
}

#[tokio::test]
async fn apply_with_a_policy_folder_is_an_error_that_names_it() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &service("one"));
    let run = server.run(&["policy", "apply", "policy"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    let folder = server.workspace.path().join("policy");
    assert!(
        run.stderr.contains(&format!("policy comes from the folder `{}`", folder.display())),
        "{run:?}"
    );
    assert!(run.stderr.contains("set `policy.source = \"releases\"`"), "{run:?}");
    let Some(server) = Server::open_with_releases() else { return };
    let run = server.run(&["policy", "push", "rules"]);
    assert!(
        run.code == 1 && run.stderr.contains("policy comes from releases, not from etcd"),
        "{run:?}"
    );
}

/// A limit on the size of files stands for a full disk: each write beyond it fails.
#[tokio::test]
async fn full_disk_keeps_the_active_release() {
    let Some(server) = Server::open_with_releases() else { return };
    let serve = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    let mut command = Command::new("sh");
    // In blocks of 512 bytes. Without the trap, the signal would end the process.
    command.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]);
    command.arg(serve.get_program()).args(serve.get_args()).current_dir(server.workspace.path());
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut command, &log);
    ironmesh_tests::eventually("the admin socket", async || {
        match server.run(&["policy", "revisions"]) {
            run if run.code == 0 => Ok(()),
            run => Err(run.stderr),
        }
    })
    .await;
    child.assert_running();
    let first = apply(&server, "one");
    let large = format!("{}# {}\n", service("two"), "x".repeat(3_500_000));
    server.workspace.write("rules/a/b.toml", &large);
    let run = server.run(&["policy", "apply", "rules"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(
        run.stderr.contains("cannot write the release") && run.stderr.contains("File too large"),
        "{run:?}"
    );
    assert!(run.stderr.contains(&format!("revision {first} stays active")), "{run:?}");
    assert_eq!(policy(&server).await["revision"], first);
    assert_eq!(files(&server.state().join("releases")), names(&[&first]));
    // It is accepted when there is space.
    let second = apply(&server, "two");
    assert_eq!(policy(&server).await["revision"], second);
}
