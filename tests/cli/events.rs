//! The stream of events with a real control plane: many readers, a restart, resuming, roles and revoked credentials.

use std::collections::BTreeSet;

use fs_err as fs;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, eventually, get_once};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Duration, timeout};

use crate::operators::{network_stream, ok, start, token_text};
use crate::server::Server;

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// A reader of the stream that keeps all text.
struct Reader<S> {
    stream: S,
    text: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Reader<S> {
    async fn open(mut stream: S, path: &str, headers: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, text: String::new() }
    }

    /// Reads more. Returns whether the stream goes on.
    async fn read(&mut self) -> bool {
        let mut bytes = vec![0; 16 << 10];
        match self.stream.read(&mut bytes).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                true
            }
        }
    }

    async fn read_until(&mut self, what: &str) {
        let found = timeout(DEADLINE, async {
            while !self.text.contains(what) {
                assert!(self.read().await, "the stream ended before `{what}`: {}", self.text);
            }
        });
        assert!(found.await.is_ok(), "no `{what}`: {}", self.text);
    }
}

async fn by_socket(server: &Server, path: &str) -> Reader<UnixStream> {
    let stream = UnixStream::connect(server.state().join("admin.sock")).await.unwrap();
    Reader::open(stream, path, "host: ironmesh\r\n").await
}

async fn serve(policy: &str) -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/a.toml", policy);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

const POLICY: &str = "[[service]]\nname = \"store\"\n";

/// Adds an entry to the journal, with this reason.
fn reject_revocation(server: &Server, reason: &str) {
    let run = server.run(&["proxy", "revoke", "none", "--reason", reason]);
    assert_eq!(run.code, 1, "{run:?}");
}

/// The numbers of all entries of the journal.
fn stored(server: &Server) -> Vec<u64> {
    let page = server.json(&["journal", "--since", "1h"]);
    let entries = page["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["sequence"].as_u64().unwrap()).collect()
}

fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[tokio::test]
async fn thousand_readers_get_events_while_others_are_answered() {
    raise_open_files();
    let Some((server, _child)) = serve(POLICY).await else { return };
    // It never reads.
    let silent = by_socket(&server, "/v1/events").await;
    let mut readers = Vec::new();
    for _ in 1..1_024 {
        readers.push(by_socket(&server, "/v1/events").await);
    }
    for reader in &mut readers {
        reader.read_until("event: reset").await;
    }
    let mut beyond = by_socket(&server, "/v1/events").await;
    beyond.read_until("1024 readers of events are connected").await;
    assert!(beyond.text.starts_with("HTTP/1.1 503"), "{}", beyond.text);

    reject_revocation(&server, "for all readers");
    let bystander = get_once(server.loopback.socket(1, 15014), "/v1/findings", &[]).await.unwrap();
    assert_eq!(bystander.status, 200);
    for reader in &mut readers {
        reader.read_until("for all readers").await;
        assert_eq!(reader.text.matches("for all readers").count(), 1, "{}", reader.text);
    }
    // A place becomes free with its reader.
    drop(silent);
    eventually("a free place", async || {
        let mut reader = by_socket(&server, "/v1/events").await;
        reader.read().await;
        if reader.text.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(reader.text) }
    })
    .await;
}

#[tokio::test]
async fn events_continue_over_restarts_without_loss_or_repetition() {
    let Some((server, mut child)) = serve(POLICY).await else { return };
    let output = server.workspace.path().join("events.log");
    let arguments = ["events", "--since", "0", "--output", "json", "--config", "ironmesh.toml"];
    let mut command = Command::from(server.workspace.command(&arguments));
    let mut reader = Child::start("ironmesh events", &mut command, &output);
    // A command that has never been connected ends without its control plane.
    eventually("the reader to be connected", async || {
        reader.assert_running();
        let text = fs::read_to_string(&output).unwrap();
        if text.contains('\n') { Ok(()) } else { Err(text) }
    })
    .await;
    for round in 0..3 {
        reject_revocation(&server, &format!("round {round}"));
        if round == 1 {
            // The reader may get the entry only after the restart.
            child.kill_hard().await;
        } else {
            assert!(child.terminate().await.success());
        }
        child = server.start().await;
        server.ready().await;
        reject_revocation(&server, &format!("after {round}"));
        eventually("the reader to be connected again", async || {
            reader.assert_running();
            let text = fs::read_to_string(&output).unwrap();
            if text.contains(&format!("after {round}")) { Ok(()) } else { Err(text) }
        })
        .await;
    }
    let last = *stored(&server).last().unwrap();
    let events = eventually("the last entry", async || {
        reader.assert_running();
        let text = fs::read_to_string(&output).unwrap();
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let events: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        let has_last = events.iter().any(|event| event["data"]["sequence"] == last);
        if has_last { Ok(events) } else { Err(text) }
    })
    .await;
    let entries = events.iter().filter(|event| event["event"] == "journal");
    let received: Vec<_> =
        entries.map(|event| event["data"]["sequence"].as_u64().unwrap()).collect();
    let expected: Vec<_> = stored(&server).into_iter().filter(|number| *number <= last).collect();
    let received: Vec<_> = received.into_iter().filter(|number| *number <= last).collect();
    assert_eq!(received, expected);
    let resets = events.iter().filter(|event| event["event"] == "reset").count();
    assert!(resets >= 4, "{events:#?}");
    reader.kill_hard().await;
}

#[tokio::test]
async fn stored_events_are_printed_and_observed_states_follow() {
    let Some((server, _child)) = serve(POLICY).await else { return };
    reject_revocation(&server, "first");
    let text = ok(server.run(&["events", "--since", "0", "--no-follow"]));
    assert!(text.contains("first") && text.contains("reset"), "{text}");
    let events = |since: &[&str]| -> Vec<Value> {
        let arguments = ["events", "--no-follow", "--output", "json", "--config", "ironmesh.toml"];
        let text = ok(server.workspace.run(&[&arguments[..], since].concat()));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let kinds = |events: &[Value]| -> BTreeSet<String> {
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    let all = eventually("readiness and policy", async || {
        let all = events(&[]);
        let found = kinds(&all);
        let has_both = found.contains("readiness") && found.contains("policy");
        if has_both { Ok(all) } else { Err(format!("{all:#?}")) }
    })
    .await;
    let id = all.last().unwrap()["id"].as_str().unwrap().to_owned();
    server.workspace.write("policy/b.toml", "[[service]]\nname = \"cart\"\n");
    let change = eventually("the next policy", async || {
        let new = events(&["--since", &id]);
        let policy = new.iter().find(|event| event["event"] == "policy").cloned();
        policy.ok_or_else(|| format!("{new:#?}"))
    })
    .await;
    let revision = server.readyz().await.json()["policy"]["revision"].clone();
    assert_eq!(change["data"]["revision"], revision);

    let bad = server.run(&["events", "--since", "yesterday"]);
    assert_eq!(bad.code, 1, "{bad:?}");
    assert!(bad.stderr.contains("the id of an event"), "{bad:?}");
}

#[tokio::test]
async fn only_those_who_read_the_journal_get_its_events() {
    let Some((server, _child)) = start().await else { return };
    token_text(&server, "root", "admin", "1h");
    let viewer = token_text(&server, "vera", "viewer", "1h");
    let operator = token_text(&server, "otto", "operator", "1h");
    for (token, sees_journal) in [(&viewer, false), (&operator, true)] {
        let headers = format!("host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n");
        let path = "/v1/events?since=0&follow=false";
        let mut reader = Reader::open(network_stream(&server).await, path, &headers).await;
        reader.read_until("event: reset").await;
        assert_eq!(reader.text.contains("event: journal"), sees_journal, "{}", reader.text);
    }
    let address = server.loopback.socket(1, 15014);
    let mut port = Http1Connection::connect(address).await.unwrap();
    let answer = port.get("/v1/events?since=0&follow=false", "localhost").await.unwrap();
    assert!(answer.text().contains("event: reset"), "{}", answer.text());
    assert!(!answer.text().contains("event: journal"), "{}", answer.text());
}

#[tokio::test]
async fn stream_of_a_revoked_credential_ends() {
    let Some((server, _child)) = start().await else { return };
    token_text(&server, "root", "admin", "1h");
    let token = token_text(&server, "otto", "operator", "1h");
    let headers = format!("host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n");
    let open = async || Reader::open(network_stream(&server).await, "/v1/events", &headers).await;
    let mut reader = open().await;
    reader.read_until("event: reset").await;
    ok(server.run(&["operator", "revoke", "otto", "--reason", "test"]));
    let ended = timeout(DEADLINE, async {
        while reader.read().await && !reader.text.ends_with("\r\n0\r\n\r\n") {}
    });
    assert!(ended.await.is_ok(), "the stream goes on: {}", reader.text);
    let mut again = open().await;
    again.read_until("HTTP/1.1 401").await;
}
