//! `ironmesh finding`: active findings as data, and silences with a reason and an end.

use ironmesh_tests::eventually::patience;
use ironmesh_tests::process::Child;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{eventually, get_once};
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use crate::command::Run;
use crate::server::Server;

/// A service whose only endpoint has no proxy, which is a warning.
const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]
[service.endpoints]
static = [{ address = "10.0.0.9" }]
"#;

const REJECTED: &str = "[[service]]\nname = \"Store\"\n";

/// A running control plane with the policy above.
async fn started() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/services.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

/// Enrolls a proxy of `store`, lets it connect once, and waits until it is disconnected. Returns its id.
async fn disconnected_proxy(server: &Server) -> String {
    let arguments = ["--service", "store", "--address", "127.0.0.1", "--name", "store-1"];
    let run = server.run(&[&["proxy", "bootstrap", "--out", "one"], &arguments[..]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("one");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
    let id = proxy.node_id.clone();
    let (requests, outgoing) = mpsc::channel(1);
    let request = DeltaDiscoveryRequest {
        node: Some(Node { id: id.clone(), ..Node::default() }),
        type_url: ResourceType::Secret.url().to_owned(),
        resource_names_subscribe: vec!["roots".to_owned()],
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(request).await.unwrap();
    let mut client = AggregatedDiscoveryServiceClient::new(proxy.channel().clone());
    let answered = client.delta_aggregated_resources(ReceiverStream::new(outgoing)).await.unwrap();
    let mut answers = answered.into_inner();
    timeout(patience(), answers.message()).await.unwrap().unwrap().unwrap();
    // The end of the requests is the end of the stream.
    drop(requests);
    finding_where(server, "a disconnected proxy", |one| one["code"] == "IM0726").await;
    id
}

fn findings(server: &Server) -> Vec<Value> {
    server.json(&["finding", "list"])["findings"].as_array().unwrap().clone()
}

/// Waits for a finding, and returns it.
async fn finding_where(server: &Server, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let all = findings(server);
        all.iter().find(|one| condition(one)).cloned().ok_or_else(|| format!("{all:#?}"))
    })
    .await
}

/// Waits until `status` ends with a code.
async fn status_with(server: &Server, code: i32) -> Run {
    eventually(&format!("exit code {code}"), async || match server.run(&["status"]) {
        run if run.code == code => Ok(run),
        run => Err(format!("{run:?}")),
    })
    .await
}

fn silence(server: &Server, arguments: &[&str]) -> Run {
    server.run(&[&["finding", "silence"], arguments].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn silenced_finding_leaves_the_status_until_it_is_unsilenced() {
    let Some((server, _child)) = started().await else { return };
    let id = disconnected_proxy(&server).await;
    let before = status_with(&server, 1).await;
    assert!(before.stdout.contains("wrong: 1 proxy is disconnected\n"), "{before:?}");

    let maintenance = ["IM0726", "--object", "proxy:store-1", "--reason", "maintenance"];
    let run = silence(&server, &[&maintenance[..], &["--for", "2h"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("silence ") && run.stdout.ends_with(", 1 finding\n"), "{run:?}");
    let finding = finding_where(&server, "the silence", |one| one["code"] == "IM0726").await;
    let silenced = &finding["silenced"];
    assert_eq!(finding["objects"], json!([format!("proxy:{id}")]), "{finding:#}");
    assert_eq!(silenced["reason"], "maintenance", "{finding:#}");
    let silence_id = silenced["id"].as_str().unwrap().to_owned();

    // The status counts it, and prints one line.
    let status = status_with(&server, 0).await;
    assert!(!status.stdout.contains("wrong"), "{status:?}");
    assert!(status.stdout.contains("silenced       1 finding\n"), "{status:?}");
    let line = status.stdout.lines().find(|line| line.contains("[IM0726]")).unwrap();
    let end = format!(": maintenance ({silence_id})");
    assert!(line.contains("; silenced until ") && line.ends_with(&end), "{line}");
    let json = server.json(&["status"]);
    assert_eq!(json["wrong"], json!([]), "{json:#}");
    let problem = json["problems"].as_array().unwrap();
    let problem = problem.iter().find(|one| one["code"] == "IM0726").unwrap();
    assert_eq!(problem["silenced"]["id"], json!(silence_id), "{problem:#}");
    assert_eq!(problem["fingerprint"], finding["fingerprint"], "{problem:#}");
    let metrics = get_once(server.loopback.socket(1, 15014), "/metrics", &[]).await.unwrap();
    let sample = "ironmesh_findings{code=\"IM0726\",severity=\"warning\",silenced=\"true\"} 1";
    assert!(metrics.text().contains(sample), "{}", metrics.text());

    let run = server.run(&["finding", "unsilence", &silence_id]);
    assert_eq!(run.code, 0, "{run:?}");
    status_with(&server, 1).await;
    let again = server.run(&["finding", "unsilence", &silence_id]);
    assert!(again.code == 0 && again.stdout.contains("was removed at"), "{again:?}");

    let page = server.json(&["journal", "--kind", "silence"]);
    let entries = page["entries"].as_array().unwrap();
    let messages: Vec<_> = entries.iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(messages.len(), 2, "{page:#}");
    assert!(messages[0].starts_with(&format!("silence {silence_id} until ")), "{page:#}");
    assert!(messages[0].ends_with(": maintenance"), "{page:#}");
    assert_eq!(messages[1], format!("removed silence {silence_id}"));
    for entry in entries {
        assert_eq!(entry["subject"]["proxy"], json!(id), "{entry:#}");
        assert_eq!(entry["subject"]["name"], json!(format!("IM0726 proxy:{id}")), "{entry:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_kept_over_a_restart() {
    let Some((server, mut child)) = started().await else { return };
    finding_where(&server, "an endpoint without a proxy", |one| one["code"] == "IM0404").await;
    let run = silence(&server, &["404", "--reason", "known", "--until", &in_an_hour()]);
    assert_eq!(run.code, 0, "{run:?}");
    let before = server.json(&["finding", "list"])["silences"].clone();
    assert!(child.terminate().await.success());
    let _child = server.start().await;
    server.ready().await;
    finding_where(&server, "the silenced finding", |one| {
        one["code"] == "IM0404" && one["silenced"]["reason"] == "known"
    })
    .await;
    assert_eq!(server.json(&["finding", "list"])["silences"], before);
    let status = server.run(&["status"]);
    assert!(status.stdout.contains("silenced       1 finding\n"), "{status:?}");
    // A warning that is no problem is counted, and is no problem.
    assert_eq!(server.json(&["status"])["problems"], json!([]));
}

fn in_an_hour() -> String {
    (Timestamp::now() + SignedDuration::from_hours(1)).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_at_its_time() {
    let Some((server, _child)) = started().await else { return };
    disconnected_proxy(&server).await;
    let run = silence(&server, &["IM0726", "--reason", "a moment", "--for", "2s"]);
    assert_eq!(run.code, 0, "{run:?}");
    // (The mark may be gone already on a slow machine; the record stays.)
    eventually("the end", async || {
        let list = server.json(&["finding", "list"]);
        let is_marked =
            list["findings"].as_array().unwrap().iter().any(|one| !one["silenced"].is_null());
        let state = list["silences"][0]["state"].clone();
        if !is_marked && state == "expired" { Ok(()) } else { Err(format!("{list:#}")) }
    })
    .await;
    assert_eq!(server.run(&["status"]).code, 1);
    assert_eq!(server.json(&["finding", "list"])["silenced"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_stays_a_problem_despite_its_silence() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", REJECTED);
    let _child = server.start().await;
    finding_where(&server, "the outage", |one| one["code"] == "IM0724").await;
    for finding in findings(&server) {
        let code = finding["code"].as_str().unwrap();
        let run = silence(&server, &[code, "--reason", "known", "--for", "1h"]);
        assert_eq!(run.code, 0, "{run:?}");
    }
    let status = server.run(&["status"]);
    assert_eq!(status.code, 1, "{status:?}");
    assert!(status.stdout.starts_with("wrong: the control plane is not ready"), "{status:?}");
    assert!(status.stdout.contains(": known ("), "{status:?}");
    assert!(status.stdout.contains("; an outage stays a problem\n"), "{status:?}");
    let wrong = server.run(&["status", "--output", "json"]);
    let wrong: Value = serde_json::from_str(&wrong.stdout).unwrap();
    assert_eq!(wrong["wrong"].as_array().unwrap().len(), 1, "{wrong:#}");

    // A rejected policy is silenced as a whole once an earlier one is active.
    server.workspace.write("policy/services.toml", POLICY);
    server.ready().await;
    server.workspace.write("policy/services.toml", REJECTED);
    finding_where(&server, "the rejection", |one| one["code"] == "IM0725").await;
    let status = status_with(&server, 0).await;
    assert!(status.stdout.contains("[IM0725]"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_silence_is_rejected_with_what_to_do() {
    let Some((server, _child)) = started().await else { return };
    finding_where(&server, "an endpoint without a proxy", |one| one["code"] == "IM0404").await;
    let usage = [
        (&["IM0404", "--for", "2h"][..], "--reason <TEXT>"),
        (&["IM0404", "--reason", "x"], "--for <TIME>|--until <TIME>"),
        (
            &["IM0404", "--reason", "x", "--for", "1h", "--until", "2030-01-01T00:00:00Z"],
            "cannot be used with",
        ),
        (&["IM0404", "--reason", "x", "--for", "91d"], "from 1 second to 90 days"),
        (&["IM0404", "--reason", "x", "--for", "0s"], "from 1 second to 90 days"),
        (&["IM0404", "--reason", "x", "--until", "tomorrow"], "write a time with its zone"),
        (&["IM9999", "--reason", "x", "--for", "1h"], "there is no code IM9999"),
        (&["--reason", "x", "--for", "1h"], "<CODE>"),
    ];
    for (arguments, words) in usage {
        let run = silence(&server, arguments);
        assert!(run.code == 2 && run.stderr.contains(words), "{arguments:?}: {run:?}");
    }
    let long = "x".repeat(2_000);
    let rejected = [
        (&["IM0404", "--reason", " ", "--for", "1h"][..], "a silence needs a reason"),
        (&["IM0404", "--reason", "a\nb", "--for", "1h"], "one line"),
        (&["IM0404", "--reason", &long, "--for", "1h"], "one line"),
        (&["IM0404", "--reason", "x", "--until", "2020-01-01T00:00:00Z"], "is over"),
        (&["IM0404", "--reason", "x", "--until", "2999-01-01T00:00:00Z"], "at most 90 days"),
        (&["IM0734", "--reason", "x", "--for", "1h"], "no active finding has the code IM0734"),
        (
            &["IM0404", "--object", "service:default/store", "--reason", "x", "--for", "1h"],
            "they are about `endpoint:default/till|10.0.0.9`",
        ),
        (
            &["IM0404", "--object", "proxy:nobody", "--reason", "x", "--for", "1h"],
            "no proxy `nobody`",
        ),
        (&["IM0404", "--object", "till", "--reason", "x", "--for", "1h"], "KIND:NAME"),
    ];
    for (arguments, words) in rejected {
        let run = silence(&server, arguments);
        assert!(run.code == 1 && run.stderr.contains(words), "{arguments:?}: {run:?}");
    }
    let unknown = server.run(&["finding", "unsilence", "01234567"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("no silence `01234567`"), "{unknown:?}");
    let malformed = server.run(&["finding", "unsilence", "x"]);
    assert!(
        malformed.code == 2 && malformed.stderr.contains("8 hexadecimal digits"),
        "{malformed:?}"
    );
    assert_eq!(server.json(&["finding", "list"])["silences"], json!([]));

    // A service includes its endpoints.
    let all = ["IM0404", "--object", "service:default/till", "--reason", "x", "--for", "1h"];
    assert_eq!(silence(&server, &all).code, 0);
    finding_where(&server, "the silence", |one| {
        one["code"] == "IM0404" && one["silenced"]["reason"] == "x"
    })
    .await;
    // Each rejected request is in the journal.
    let page = server.json(&["journal", "--kind", "silence"]);
    let entries = page["entries"].as_array().unwrap();
    let count = |outcome: &str| entries.iter().filter(|one| one["outcome"] == outcome).count();
    assert_eq!((count("rejected"), count("done")), (rejected.len() + 1, 1), "{page:#}");
}

// The port answers reads for each user of the machine, and no change.
#[tokio::test(flavor = "multi_thread")]
async fn port_lists_findings_without_lines_of_policy_and_changes_nothing() {
    let Some((server, _child)) = started().await else { return };
    let secret = "very-secret-name";
    let text = format!("[[service]]\nname = \"{secret}\"\nports = [{{ port = 1, wrong = 2 }}]\n");
    server.workspace.write("policy/services.toml", &text);
    finding_where(&server, "the rejection", |one| one["code"] == "IM0725").await;
    let admin = server.loopback.socket(1, 15014);
    let answer = get_once(admin, "/v1/findings", &[]).await.unwrap();
    let list = answer.json();
    let found = list["findings"].as_array().unwrap();
    let of_policy: Vec<_> = found.iter().filter(|one| !one["file"].is_null()).collect();
    assert!(!of_policy.is_empty(), "{list:#}");
    for finding in of_policy {
        assert_eq!(finding["file"], "services.toml", "{finding:#}");
        assert_eq!(finding["objects"], json!([format!("service:default/{secret}")]), "{finding:#}");
    }
    assert!(!answer.text().contains("ports = ["), "{}", answer.text());
    assert_eq!(get_once(admin, "/v1/silences", &[]).await.unwrap().status, 200);

    let body = json!({ "code": "IM0725", "reason": "x", "for": 60 }).to_string();
    let port = TcpStream::connect(admin).await.unwrap();
    let (status, answer) = post(port, "/v1/silences", &body).await;
    assert_eq!(status, 403, "{answer}");
    let socket = server.state().join("admin.sock");
    let set = async |body: &str| {
        post(UnixStream::connect(&socket).await.unwrap(), "/v1/silences", body).await
    };
    let bad = [
        (json!({ "code": "IM0725", "for": 60 }), 400),
        (json!({ "code": "IM0725", "reason": "x" }), 400),
        (json!({ "code": "IM0725", "reason": "x", "for": 0 }), 400),
        (
            json!({ "code": "IM0725", "reason": "x", "for": 60, "expires_at": "2030-01-01T00:00:00Z" }),
            400,
        ),
        (json!({ "code": "x", "reason": "x", "for": 60 }), 400),
        (json!({ "code": "IM9999", "reason": "x", "for": 60 }), 404),
        (json!({}), 400),
    ];
    for (body, status) in bad {
        let (found, answer) = set(&body.to_string()).await;
        assert_eq!(found, status, "{body}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["error"].is_string(), "{body}: {answer}");
    }
    let (status, answer) = set(&body).await;
    assert_eq!(status, 201, "{answer}");
    let silence: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (&silence["findings"], &silence["state"]),
        (&json!(1), &json!("active")),
        "{answer}"
    );
}

/// Sends a request with a JSON body. Returns the status and the body of the answer.
pub(crate) async fn post(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(patience(), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
