//! schemathesis compares a running control plane with the OpenAPI document of the API.
//!
//! It sends what the schemas allow and what they forbid, to each operation: each status must be declared, each body must
//! match its schema, bad data must be rejected, and nothing may be a defect of the server (500).

use std::path::Path;

use fs_err as fs;
use ironmesh_tests::programs::require_schemathesis;
use serde_json::Value;
use tokio::process::Command;

use crate::openapi::checked_in;
use crate::server::Server;

/// Runs schemathesis with these arguments; it must find nothing.
async fn run(program: &Path, server: &Server, arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/schemathesis");
    let mut command = Command::new(program);
    command
        .arg("--no-color")
        .arg("--config-file")
        .arg(folder.join("schemathesis.toml"))
        .arg("run")
        .arg(checked_in())
        .args(arguments)
        .current_dir(server.workspace.path())
        .env("SCHEMATHESIS_HOOKS", folder.join("hooks.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "schemathesis found differences:\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[tokio::test]
async fn network_listener_conforms_to_the_document() {
    let Some(program) = require_schemathesis() else { return };
    let Some(server) = Server::open_with_releases() else { return };
    let api = server.loopback.socket(1, 15130);
    let settings = server.workspace.path().join("ironmesh.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{text}api = \"{api}\"\n")).unwrap();
    let _child = server.start().await;
    server.workspace.write(
        "rules/a.toml",
        "[[service]]\nname = \"store\"\nports = [{ port = 14001, protocol = \"http\" }]\n",
    );
    server.json(&["policy", "apply", "rules"]);
    server.ready().await;
    let issued = server.run(&["operator", "token", "root", "--role", "admin", "--expires", "1h"]);
    assert_eq!(issued.code, 0, "{issued:?}");
    let credential = fs::read_to_string(server.workspace.path().join("root.json")).unwrap();
    let credential: Value = serde_json::from_str(&credential).unwrap();
    server.workspace.write("roots.pem", credential["roots"].as_str().unwrap());
    let header = format!("Authorization: Bearer {}", credential["token"].as_str().unwrap());
    let url = format!("https://{api}");
    let tls = ["--url", &url, "--tls-verify", "roots.pem", "--header", &header];
    // A rejected login counts against its source, which would be blocked. The admin port gets these requests.
    run(&program, &server, &[&tls[..], &["--exclude-operation-id", "log_in"]].concat()).await;
}

#[tokio::test]
async fn admin_port_conforms_to_the_document() {
    let Some(program) = require_schemathesis() else { return };
    let Some(server) = Server::open("") else { return };
    server.workspace.write(
        "policy/a.toml",
        "[[service]]\nname = \"store\"\nports = [{ port = 14001, protocol = \"http\" }]\n",
    );
    let _child = server.start().await;
    server.ready().await;
    let url = format!("http://{}", server.loopback.socket(1, 15014));
    run(&program, &server, &["--url", &url]).await;
}
