//! `ironmesh journal`: who changed what, in order, over a restart; without an Envoy.

use fs_err as fs;
use ironmesh_tests::process::Child;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{eventually, get_once};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::server::Server;

/// A policy of so many services.
fn policy(services: usize) -> String {
    let services = (0..services).map(|number| format!("[[service]]\nname = \"s{number}\""));
    services.collect::<Vec<_>>().join("\n")
}

/// Runs git in the policy folder, as an author of this name.
fn git(server: &Server, author: &str, arguments: &[&str]) -> String {
    let mut git = std::process::Command::new("git");
    git.current_dir(server.workspace.path().join("policy"));
    git.args(["-c", &format!("user.name={author}"), "-c", "user.email=x@example.org"]);
    let output = git.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(server: &Server, author: &str, text: &str) -> String {
    server.workspace.write("policy/a.toml", text);
    git(server, author, &["add", "."]);
    git(server, author, &["commit", "--quiet", "--message", "change"]);
    git(server, author, &["rev-parse", "--short=12", "HEAD"])
}

fn entries(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let page = server.json(&[&["journal"][..], arguments].concat());
    page["entries"].as_array().unwrap().clone()
}

/// Waits for an entry, and returns it.
async fn entry(server: &Server, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let all = entries(server, &[]);
        all.iter().find(|one| condition(one)).cloned().ok_or_else(|| format!("{all:#?}"))
    })
    .await
}

/// The kinds and outcomes of all entries, except for certificates, whose time depends on batches.
fn summary(entries: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entries = entries.iter().filter(|entry| entry["kind"] != "certificate");
    entries.map(|entry| (text(&entry["kind"]), text(&entry["outcome"]))).collect()
}

#[tokio::test]
async fn journal_lists_each_change_with_its_actor_over_a_restart() {
    let Some(server) = Server::open("") else { return };
    fs::create_dir(server.workspace.path().join("policy")).unwrap();
    git(&server, "Anna", &["init", "--quiet"]);
    let anna = commit(&server, "Anna", &policy(20));
    let mut child = server.start().await;
    server.ready().await;
    let first = server.readyz().await.json()["policy"]["revision"].as_str().unwrap().to_owned();
    let by = |author: &str| json!({"type": "author", "name": format!("{author} <x@example.org>")});
    let change = entry(&server, "the first policy", |one| one["kind"] == "policy").await;
    let expected = json!({"revision": first, "commit": anna});
    assert_eq!((&change["who"], &change["subject"]), (&by("Anna"), &expected), "{change:#}");
    let folder = server.workspace.path().join("policy").display().to_string();
    assert_eq!(change["from"], folder);

    let bootstrap = ["proxy", "bootstrap", "--service", "s0", "--address", "127.1.0.1"];
    let run = server.run(&[&bootstrap[..], &["--out", "proxy"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("proxy");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
    let id = proxy.node_id.clone();
    proxy.request_secret(Node { id: id.clone(), ..Node::default() }, "roots").await.unwrap();
    let claim = entry(&server, "the claim", |one| one["kind"] == "claim").await;
    assert_eq!((&claim["who"]["type"], &claim["subject"]["proxy"]), (&"proxy".into(), &json!(id)));
    assert!(claim["from"].as_str().unwrap().starts_with("127."), "{claim:#}");

    assert_eq!(server.run(&["proxy", "revoke", "00000000"]).code, 1);
    // What changes nothing is no entry.
    for _ in 0..2 {
        assert_eq!(server.run(&["proxy", "revoke", &id, "--reason", "lost"]).code, 0);
    }
    entry(&server, "the revocation", |one| one["message"] == "lost").await;
    let revoked = entries(&server, &["--kind", "revoke"]);
    assert_eq!(summary(&revoked), pairs(&[("revoke", "rejected"), ("revoke", "done")]));
    let uid = rustix::process::geteuid().as_raw();
    for one in &revoked {
        assert_eq!((&one["who"]["uid"], &one["from"]), (&json!(uid), &"admin socket".into()));
    }
    assert_eq!(revoked[0]["subject"]["name"], "00000000");
    assert!(revoked[0]["reason"].as_str().unwrap().starts_with("no proxy `00000000`"));
    assert_eq!(revoked[1]["message"], "lost");
    let subject = json!({"proxy": id, "name": "s0-1", "services": ["default/s0"]});
    assert_eq!(revoked[1]["subject"], subject);

    // This stores the active revision, and changes nothing.
    assert_eq!(server.run(&["policy", "rollback", &first]).code, 0);
    let bert = commit(&server, "Bert", &policy(21));
    let change = entry(&server, "Bert's change", |one| one["subject"]["commit"] == *bert).await;
    assert_eq!((&change["who"], &change["outcome"]), (&by("Bert"), &"done".into()));
    server.workspace.write("policy/a.toml", "[[");
    let rejected = |one: &Value| one["kind"] == "policy" && one["outcome"] == "rejected";
    let rejected = entry(&server, "the rejected policy", rejected).await;
    assert!(rejected["reason"].as_str().unwrap().contains("IM0101"), "{rejected:#}");
    assert_eq!(rejected["subject"]["commit"], format!("{bert}+dirty"));
    let arguments = ["policy", "rollback", &first, "--message", "too fast"];
    assert_eq!(server.run(&arguments).code, 0);
    server.workspace.write("policy/a.toml", &policy(1));
    server.wait_for_policy("the hold", |policy| !policy["held"].is_null()).await;
    assert_eq!(server.run(&["policy", "accept"]).code, 0);
    assert_eq!(server.run(&["policy", "accept"]).code, 1);

    let is_last = |one: &Value| one["kind"] == "accept" && one["outcome"] == "rejected";
    entry(&server, "the last change", is_last).await;
    let all = entries(&server, &[]);
    let expected = pairs(&[
        ("authority", "done"),
        ("policy", "done"),
        ("enroll", "done"),
        ("claim", "done"),
        ("revoke", "rejected"),
        ("revoke", "done"),
        ("policy", "done"),
        ("policy", "rejected"),
        ("rollback", "done"),
        ("accept", "done"),
        ("accept", "rejected"),
    ]);
    assert_eq!(summary(&all), expected, "{all:#?}");
    let of_accounts =
        |one: &&Value| one["kind"] == "certificate" && one["subject"]["account"] == "default/s0";
    assert_eq!(all.iter().filter(of_accounts).count(), 1, "{all:#?}");
    let of_proxies =
        |one: &&Value| one["kind"] == "certificate" && !one["subject"]["services"].is_null();
    assert_eq!(all.iter().filter(of_proxies).count(), 1, "{all:#?}");
    assert_eq!(all.iter().rev().nth(2).unwrap()["message"], "too fast");

    assert!(child.terminate().await.success());
    let run = server.run(&["journal"]);
    assert_eq!(run.code, 4, "{run:?}");
    let _child = server.start().await;
    server.ready().await;
    assert_eq!(server.run(&["policy", "rollback", "nonsense"]).code, 1);
    entry(&server, "the rejected rollback", |one| one["subject"]["revision"] == "nonsense").await;
    let after = entries(&server, &["--since", "1h"]);
    assert_eq!(after[..all.len()], all, "a restart with the same policy is no change");
    let expected = pairs(&[("rollback", "rejected")]);
    assert_eq!(summary(&after[all.len()..]), expected);
    let numbers: Vec<_> = after.iter().map(|one| one["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");

    assert_eq!(entries(&server, &["--since", "2100-01-01T00:00:00Z"]), [] as [Value; 0]);
    assert_eq!(entries(&server, &["--limit", "1"]), after[after.len() - 1..]);
    let run = server.run(&["journal", "--kind", "audit"]);
    assert!(run.code == 2 && run.stderr.contains("rollback"), "{run:?}");
    assert_eq!(server.run(&["journal", "--since", "yesterday"]).code, 2);
    let text = server.run(&["journal"]).stdout;
    let header =
        "TIME                  WHO            WHAT         SUBJECT               OUTCOME\n";
    assert!(text.starts_with(header), "{text}");
    assert!(text.contains("revoke       s0-1 default/s0       done\n  lost\n"), "{text}");
    // Every user of the machine reads the TCP port.
    let port = server.loopback.socket(1, 15014);
    assert_eq!(get_once(port, "/v1/journal", &[]).await.unwrap().status, 403);
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(kind, outcome)| ((*kind).to_owned(), (*outcome).to_owned())).collect()
}

#[tokio::test]
async fn journal_follow_continues_after_a_restart() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &policy(1));
    let mut child = server.start().await;
    server.ready().await;
    let log = server.workspace.path().join("follow.log");
    let arguments = [
        "journal",
        "--follow",
        "--kind",
        "revoke",
        "--output",
        "json",
        "--config",
        "ironmesh.toml",
    ];
    let command = server.workspace.command(&arguments);
    let mut follower = Child::start("ironmesh journal", &mut Command::from(command), &log);
    let mut sees = async |what: &str| {
        eventually(what, async || {
            follower.assert_running();
            let text = fs::read_to_string(&log).unwrap();
            if text.contains(what) { Ok(()) } else { Err(text) }
        })
        .await;
    };
    assert_eq!(server.run(&["proxy", "revoke", "11111111"]).code, 1);
    sees("11111111").await;
    assert!(child.terminate().await.success());
    sees("; retrying\n").await;
    let _child = server.start().await;
    server.ready().await;
    assert_eq!(server.run(&["proxy", "revoke", "22222222"]).code, 1);
    sees("22222222").await;
    let text = fs::read_to_string(&log).unwrap();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let names: Vec<_> = lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["subject"]["name"].clone())
        .collect();
    assert_eq!(names, ["11111111", "22222222"], "each entry once: {text}");
}
