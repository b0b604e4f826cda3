//! gRPC's own xDS client, which is not Envoy: it names what it wants, also listeners and clusters, in
//! the state-of-the-world variant, and knows an API listener (R61).

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use ironmesh_tests::eventually;
use ironmesh_tests::programs::require_grpcio;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, Locality, SocketAddress, address,
    config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{ApiListener, Listener};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route,
    route_action::ClusterSpecifier, route_match::PathSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::router::v3::Router;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use ironmesh_xds_wire::pb::google::protobuf::UInt32Value;
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, any};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::server::Server;

#[expect(clippy::unnecessary_wraps, reason = "message fields are options")]
fn ads() -> Option<ConfigSource> {
    Some(ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    })
}

/// All that a client of `api.mesh.local` needs, whose calls go to `port`.
fn set(port: u16) -> ResourceSet {
    let router = HttpFilter {
        name: "router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
        ..HttpFilter::default()
    };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: ads(),
            route_config_name: "routes".to_owned(),
        })),
        http_filters: vec![router],
        ..HttpConnectionManager::default()
    };
    let listener = Listener {
        name: "api.mesh.local".to_owned(),
        api_listener: Some(ApiListener { api_listener: Some(any(&manager)) }),
        ..Listener::default()
    };
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster("api".to_owned())),
        ..RouteAction::default()
    };
    let every_call = RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix(String::new())),
        ..RouteMatch::default()
    };
    let routes = RouteConfiguration {
        name: "routes".to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "api".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![Route {
                r#match: Some(every_call),
                action: Some(route::Action::Route(action)),
                ..Route::default()
            }],
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    let cluster = Cluster {
        name: "api".to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            ..EdsClusterConfig::default()
        }),
        ..Cluster::default()
    };
    let socket = SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..SocketAddress::default()
    };
    let address = Address { address: Some(address::Address::SocketAddress(socket)) };
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let endpoints = ClusterLoadAssignment {
        cluster_name: "api".to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            locality: Some(Locality::default()),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            lb_endpoints: vec![LbEndpoint {
                host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                ..LbEndpoint::default()
            }],
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    };
    let mut set = ResourceSet::default();
    for resource in [
        Resource::new(&listener),
        Resource::new(&routes),
        Resource::new(&cluster),
        Resource::new(&endpoints),
    ] {
        set.insert(Arc::new(resource));
    }
    set
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// The TLS of a server with a certificate of its own, whose clients are those below `roots`.
fn server_config(
    roots: RootCertStore,
    own: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let peers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(peers.build().unwrap())
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcs_own_client_finds_its_servers_and_follows_them() {
    let Some(grpcio) = require_grpcio() else { return };
    let server = Server::start().await;
    let client = server.authority.proxy();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs_err::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // It compares hostnames, which ours have none of: the listener shows it a certificate of its own.
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    server.tls.send_replace(server_config(server.authority.roots(), &own));
    let tls = json!({
        "ca_certificate_file": file("server.pem", &own.cert.pem()),
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
    let mut call = async || {
        calls.write_all(b"\n").await.unwrap();
        answers.next_line().await.unwrap().expect("it runs")
    };
    let first = async {
        server.publish(&client, set(a)).await;
    };
    let (answer, ()) = tokio::join!(call(), first);
    assert_eq!(answer, "a");

    server.hub.publish(&client.name(), set(b));
    eventually("the other server to answer", async || match call().await.as_str() {
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
