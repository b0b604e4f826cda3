//! Starts of `ironmesh serve` that fail: each error says what failed and what to do, and nothing is
//! left half done.

use std::net::TcpListener;

use ironmesh_tests::get_once;

use crate::server::{Server, files};

#[test]
fn missing_policy_folder_is_named_and_creates_no_state() {
    let Some(server) = Server::open("") else { return };
    let run = server.run_failing();
    assert!(run.stderr.contains("there is no policy folder at"), "{}", run.stderr);
    assert_eq!(files(&server.state()), Vec::<String>::new());
}

#[test]
fn port_in_use_is_named_with_its_setting_and_creates_no_state() {
    for (port, what, setting) in
        [(15128, "for xDS", "`listen.xds`"), (15014, "for the admin API", "`listen.admin`")]
    {
        let Some(server) = Server::open("") else { return };
        server.workspace.write("policy/a.toml", "# No service yet.\n");
        let occupied = server.loopback.socket(1, port);
        let _listener = TcpListener::bind(occupied).unwrap();
        let run = server.run_failing();
        for part in [&format!("cannot listen on {occupied} {what}"), setting, "in use"] {
            assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
        }
        assert_eq!(files(&server.state()), Vec::<String>::new());
    }
}

#[test]
fn file_in_place_of_state_folder_is_named() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    // Root may write to any folder, but cannot create one below a file.
    server.workspace.write("state", "this is a file");
    let run = server.run_failing();
    assert!(run.stderr.contains("state"), "{}", run.stderr);
    assert_eq!(fs_err::read_to_string(server.state()).unwrap(), "this is a file");
}

#[tokio::test]
async fn wrong_key_encryption_key_is_rejected_and_not_replaced() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    server.serve_once().await;
    let kek = server.state().join("kek");
    let right = fs_err::read_to_string(&kek).unwrap();
    let first = if right.starts_with('0') { '1' } else { '0' };
    fs_err::write(&kek, format!("{first}{}", &right[1..])).unwrap();
    let run = server.run_failing();
    assert!(run.stderr.contains("kek"), "{}", run.stderr);
    fs_err::remove_file(&kek).unwrap();
    let run = server.run_failing();
    assert!(run.stderr.contains("kek"), "{}", run.stderr);
    assert!(!kek.exists(), "a new key was made, which opens nothing");

    server.workspace.write("state/kek", &right);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs_err::set_permissions(&kek, permissions).unwrap();
    server.serve_once().await;
}

#[tokio::test]
async fn key_encryption_key_moves_out_of_the_state_folder() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    server.serve_once().await;
    let (inside, outside) = (server.state().join("kek"), server.workspace.path().join("kek"));
    let key = fs_err::read_to_string(&inside).unwrap();
    let init = ["store", "init", "--key-file", "kek"];
    let run = server.run(&init);
    assert!(run.code == 0 && run.stdout.contains("copied"), "{run:?}");
    assert_eq!(fs_err::read_to_string(&outside).unwrap(), key);
    fs_err::remove_file(&inside).unwrap();
    // The file beside the settings is the default now.
    server.serve_once().await;
    assert!(!inside.exists());
    let run = server.run(&init);
    assert!(run.code == 0 && run.stdout.contains("already"), "{run:?}");
    assert_eq!(fs_err::read_to_string(&outside).unwrap(), key);

    fs_err::remove_file(&outside).unwrap();
    let run = server.run(&init);
    assert!(run.code == 1 && run.stderr.contains("restore the key from your backup"), "{run:?}");
    assert!(!outside.exists(), "a new key was made, which opens nothing");
    fs_err::remove_dir_all(server.state()).unwrap();
    let run = server.run(&init);
    assert!(run.code == 0 && run.stdout.contains("created"), "{run:?}");
    server.serve_once().await;
}

#[test]
fn unknown_setting_is_annotated_with_a_suggestion() {
    let Some(server) = Server::open("trust_domian = \"x\"") else { return };
    let run = server.run(&["serve"]);
    assert_eq!(run.code, 3, "{run:?}");
    for part in ["error[IM0102]", "ironmesh.toml:1:1", "did you mean `trust_domain`"] {
        assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
    }
}

#[tokio::test]
async fn trust_domain_change_after_first_start_is_rejected() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    server.serve_once().await;
    let settings = fs_err::read_to_string(server.workspace.path().join("ironmesh.toml")).unwrap();
    server
        .workspace
        .write("ironmesh.toml", &format!("trust_domain = \"other.example\"\n{settings}"));
    let run = server.run_failing();
    assert!(run.stderr.contains("fixed at the first start"), "{}", run.stderr);
}

#[test]
fn bootstrap_without_control_plane_exits_4() {
    let Some(server) = Server::open("") else { return };
    let out = server.workspace.path().join("proxy");
    let run = server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "a",
        "--address",
        "127.0.0.1",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 4, "{run:?}");
    assert!(run.stderr.contains("is `ironmesh serve` running"), "{}", run.stderr);
    assert!(!out.exists());
}

#[tokio::test]
async fn probes_and_debug_handlers_of_the_sidecar_servers_are_served() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    let _child = server.start().await;
    server.ready().await;
    let admin = server.loopback.socket(1, 15014);
    let get = async |path: &str| get_once(admin, path, &[]).await.unwrap();
    let health = get("/healthz").await;
    assert_eq!((health.status.as_u16(), &*health.text()), (200, "ok\n"));
    assert_eq!(get("/readyz").await.status, 200);
    let clients = get("/debug/xds").await.json();
    assert_eq!(clients, serde_json::json!({ "open_streams": 0, "clients": [] }));
    let unknown = get("/debug/xsd").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("no debug handler `xsd`; there is: xds"), "{}", unknown.text());
}
