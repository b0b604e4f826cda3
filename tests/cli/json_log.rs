//! `ironmesh serve --output json`.

use fs_err as fs;
use ironmesh_tests::eventually;
use serde_json::Value;
use tokio::process::Command;

use ironmesh_tests::process::Child;

use crate::server::Server;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn log_of_serve_is_json_lines_with_control_characters_escaped() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write(
        "policy/a.toml",
        "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    );
    let command =
        server.workspace.command(&["serve", "--config", "ironmesh.toml", "--output", "json"]);
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut Command::from(command), &log);
    let text = || fs::read_to_string(&log).unwrap();
    let logged = async |words: &str| {
        eventually(words, async || match text() {
            text if text.contains(words) => Ok(()),
            text => Err(text),
        })
        .await;
    };
    logged("xDS is served").await;
    server
        .workspace
        .write("policy/b\u{1b}[2J\u{9b}\u{202e}.toml", "[[service]]\nname = \"a\"\nx = 1\n");
    logged("IM0102").await;
    assert!(child.terminate().await.success());
    let text = text();
    assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
    let lines = lines(&text);
    let started = lines.iter().find(|line| line["fields"]["message"] == "xDS is served").unwrap();
    assert_eq!(
        (&started["level"], &started["target"]),
        (&"INFO".into(), &"ironmesh_control_plane::sidecars::envoy".into())
    );
    assert!(started["timestamp"].as_str().unwrap().ends_with('Z'), "{started}");
    let finding = lines.iter().find(|line| line.to_string().contains("IM0102")).unwrap();
    let at = finding["fields"]["at"].as_str().unwrap();
    assert!(at.contains(r"b\u001b[2J\u009b\u202e.toml:3:1"), "{finding}");
}

#[tokio::test]
async fn debug_log_has_the_duration_of_passes_and_requests() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "");
    let mut command =
        server.workspace.command(&["serve", "--config", "ironmesh.toml", "--output", "json"]);
    command.env("RUST_LOG", "info,ironmesh_control_plane=debug,ironmesh_admin=debug");
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut Command::from(command), &log);
    for span in ["reconcile", "request"] {
        eventually(span, async || {
            // Answers once the socket is there; each attempt is a request.
            let _ = server.workspace.run(&["proxy", "list", "--config", "ironmesh.toml"]);
            let text = fs::read_to_string(&log).unwrap();
            let is_end = |line: &Value| {
                line["span"]["name"] == span && line["fields"]["time.busy"].is_string()
            };
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            if lines(whole).iter().any(is_end) { Ok(()) } else { Err(text) }
        })
        .await;
    }
    assert!(child.terminate().await.success());
}

#[test]
fn failure_of_serve_is_the_last_line_of_its_json_log() {
    let Some(server) = Server::open("") else { return };
    let run = server.run(&["serve", "--output", "json"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    let lines = lines(&run.stderr);
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{last}");
    assert!(last["fields"]["reason"].as_str().unwrap().contains("policy"), "{last}");
    // Without policy in the folder the text form says the same.
    let run = server.run_failing();
    assert!(run.stderr.contains(last["fields"]["reason"].as_str().unwrap()), "{run:?}");
}

#[tokio::test]
async fn change_of_policy_has_one_id_in_all_its_lines() {
    let Some(server) = Server::open("log.format = \"json\"\n") else { return };
    server.workspace.write("policy/a.toml", "# No service yet.\n");
    let mut child = server.start().await;
    server.ready().await;
    let first = server.readyz().await.json()["policy"]["revision"].clone();
    server.workspace.write(
        "policy/a.toml",
        "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    );
    let policy = server.wait_for_policy("the policy", |policy| policy["revision"] != first).await;
    let revision = policy["revision"].as_str().unwrap();
    let id = format!("policy-{}", &revision[..12]);
    let log = server.workspace.path().join("serve.log");
    // No proxy is connected, so the change is ACKed at once.
    let expected = ["policy is active", "change found", "change published", "change ACKed"];
    eventually("the lines of the change", async || {
        let text = fs::read_to_string(&log).unwrap();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let lines = lines(whole);
        let of_change = lines.iter().filter(|line| line["fields"]["change"] == *id);
        let events: Vec<_> = of_change.map(|line| line["fields"]["message"].clone()).collect();
        if events == expected { Ok(()) } else { Err(format!("{id}: {events:?}\n{text}")) }
    })
    .await;
    assert!(child.terminate().await.success());
}
