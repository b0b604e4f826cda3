//! gRPC's own xDS client, an alternative to Envoy: in the state-of-the-world variant it subscribes
//! to listeners and clusters by name, and uses an API listener (R61). The test also checks the gRPC
//! health service.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use ironmesh_tests::eventually;
use ironmesh_tests::programs::require_grpcio;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{ApiListener, Listener};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, any};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::hand_made::{ads, cluster, endpoints, manager, routes, set_of};
use crate::server::Server;

/// All resources that a client of `api.mesh.local` needs; calls go to `port`.
fn set(port: u16) -> ResourceSet {
    let listener = Listener {
        name: "api.mesh.local".to_owned(),
        api_listener: Some(ApiListener { api_listener: Some(any(&manager("routes", &ads()))) }),
        ..Listener::default()
    };
    let endpoints = endpoints("api", SocketAddr::from(([127, 0, 0, 1], port)));
    set_of(&[
        Resource::new(&listener),
        Resource::new(&routes("routes", "api")),
        Resource::new(&cluster("api", &ads())),
        Resource::new(&endpoints),
    ])
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// R61 (sotw).
#[tokio::test(flavor = "multi_thread")]
async fn grpc_client_verifies_the_server_by_address_and_follows_it() {
    let Some(grpcio) = require_grpcio() else { return };
    let server = Server::start().await;
    let client = server.authority.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs_err::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // The client compares the name that it connects to, and does not know SPIFFE IDs.
    let tls = json!({
        "ca_certificate_file": file("roots.pem", &server.authority.roots_pem()),
        "certificate_file": file("client.pem", &client.chain),
        "private_key_file": file("client.key", &client.key),
        "refresh_interval": "600s",
    });
    let bootstrap = json!({
        "xds_servers": [{
            "server_uri": server.address.to_string(),
            "channel_creds": [{ "type": "tls", "config": tls }],
            "server_features": ["xds_v3"],
        }],
        "node": { "id": client.name() },
    });
    let (a, b) = (free_port(), free_port());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/grpc_client.py");
    let mut program = Command::new("python3")
        .arg(script)
        .args([a.to_string(), b.to_string()])
        .env("PYTHONPATH", grpcio)
        .env("GRPC_XDS_BOOTSTRAP", file("bootstrap.json", &bootstrap.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut calls = program.stdin.take().unwrap();
    let mut answers = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut say = async |line: &str| {
        calls.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        answers.next_line().await.unwrap().expect("it runs")
    };
    // The server is healthy (field 1), and unknown services are not found.
    let ads = "envoy.service.discovery.v3.AggregatedDiscoveryService";
    assert_eq!(say(&format!("health {ads}")).await, "0801");
    let unknown = say("health x").await;
    assert!(unknown.starts_with("nobody: StatusCode.NOT_FOUND"), "{unknown}");

    let first = async {
        server.publish(&client, set(a)).await;
    };
    let (answer, ()) = tokio::join!(say(""), first);
    assert_eq!(answer, "a");

    server.hub.publish(&client.name(), set(b));
    eventually("the other server to answer", async || match say("").await.as_str() {
        "b" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    let status = server.hub.status_of(&client.name()).unwrap();
    assert!(status.nacks.is_empty(), "{:?}", status.nacks);
    let endpoints = &set(b);
    let endpoints = endpoints.of(ResourceType::Endpoint).values().next().unwrap();
    assert!(status.has(ResourceType::Endpoint, "api", endpoints.version()));
}
