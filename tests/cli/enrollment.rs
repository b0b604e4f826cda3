//! `ironmesh proxy token`, `agent join`, `proxy bootstrap --renew` and `proxy set-services`: a machine joins with a
//! one-time token, and renews its certificate by itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::command::{Run, finish};
use crate::server::{Server, files};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

/// A UUID.
const ID: &str = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f";

/// A running control plane with two services, from whose folder machines join.
pub(crate) struct EnrollmentServer {
    pub(crate) server: Server,
    _child: Child,
}

/// What an operator gives to a machine.
pub(crate) struct Invitation {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) ca_hash: String,
}

impl EnrollmentServer {
    pub(crate) async fn open() -> Option<Self> {
        let server = Server::open("")?;
        server.workspace.write("policy/services.toml", POLICY);
        let child = server.start().await;
        server.ready().await;
        Some(Self { server, _child: child })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.loopback.socket(1, 15129)
    }

    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.server.workspace.path().join(name)
    }

    pub(crate) fn invite(&self, more: &[&str]) -> Invitation {
        let created = self.server.json(&[&["proxy", "token", "--service", "store"], more].concat());
        let text = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        Invitation {
            id: text("/tokens/0/id"),
            token: text("/tokens/0/token"),
            ca_hash: text("/ca_hashes/0"),
        }
    }

    /// Runs `agent join` for the folder `out`, without the settings of the control plane.
    pub(crate) fn join(&self, invitation: &Invitation, out: &str, more: &[&str]) -> Run {
        self.join_at(self.address(), invitation, out, more)
    }

    fn join_at(&self, at: SocketAddr, invitation: &Invitation, out: &str, more: &[&str]) -> Run {
        finish(&mut self.join_command(at, invitation, out, more))
    }

    fn join_command(
        &self,
        at: SocketAddr,
        invitation: &Invitation,
        out: &str,
        more: &[&str],
    ) -> std::process::Command {
        self.server.workspace.write("token", &format!("{}\n", invitation.token));
        let (url, hash) = (format!("https://{at}"), &*invitation.ca_hash);
        let arguments =
            ["agent", "join", &url, "--token-file", "token", "--ca-hash", hash, "--out", out];
        self.server.workspace.command(&[&arguments, more].concat())
    }

    fn renew(&self, out: &str, more: &[&str]) -> Run {
        self.server.workspace.run(&[&["proxy", "bootstrap", "--renew", out], more].concat())
    }

    fn proxies(&self) -> Vec<Value> {
        serde_json::from_value(self.server.json(&["proxy", "list"])).unwrap()
    }

    pub(crate) fn token_state(&self, id: &str) -> Value {
        let list = self.server.json(&["proxy", "token", "list"]);
        let mut tokens = list["tokens"].as_array().unwrap().iter();
        tokens.find(|token| token["id"] == id).unwrap()["state"].clone()
    }
}

/// Checks the exit code, and these words on stderr.
fn assert_failed(run: &Run, code: i32, words: &[&str]) {
    assert_eq!((run.code, &*run.stdout), (code, ""), "{run:?}");
    for part in words {
        assert!(run.stderr.contains(part), "no {part:?} in {}", run.stderr);
    }
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap()
}

#[tokio::test]
async fn machine_joins_by_a_token_and_is_listed() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&["--label", "version=v2", "--locality", "eu/1"]);
    let run = running.join(&invitation, "machine/proxy", &["--upstream", "buyer=8000"]);
    assert_eq!(run.code, 0, "{run:?}");
    let out = running.out("machine/proxy");
    let command = format!("envoy -c {}", out.join("envoy.yaml").display());
    assert!(run.stdout.contains(&command), "{}", run.stdout);
    assert!(run.stdout.starts_with("proxy store-1 ("), "{}", run.stdout);
    // Nothing is left beside the folder.
    assert_eq!(files(&running.out("machine")), ["proxy"]);
    assert_eq!(
        files(&out),
        [
            "ca.crt",
            "enrollment.json",
            "envoy.yaml",
            "proxy.crt",
            "proxy.key",
            "sds-certificate.yaml",
            "sds-roots.yaml",
            "workload.json"
        ]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&out), mode(&out.join("proxy.key"))), (0o700, 0o600));
    let addresses: Value = serde_json::from_str(&read(&out, "enrollment.json")).unwrap();
    assert_eq!(addresses["addresses"], json!([format!("https://{}", running.address())]));

    let proxies = running.proxies();
    assert_eq!(proxies.len(), 1, "{proxies:?}");
    // The default address is that of the connection.
    assert_eq!(proxies[0]["mesh_address"], "127.0.0.1:15003");
    assert_eq!(proxies[0]["labels"], json!({ "version": "v2" }));
    assert_eq!(proxies[0]["services"], json!(["default/store"]));
    let workload: Value = serde_json::from_str(&read(&out, "workload.json")).unwrap();
    assert_eq!(workload["driver"], "envoy");
    assert_eq!(workload["id"], proxies[0]["id"]);
    let bootstrap: Value = serde_json::from_str(&read(&out, "envoy.yaml")).unwrap();
    assert_eq!(bootstrap["node"]["id"], proxies[0]["id"]);
    assert_eq!(bootstrap["node"]["cluster"], "default/store");
    let upstreams = &bootstrap["node"]["metadata"]["ironmesh"]["upstreams"];
    assert_eq!(upstreams[0]["service"], "default/buyer");
    assert_eq!(running.token_state(&invitation.id), "used");
}

#[tokio::test]
async fn unknown_sidecar_class_creates_no_token_and_enrolls_nothing() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let token = ["proxy", "token", "--service", "store", "--sidecar"];
    let bootstrap = ["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1"];
    let bootstrap = [&bootstrap[..], &["--out", "proxy", "--sidecar"]].concat();
    for command in [&token[..], &bootstrap] {
        for (class, help) in [("envoi", "did you mean `envoy`?"), ("haproxy", "it has: envoy")] {
            let run = running.server.run(&[command, &[class]].concat());
            let unknown = format!("no sidecar driver `{class}` in this version of ironmesh");
            assert_failed(&run, 1, &[&unknown, help]);
        }
    }
    let list = running.server.json(&["proxy", "token", "list"]);
    assert_eq!(list["tokens"], json!([]));
    assert!(running.proxies().is_empty() && !running.out("proxy").exists());
    let invitation = running.invite(&["--sidecar", "envoy"]);
    assert_eq!(running.join(&invitation, "proxy", &[]).code, 0);
}

#[tokio::test]
async fn token_in_text_mode_is_the_only_stdout_and_is_read_from_stdin() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let run = running.server.run(&["proxy", "token", "--service", "store", "--count", "3"]);
    assert_eq!(run.code, 0, "{run:?}");
    let tokens: Vec<_> = run.stdout.lines().collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|token| token.starts_with("imt1_")), "{tokens:?}");
    assert!(!tokens.iter().any(|token| run.stderr.contains(token)), "{}", run.stderr);
    let command = format!("ironmesh agent join https://{} --token-file FILE", running.address());
    assert!(run.stderr.contains(&command), "{}", run.stderr);
    assert!(run.stderr.contains("set `advertise`"), "{}", run.stderr);

    // The printed command works, with the token on stdin.
    let line = run.stderr.lines().find(|line| line.contains("agent join")).unwrap();
    let line = line.replace("FILE", "-").replace("DIR", "proxy");
    let arguments: Vec<_> = line.split_whitespace().skip(1).collect();
    let mut command = running.server.workspace.command(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(tokens[1].as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(running.out("proxy").join("envoy.yaml").exists());
}

#[tokio::test]
async fn used_or_malformed_token_enrolls_nothing() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let mut invitation = running.invite(&[]);
    assert_eq!(running.join(&invitation, "first", &[]).code, 0);
    let before = files(running.server.workspace.path());
    let run = running.join(&invitation, "second", &[]);
    let words =
        "token is unknown, expired or already used: create a new one with `ironmesh proxy token`";
    assert_failed(&run, 1, &["cannot enroll this machine: ", words]);
    let list = running.server.run(&["proxy", "token", "list"]);
    assert!(list.stdout.contains("presented again, with another key, by 127."), "{list:?}");

    invitation.token.pop();
    let run = running.join(&invitation, "second", &[]);
    assert_failed(&run, 1, &["token is malformed", "`ironmesh proxy token`"]);
    assert_eq!(files(running.server.workspace.path()), before);
    assert_eq!(running.proxies().len(), 1);
}

#[tokio::test]
async fn wrong_ca_hash_is_refused_before_the_token_is_sent() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let wrong = Invitation { ca_hash: format!("sha256:{}", "0".repeat(64)), ..running.invite(&[]) };
    let wrong = Invitation { token: invitation.token.clone(), ..wrong };
    let run = running.join(&wrong, "proxy", &[]);
    let words = ["nothing was sent to", "expected the CA hash sha256:0000", &invitation.ca_hash];
    assert_failed(&run, 1, &words);
    assert!(!running.out("proxy").exists());
    assert_eq!(running.token_state(&invitation.id), "unused");
    // The token is still good.
    assert_eq!(running.join(&invitation, "proxy", &[]).code, 0);
}

/// The run of a command on a disk that has room for files of up to `blocks` of 512 bytes, or 1 KiB in some shells.
fn with_small_files(command: &std::process::Command, blocks: u8) -> Run {
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.current_dir(command.get_current_dir().unwrap());
    finish(&mut limited)
}

#[tokio::test]
async fn full_disk_of_a_machine_loses_neither_token_nor_certificate() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let join = running.join_command(running.address(), &invitation, "proxy", &[]);
    // No room for the key: the token is not sent.
    let run = with_small_files(&join, 0);
    assert_failed(&run, 1, &["cannot write", "File too large"]);
    assert_eq!(running.token_state(&invitation.id), "unused");
    // Room for the key, and none for the certificate: a repetition gets the same one.
    let run = with_small_files(&join, 1);
    assert_failed(&run, 1, &["File too large"]);
    assert_eq!(running.token_state(&invitation.id), "used");
    assert!(!running.out("proxy").exists());
    let run = running.join(&invitation, "proxy", &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(running.proxies().len(), 1);

    let out = running.out("proxy");
    let content = || files(&out).iter().map(|name| read(&out, name)).collect::<Vec<_>>();
    let before = content();
    let renew = ["proxy", "bootstrap", "--renew", "proxy", "--force"];
    let run = with_small_files(&running.server.workspace.command(&renew), 1);
    assert_failed(&run, 1, &["cannot write", "File too large"]);
    assert_eq!(content(), before);
    assert_eq!(running.renew("proxy", &["--force"]).code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_control_plane_is_reported_after_the_first_attempt() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let at = running.server.loopback.socket(9, 15129);
    let mut command = running.join_command(at, &invitation, "proxy", &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let words = format!("ironmesh: cannot reach https://{at}: Connection refused (os error 111); ");
    assert!(line.starts_with(&words) && line.contains("trying again for up to 60 s"), "{line}");
}

#[tokio::test]
async fn port_of_xds_is_reported_at_once() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let xds = running.server.loopback.socket(1, 15128);
    let run = running.join_at(xds, &invitation, "proxy", &[]);
    assert_failed(&run, 1, &["cannot enroll this machine: ", "does not serve enrollment", "15129"]);
    // Nothing was sent, so nothing is repeated.
    let left = files(running.server.workspace.path());
    assert!(!left.iter().any(|name| name.contains(".key")), "{left:?}");
}

#[tokio::test]
async fn address_outside_the_range_of_the_token_is_rejected() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&["--address", "127.9.0.0/16"]);
    let run = running.join(&invitation, "proxy", &["--address", "127.9.0.7"]);
    assert_failed(&run, 1, &["does not allow connections from 127.0.0.1, only from 127.9.0.0/16"]);
    let invitation = running.invite(&["--address", "127.0.0.0/16"]);
    let run = running.join(&invitation, "proxy", &["--address", "127.9.0.7"]);
    assert_failed(&run, 1, &["does not allow the address 127.9.0.7", "127.0.0.0/16", "--address"]);
    assert!(!running.out("proxy").exists());
    let run = running.join(&invitation, "proxy", &["--address", "127.0.9.7"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(running.proxies()[0]["mesh_address"], "127.0.9.7:15003");
    // Envoy's own listeners are on the same loopback address.
    let bootstrap: Value =
        serde_json::from_str(&read(&running.out("proxy"), "envoy.yaml")).unwrap();
    let listener = "/static_resources/listeners/0/address/socket_address/address";
    assert_eq!(bootstrap.pointer(listener).unwrap(), "127.0.9.7");
}

#[tokio::test(flavor = "multi_thread")]
async fn join_whose_response_is_lost_succeeds_when_repeated() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&[]);
    let relay = Relay::without_responses(running.address()).await;
    let mut command = running.join_command(relay, &invitation, "proxy", &[]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = command.spawn().unwrap();
    eventually("the use of the token", async || match running.token_state(&invitation.id) {
        state if state == "used" => Ok(()),
        state => Err(state),
    })
    .await;
    // The machine loses power.
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!running.out("proxy").exists());

    let run = running.join(&invitation, "proxy", &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(running.proxies().len(), 1);
    let left = files(running.server.workspace.path());
    assert!(!left.iter().any(|name| name.contains(".key")), "{left:?}");
}

#[tokio::test]
async fn certificate_is_renewed_when_due_or_forced_until_revocation() {
    let Some(running) = EnrollmentServer::open().await else { return };
    assert_eq!(running.join(&running.invite(&[]), "proxy", &[]).code, 0);
    let out = running.out("proxy");
    let (certificate, key) = (read(&out, "proxy.crt"), read(&out, "proxy.key"));
    let run = running.renew("proxy", &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains(": not due before "), "{run:?}");
    assert_eq!(read(&out, "proxy.crt"), certificate);

    let run = running.renew("proxy", &["--force"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("proxy store-1 (") && run.stdout.contains("): renewed, expires at ")
    );
    let renewed = read(&out, "proxy.crt");
    assert!(renewed != certificate && read(&out, "proxy.key") == key);
    assert_eq!(files(&out).len(), 8);
    let run = running.renew("proxy", &["--force", "--output", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["renewed"], &report["new_roots"]), (&json!(true), &json!(false)));
    // The journal is written a moment later.
    eventually("two entries in the journal", async || {
        let journal = running.server.json(&["journal", "--kind", "renew"]);
        if journal["entries"].as_array().map(Vec::len) == Some(2) { Ok(()) } else { Err(journal) }
    })
    .await;

    let renewed = read(&out, "proxy.crt");
    assert_eq!(running.server.run(&["proxy", "revoke", "store-1"]).code, 0);
    let run = running.renew("proxy", &["--force"]);
    let words =
        ["cannot renew the certificate in `proxy`", "its files are unchanged", "was revoked"];
    assert_failed(&run, 1, &words);
    assert_eq!(read(&out, "proxy.crt"), renewed);
}

#[tokio::test]
async fn folder_of_proxy_bootstrap_is_renewed() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let run = running.server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "store",
        "--address",
        "127.0.0.1",
        "--out",
        "proxy",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    let before = read(&running.out("proxy"), "proxy.crt");
    let run = running.renew("proxy", &["--force"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_ne!(read(&running.out("proxy"), "proxy.crt"), before);
    // The options of a new proxy do not apply.
    let run = running.renew("proxy", &["--out", "other"]);
    assert_failed(&run, 2, &["cannot be used with"]);
    let run = running.server.run(&["proxy", "bootstrap", "--force"]);
    assert_failed(&run, 2, &["--renew <DIR>"]);
}

#[tokio::test]
async fn tokens_are_listed_and_revoked() {
    let Some(running) = EnrollmentServer::open().await else { return };
    let invitation = running.invite(&["--ttl", "7d"]);
    let run = running.server.run(&["proxy", "token", "list"]);
    assert_eq!(run.code, 0, "{run:?}");
    let row = run.stdout.lines().nth(1).unwrap();
    let columns = |left: &str| row.contains(&format!("unused  default/store  any      in {left}"));
    assert!(row.starts_with(&invitation.id) && (columns("7d") || columns("6d23h")), "{run:?}");
    assert!(!run.stdout.contains(&invitation.token));
    let of = |more: &[&str]| running.server.run(&[&["proxy", "token", "list"], more].concat());
    for (more, rows) in [
        (["--state", "unused", "--service", "store"], 1),
        (["--state", "used", "--service", "store"], 0),
        (["--state", "unused", "--service", "buyer"], 0),
    ] {
        assert_eq!(of(&more).stdout.lines().count(), 1 + rows, "{more:?}");
    }
    let wide = of(&["--output", "wide"]);
    assert!(wide.stdout.lines().next().unwrap().ends_with("PROXY"), "{wide:?}");

    let revoke = ["proxy", "token", "revoke", &invitation.id, "--reason", "lost"];
    let run = running.server.run(&revoke);
    assert_eq!(run.code, 0, "{run:?}");
    let words = format!("token {} was revoked", invitation.id);
    assert!(run.stdout.starts_with(&words) && run.stdout.contains("lost"), "{run:?}");
    assert_eq!(running.token_state(&invitation.id), "revoked");
    assert_failed(&running.join(&invitation, "proxy", &[]), 1, &["already used"]);
    let revoke = |id: &str| running.server.run(&["proxy", "token", "revoke", id]);
    for unknown in ["0000000000000000", "00000000"] {
        assert_failed(&revoke(unknown), 1, &[unknown]);
    }
    // A whole token, and the first digits of an id.
    let pasted = running.invite(&[]);
    assert_eq!(revoke(&pasted.token).code, 0);
    assert_eq!(running.token_state(&pasted.id), "revoked");
    let short = running.invite(&[]);
    assert_eq!(revoke(&short.id[..8]).code, 0);
    assert_eq!(running.token_state(&short.id), "revoked");
    let secret = pasted.token.rsplit('_').next().unwrap();
    let run = revoke(secret);
    assert_failed(&run, 2, &["between `imt1_` and the next `_`"]);
    assert!(!run.stderr.contains(secret), "{run:?}");
    let run = running.server.run(&["proxy", "token", "--service", "store", "--ttl", "8d"]);
    assert_failed(&run, 2, &["from 1 second to 7 days"]);
    let run = running.server.run(&["proxy", "token"]);
    assert_failed(&run, 2, &["--service"]);
    let several = ["proxy", "token", "--service", "store", "--count", "2"];
    for of_one in [["--known-as", "10.0.0.1"], ["--azure-vm-id", ID]] {
        let run = running.server.run(&[&several[..], &of_one].concat());
        assert_failed(&run, 2, &[of_one[0], "cannot be used with"]);
    }
}

#[tokio::test]
async fn services_of_a_proxy_change_without_a_new_enrollment() {
    let Some(running) = EnrollmentServer::open().await else { return };
    assert_eq!(running.join(&running.invite(&[]), "proxy", &[]).code, 0);
    let set = ["proxy", "set-services", "store-1", "--service", "store", "--service", "buyer"];
    let run = running.server.run(&set);
    assert_eq!(run.code, 0, "{run:?}");
    let words = "serves default/store, default/buyer; before: default/store\n";
    assert!(run.stdout.ends_with(words), "{run:?}");
    assert_eq!(running.proxies()[0]["services"], json!(["default/store", "default/buyer"]));
    let run = running.server.run(&["proxy", "set-services", "store-1", "--service", "stroe"]);
    assert_failed(&run, 1, &["policy defines no service `default/stroe`"]);
}

/// A relay to the control plane that forwards handshakes and requests, and no response.
struct Relay;

impl Relay {
    async fn without_responses(to: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, to));
            }
        });
        address
    }
}

async fn relay(client: TcpStream, to: SocketAddr) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(to).await.unwrap().into_split();
    // The first bytes of a client are its hello. It sends further ones when the server's handshake is complete.
    let is_sent = Arc::new(AtomicBool::new(false));
    let is_sent_too = Arc::clone(&is_sent);
    let responses = tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if !is_sent_too.load(Ordering::SeqCst) {
                to_client.write_all(&bytes[..count]).await.unwrap();
            }
        }
        // Open, so that the client waits.
        std::future::pending::<()>().await;
        drop(to_client);
    });
    let (mut bytes, mut is_first) = (vec![0; 1 << 16], true);
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        is_sent.store(!is_first, Ordering::SeqCst);
        is_first = false;
        to_server.write_all(&bytes[..count]).await.unwrap();
    }
    responses.abort();
}
