//! `ironmesh log level`, and the log's settings.

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::Command;

use crate::finding::post;
use crate::server::Server;

/// A server with these settings, whose log is known.
async fn started(settings: &str, variable: Option<&str>) -> Option<(Server, Child)> {
    let server = Server::open(settings)?;
    server.workspace.write("policy/a.toml", "");
    let mut command = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    command.envs(variable.map(|value| ("RUST_LOG", value)));
    let log = server.workspace.path().join("serve.log");
    let child = Child::start("ironmesh serve", &mut Command::from(command), &log);
    eventually("an answer", async || match server.run(&["log", "level"]) {
        run if run.code == 0 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
    Some((server, child))
}

fn log(server: &Server) -> String {
    fs::read_to_string(server.workspace.path().join("serve.log")).unwrap()
}

/// Waits for a line of the log that has all `parts`.
async fn logged(server: &Server, parts: &[&str]) {
    eventually(&format!("a line with {parts:?}"), async || {
        let log = log(server);
        let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
        if log.lines().any(has_all) { Ok(()) } else { Err(log) }
    })
    .await;
}

async fn level_is(server: &Server, level: &str) -> Value {
    eventually(level, async || match server.json(&["log", "level"]) {
        view if view["level"] == level => Ok(view),
        view => Err(view),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_log_level_applies_at_once_and_ends_by_itself() {
    let Some((server, mut child)) = started("", None).await else { return };
    let run = server.run(&["log", "level"]);
    assert_eq!(run.stdout, "log level info, from the settings\n");
    assert!(!log(&server).contains(" DEBUG "), "{}", log(&server));

    let run = server.run(&["log", "level", "debug", "--for", "1h"]);
    assert!(run.stdout.starts_with("log level debug by "), "{run:?}");
    assert!(run.stdout.contains("ends in") && run.stdout.contains("; then info, from"), "{run:?}");
    logged(&server, &["log level changed", "level=debug", "until="]).await;
    // Each request ends with a line at the level debug.
    server.run(&["status"]);
    logged(&server, &["DEBUG", "request{", "close"]).await;

    // A second change replaces the first, with its end.
    let view = server.json(&["log", "level", "info,ironmesh_admin=trace", "--for", "1s"]);
    assert_eq!((&view["configured"], &view["source"]), (&json!("info"), &json!("settings")));
    assert!(view["until"].is_string() && view["by"].is_string(), "{view}");
    let view = level_is(&server, "info").await;
    assert_eq!((&view["until"], &view["by"]), (&Value::Null, &Value::Null));
    logged(&server, &["log level restored", "reason=\"the time of the change is over\""]).await;

    server.json(&["log", "level", "debug"]);
    assert_eq!(server.json(&["log", "level", "info"])["until"], Value::Null, "the configured one");
    let page = server.json(&["journal", "--kind", "log"]);
    let entries = page["entries"].as_array().unwrap();
    let messages: Vec<_> = entries.iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(messages.len(), 4, "{page:#}");
    assert!(messages[0].starts_with("debug, until 20"), "{messages:?}");
    assert_eq!(messages[3], "info, the configured level");
    assert!(child.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_changes_the_log_level_of_the_settings() {
    let Some((server, mut child)) = started("log.level = \"warn\"\n", None).await else { return };
    level_is(&server, "warn").await;
    let settings = server.workspace.path().join("ironmesh.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("\"warn\"", "\"ironmesh_admin=debug\"")).unwrap();
    child.signal(Signal::HUP);
    level_is(&server, "info,ironmesh_admin=debug").await;
    server.run(&["status"]);
    logged(&server, &["DEBUG", "request{"]).await;
    assert!(child.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn variable_has_priority_over_the_settings_and_the_answer_says_so() {
    let settings = "log.level = \"debug\"\nlog.format = \"json\"\n";
    let Some((server, mut child)) = started(settings, Some("info,h2=warn")).await else { return };
    let run = server.run(&["log", "level"]);
    let expected =
        "log level info,h2=warn, from RUST_LOG, which replaces `log.level` of the settings\n";
    assert_eq!(run.stdout, expected);
    assert_eq!(server.json(&["log", "level"])["source"], "RUST_LOG");
    let view = server.json(&["log", "level", "debug", "--for", "1s"]);
    assert_eq!((&view["level"], &view["configured"]), (&json!("debug"), &json!("info,h2=warn")));
    level_is(&server, "info,h2=warn").await;
    assert!(child.terminate().await.success());
    // The format is that of the settings.
    let log = log(&server);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["fields"]["message"] == "log level changed"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_log_levels_are_rejected() {
    let Some((server, mut child)) = started("", Some("a=b=c")).await else { return };
    logged(&server, &["WARN", "RUST_LOG is invalid"]).await;
    assert_eq!(server.json(&["log", "level"])["source"], "settings");
    for arguments in [
        &["log", "level", "off"][..],
        &["log", "level", "loud"],
        &["log", "level", "debug", "--for", "25h"],
        &["log", "level", "debug", "--for", "0s"],
        &["log", "level", "--for", "1h"],
    ] {
        assert_eq!(server.run(arguments).code, 2, "{arguments:?}");
    }
    assert_eq!(server.json(&["log", "level"])["level"], "info");
    // The admin port reads the level, and changes nothing.
    let port = server.loopback.socket(1, 15014);
    let answer = ironmesh_tests::get_once(port, "/v1/log-level", &[]).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["level"], "info");
    let debug = json!({ "level": "debug", "for": 60 });
    let stream = TcpStream::connect(port).await.unwrap();
    let (status, answer) = post(stream, "/v1/log-level", &debug.to_string()).await;
    assert_eq!(status, 403, "{answer}");
    let socket = server.state().join("admin.sock");
    for (body, expected) in [
        (json!({ "level": "debug", "for": 0 }), 400),
        (json!({ "level": "debug", "for": 86_401 }), 400),
        (json!({ "level": "off" }), 422),
        (json!({ "level": "debug", "forever": true }), 422),
        (json!({ "for": 60 }), 422),
    ] {
        let stream = UnixStream::connect(&socket).await.unwrap();
        let (status, answer) = post(stream, "/v1/log-level", &body.to_string()).await;
        assert_eq!(status, expected, "{body}: {answer}");
        assert!(answer.contains("\"error\""), "{body}: {answer}");
    }
    assert_eq!(server.json(&["log", "level"])["level"], "info");
    let page = server.json(&["journal", "--kind", "log"]);
    let entries = page["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "those with a valid level: {page:#}");
    assert!(entries.iter().all(|entry| entry["outcome"] == "rejected"), "{page:#}");
    assert!(child.terminate().await.success());
}
