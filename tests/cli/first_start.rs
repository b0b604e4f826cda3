//! The first start of `ironmesh serve`: without settings, and with a broken policy.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::command::{Workspace, succeeds};
use crate::server::{Server, files, readyz_by_socket};

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// Runs a command in its own network namespace, which has only loopback.
const OWN_NETWORK: [&str; 6] =
    ["--net", "--map-root-user", "--", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""];

#[tokio::test]
async fn serve_without_settings_uses_the_defaults() {
    let Some(workspace) = Workspace::open() else { return };
    if Path::new("/etc/ironmesh/ironmesh.toml").exists() {
        eprintln!("SKIPPED: this machine has a settings file of its own");
        return;
    }
    // The default ports may be occupied on this machine.
    if !succeeds(Command::new("unshare").args(OWN_NETWORK).arg("true")) {
        eprintln!("SKIPPED: no network of its own can be made here (unshare, ip)");
        return;
    }
    workspace.write("rules/store.toml", POLICY);
    let rules = workspace.path().join("rules");
    let serve = workspace.command(&["serve", "--policy", rules.to_str().unwrap()]);
    let mut command = tokio::process::Command::new("unshare");
    command.args(OWN_NETWORK).arg(serve.get_program()).args(serve.get_args());
    command.current_dir(workspace.path()).env("XDG_STATE_HOME", workspace.path().join("home"));
    command.env_remove("RUST_LOG").env_remove("IRONMESH_CONFIG");
    let mut child =
        Child::start("ironmesh serve", &mut command, &workspace.path().join("serve.log"));

    let state = workspace.path().join("home/ironmesh");
    let readiness = eventually("readiness", async || {
        child.assert_running();
        // A Unix socket is reachable from any network namespace.
        match readyz_by_socket(&state.join("admin.sock")).await? {
            answer if answer.status == 200 => Ok(answer.json()),
            answer => anyhow::bail!("{}", answer.text()),
        }
    })
    .await;
    assert_eq!(readiness["policy"]["source"], rules.to_str().unwrap());
    assert_ne!(readiness["policy"]["revision"], Value::Null);
    assert_eq!(files(&state), ["admin.sock", "high-water", "kek", "state.redb"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for file in files(&state) {
        assert_eq!(mode(&state.join(&file)), 0o600, "{file}");
    }
    let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", child.id().unwrap())).unwrap();
    // xDS at any address, port 15128; the admin API at 127.0.0.1, port 15014; both listening.
    for (address, what) in [("00000000:3B18", "xDS"), ("0100007F:3AA6", "the admin API")] {
        let listening = format!("{address} 00000000:0000 0A ");
        assert!(sockets.contains(&listening), "no {what} in\n{sockets}");
    }

    // Other commands find it without settings, too.
    let run = workspace.run(&["proxy", "list"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = workspace.run(&[
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
    assert!(child.terminate().await.success());
}

#[tokio::test]
async fn first_start_with_broken_policy_waits_for_a_valid_one() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/store.toml", "[[service]]\nname = \"store\"\nprots = []\n");
    let mut child = server.start().await;

    let answer = server.readyz().await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    let readiness = answer.json();
    assert_eq!(readiness["ready"], false);
    let waiting_for = readiness["waiting_for"].as_array().unwrap();
    assert_eq!(waiting_for.len(), 1, "{readiness:#}");
    assert!(waiting_for[0].as_str().unwrap().contains("a policy without errors"), "{readiness:#}");
    assert!(waiting_for[0].as_str().unwrap().contains(server.workspace.path().to_str().unwrap()));
    assert_eq!(readiness["policy"]["revision"], Value::Null);
    let finding = &readiness["policy"]["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["file"], &finding["line"], &finding["column"]),
        (&"IM0102".into(), &"store.toml".into(), &3.into(), &1.into()),
        "{readiness:#}"
    );

    // A client connects and gets no answer; other requests take longer than an answer would.
    let client = tokio::spawn(greet(server.loopback.socket(1, 15128)));
    let out = server.workspace.path().join("proxy");
    let arguments =
        ["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1", "--out", "proxy"];
    let run = server.run(&arguments);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("no policy is active yet: see `ironmesh status`"),
        "{}",
        run.stderr
    );
    assert!(!out.exists());
    let run = server.run(&["proxy", "list", "--output", "json"]);
    assert_eq!((run.code, run.stdout.trim()), (0, "[]"), "{run:?}");
    assert!(!client.is_finished(), "xDS was answered: {:?}", client.await);

    server.workspace.write("policy/store.toml", POLICY);
    server.ready().await;
    let readiness = server.readyz().await.json();
    assert_eq!(readiness["waiting_for"], Value::Array(vec![]));
    assert_eq!(readiness["policy"]["findings"], Value::Array(vec![]));
    // The waiting client gets its answer: a certificate, which it does not trust.
    let answer = eventually("an answer to the client", async || {
        if client.is_finished() { Ok(()) } else { Err("none") }
    });
    answer.await;
    let answer = client.await.unwrap();
    assert!(answer.contains("UnknownIssuer"), "{answer}");
    assert_eq!(server.run(&arguments).code, 0);
    assert!(out.is_dir());
    assert!(child.terminate().await.success());
}

/// Starts TLS as a client without trusted roots; returns the result.
pub(crate) async fn greet(address: std::net::SocketAddr) -> String {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "xds".try_into().unwrap();
    let connection = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    format!("{:?}", connection.map(drop))
}
