//! Foreign text reaches neither terminal nor log with control characters.

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::google::protobuf::{Struct, Value, value::Kind};

use crate::command::Workspace;
use crate::server::Server;

/// A file name that clears the screen, forges a log line and reverses the text direction.
const FILE: &str = "policy/a\u{1b}[2J\nERROR forged \u{202e}.toml";

/// A policy with an error in a line with such characters.
const POLICY: &str = "[[service]]\nname = \"store\" # \u{202e}\u{9b}2J\ncolour = \"\u{2066}\"\n";

fn assert_harmless(text: &str) {
    let hidden = ['\u{1b}', '\r', '\u{9b}', '\u{202e}', '\u{2066}'];
    assert!(!text.contains(hidden), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with("ERROR forged")), "{text:?}");
}

#[test]
fn hostile_file_name_is_escaped_in_policy_check_output() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write(FILE, POLICY);
    for output in ["text", "json"] {
        let run = workspace.run(&["--output", output, "policy", "check", "policy"]);
        assert_eq!(run.code, 3, "{run:?}");
        let text = run.stdout.clone() + &run.stderr;
        assert!(text.contains("\\u001b[2J"), "{text:?}");
        assert_harmless(&text);
    }
}

#[tokio::test]
async fn hostile_file_name_is_escaped_in_the_log() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/good.toml", "[[service]]\nname = \"store\"\n");
    let _running = server.start().await;
    server.workspace.write(FILE, POLICY);
    let log = server.workspace.path().join("serve.log");
    eventually("the finding in the log", async || {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains("IM0102") && text.contains("forged") { Ok(()) } else { Err(text) }
    })
    .await;
    assert_harmless(&fs::read_to_string(&log).unwrap());
}

/// A node with these words in each free field.
fn node(id: &str, words: &str) -> Node {
    let value = Value { kind: Some(Kind::StringValue(words.to_owned())) };
    Node {
        id: id.to_owned(),
        cluster: words.to_owned(),
        user_agent_name: words.to_owned(),
        metadata: Some(Struct { fields: [(words.to_owned(), value)].into() }),
        ..Node::default()
    }
}

#[tokio::test]
async fn hostile_proxy_text_is_escaped_in_log_and_output() {
    const WORDS: &str = "no\u{1b}[2J\nERROR forged \u{202e}\u{9b}2J";
    let Some(server) = Server::open("") else { return };
    server.workspace.write(
        "policy/good.toml",
        "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    );
    let _running = server.start().await;
    server.ready().await;
    let join = ["proxy", "bootstrap", "--service", "store", "--address", "127.1.0.1"];
    let run = server.run(&[&join[..], &["--out", "proxy"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("proxy");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();

    // A foreign id is rejected with an error that shows it.
    let foreign = format!("sidecar~{WORDS}~x~y");
    let rejected = proxy.request_secret(node(&foreign, WORDS), "roots").await.unwrap_err();
    assert!(!rejected.message().contains('\u{1b}'), "{rejected:?}");
    let _stream = proxy.nack(node(&proxy.node_id, WORDS), WORDS).await.unwrap();
    let shown = eventually("the NACK to be shown", async || {
        let run = server.run(&["proxy", "list"]);
        if run.stdout.contains("forged") { Ok(run.stdout) } else { Err(run.stdout) }
    })
    .await;
    assert_harmless(&shown);
    for arguments in [&["proxy", "show", &proxy.node_id[..8]][..], &["status"]] {
        let run = server.run(arguments);
        assert_harmless(&(run.stdout + &run.stderr));
    }
    let log = fs::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    assert!(log.contains("forged"), "{log}");
    assert_harmless(&log);
}
