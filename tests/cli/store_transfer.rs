//! `ironmesh store export` and `ironmesh store import` with embedded stores.

use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;

use crate::command::Run;
use crate::rollback::{keep_revision, publish, service};
use crate::server::{Server, files};

/// A run that fails with exit code `code` and these words.
fn assert_failure(run: &Run, code: i32, words: &str) {
    assert_eq!(run.code, code, "{run:?}");
    assert!(run.stderr.contains(words), "{run:?}");
}

/// Replaces a line of the settings.
fn set(server: &Server, line: &str, new: &str) {
    let path = server.workspace.path().join("ironmesh.toml");
    let settings = fs::read_to_string(&path).unwrap();
    assert!(settings.contains(line), "{settings}");
    fs::write(path, settings.replace(line, new)).unwrap();
}

#[tokio::test]
async fn export_is_made_online_or_offline_and_never_replaces_a_file() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &service("one"));
    let run = server.run(&["store", "export", "--offline", "e"]);
    assert_failure(&run, 1, "no control plane has run with this state folder");
    let run = server.run(&["store", "export", "e"]);
    assert_failure(&run, 4, "`--offline` exports the store of a stopped control plane");

    let mut child = server.start().await;
    server.ready().await;
    let run = server.run(&["store", "export", "online"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("exported the mesh `default` into online ("), "{run:?}");
    assert!(run.stdout.contains("later changes are not in it"), "{run:?}");
    assert_failure(&server.run(&["store", "export", "online"]), 1, "the file exists already");
    let journal = server.json(&["journal", "--kind", "export"]);
    let [entry] = &journal["entries"].as_array().unwrap()[..] else { panic!("{journal:#}") };
    let size = fs::metadata(server.workspace.path().join("online")).unwrap().len();
    assert_eq!(entry["message"], format!("{size} bytes"), "{entry:#}");
    assert!(entry["who"]["uid"].is_u64() && entry["count"].as_u64() > Some(1), "{entry:#}");
    let run = server.run(&["store", "export", "--offline", "offline"]);
    assert_failure(&run, 1, "a control plane runs with this state folder");
    assert!(child.terminate().await.success());
    assert_eq!(server.json(&["store", "export", "--offline", "offline"])["offline"], true);
    for file in ["online", "offline"] {
        let mode = fs::metadata(server.workspace.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let folder = files(server.workspace.path());
    let expected = ["ironmesh.toml", "offline", "online", "policy", "serve.log", "state"];
    assert_eq!(folder, expected, "a failure leaves no file");
}

#[tokio::test]
async fn import_rejects_other_keys_and_meshes_and_keeps_a_rollback() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &service("zero"));
    let mut child = server.start().await;
    server.ready().await;
    let first = publish(&server, "one").await;
    keep_revision(&server, &first);
    publish(&server, "two").await;
    let run = server.run(&["policy", "rollback", &first[..8], "--message", "two is slow"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(child.terminate().await.success());
    server.json(&["store", "export", "--offline", "e"]);
    let import = || server.run(&["store", "import", "e"]);
    assert_failure(&import(), 1, "there is a store already");

    set(&server, "state = \"state\"", "state = \"other\"");
    assert_failure(&import(), 1, "and there is none at");
    server.workspace.write("other/kek", &format!("{}\n", "0a".repeat(32)));
    let key = server.workspace.path().join("other/kek");
    fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_failure(&import(), 1, "it was sealed with a different key-encryption key");
    fs::copy(server.state().join("kek"), &key).unwrap();
    set(&server, "state = \"other\"", "mesh = \"blue\"\nstate = \"other\"");
    assert_failure(&import(), 1, "the export is that of the mesh `default`");
    set(&server, "mesh = \"blue\"", "domain = \"blue.internal\"");
    assert_failure(&import(), 1, "has the domain `mesh.internal`");
    set(&server, "domain = \"blue.internal\"", "");
    assert_failure(&server.run(&["store", "import", "ironmesh.toml"]), 1, "was not written by");
    assert_eq!(files(&server.workspace.path().join("other")), ["kek"], "nothing was written");

    let run = import();
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("imported the mesh `default` with 0 proxies into"), "{run:?}");
    assert!(run.stdout.contains("1. keep the control planes of the old store stopped"), "{run:?}");
    let mut child = server.start().await;
    server.ready().await;
    let policy = server.readyz().await.json()["policy"].clone();
    assert_eq!(policy["revision"], *first, "the rollback lasts: {policy:#}");
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert_eq!(log.matches("created a new certificate authority").count(), 1, "{log}");
    assert!(child.terminate().await.success());
}
