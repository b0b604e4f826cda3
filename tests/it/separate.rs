//! A real Envoy that receives each type by its own service, in both variants: clusters and
//! listeners by its bootstrap; endpoints, routes and secrets by references in resources.

use std::net::SocketAddr;
use std::path::Path;

use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::tls::connect_mesh;
use ironmesh_tests::{App, Envoy, Http1Connection, Loopback, eventually};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, ConfigSource, DataSource, GrpcService, TransportSocket,
    api_config_source::ApiType, config_source::ConfigSourceSpecifier, data_source::Specifier,
    grpc_service, transport_socket,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret, TlsCertificate, secret,
};
use ironmesh_xds_wire::{Resource, ResourceSet, any};
use serde_json::json;

use crate::bare_envoy::bootstrap;
use crate::hand_made::{cluster, endpoints, manager, routes, set_of, socket};
use crate::server::Server;

/// The config source of a single type's service, in one of the variants.
fn source(api_type: ApiType) -> ConfigSource {
    let service = GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc_service::EnvoyGrpc {
            cluster_name: "xds".to_owned(),
            ..grpc_service::EnvoyGrpc::default()
        })),
        ..GrpcService::default()
    };
    let api = ApiConfigSource {
        api_type: api_type.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![service],
        ..ApiConfigSource::default()
    };
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(api)),
        resource_api_version: ApiVersion::V3.into(),
        ..ConfigSource::default()
    }
}

/// A TLS listener whose calls go through `cluster` to `app`.
struct SeparateSet<'a> {
    api_type: ApiType,
    listener: Option<SocketAddr>,
    cluster: &'a str,
    app: SocketAddr,
    own: &'a rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl SeparateSet<'_> {
    fn set(&self) -> ResourceSet {
        let source = source(self.api_type);
        let text = |text: String| DataSource {
            specifier: Some(Specifier::InlineString(text)),
            ..DataSource::default()
        };
        let certificate = TlsCertificate {
            certificate_chain: Some(text(self.own.cert.pem())),
            private_key: Some(text(self.own.signing_key.serialize_pem())),
            ..TlsCertificate::default()
        };
        let secret = Secret {
            name: "own".to_owned(),
            r#type: Some(secret::Type::TlsCertificate(certificate)),
        };
        let mut set = set_of(&[
            Resource::new(&cluster(self.cluster, &source)),
            Resource::new(&endpoints(self.cluster, self.app)),
            Resource::new(&routes("routes", self.cluster)),
            Resource::new(&secret),
        ]);
        if let Some(address) = self.listener {
            set.insert(Resource::new(&listener(address, &source)).into());
        }
        set
    }
}

fn listener(address: SocketAddr, source: &ConfigSource) -> Listener {
    let own = SdsSecretConfig { name: "own".to_owned(), sds_config: Some(source.clone()) };
    let tls = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![own],
            ..CommonTlsContext::default()
        }),
        ..DownstreamTlsContext::default()
    };
    let http = Filter {
        name: "http".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&manager("routes", source)))),
    };
    Listener {
        name: "in".to_owned(),
        address: Some(socket(address)),
        filter_chains: vec![FilterChain {
            filters: vec![http],
            transport_socket: Some(TransportSocket {
                name: "envoy.transport_sockets.tls".to_owned(),
                config_type: Some(transport_socket::ConfigType::TypedConfig(any(&tls))),
            }),
            ..FilterChain::default()
        }],
        ..Listener::default()
    }
}

async fn assert_types_arrive_by_separate_services(envoy: &Path, api_type: ApiType) {
    let (server, loopback) = (Server::start().await, Loopback::claim());
    let (client, folder) = (server.authority.proxy(), tempfile::tempdir().unwrap());
    let source = json!({ "resource_api_version": "V3", "api_config_source": {
        "api_type": api_type.as_str_name(),
        "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
    }});
    let dynamic = json!({ "cds_config": source, "lds_config": source });
    let text = bootstrap(&server, &client, loopback.socket(11, 15000), &dynamic);
    fs_err::write(folder.path().join("envoy.yaml"), text).unwrap();
    let a = App::http1("a", loopback.socket(21, 8080)).await;
    let b = App::http1("b", loopback.socket(22, 8080)).await;
    let id = "spiffe://mesh.internal/ns/default/sa/a".try_into().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI(id)];
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let own = rcgen::CertifiedKey { cert, signing_key };
    let inbound = loopback.socket(11, 10000);
    let first = SeparateSet {
        api_type,
        listener: Some(inbound),
        cluster: "one",
        app: a.address(),
        own: &own,
    };

    // Envoy requests clusters before the server has any, and is ready once it has everything.
    let starting = Envoy::start(envoy, "separate", folder.path(), loopback.host(11), 30);
    let (envoy, ()) = tokio::join!(starting, server.publish(&client, first.set()));
    let ask = async || {
        let (chain, key) = (&client.chain, &client.key);
        let tls = connect_mesh(inbound, "in", &[], chain, key, &own.cert.pem()).await?;
        Http1Connection::over(tls).await?.get("/", "api").await
    };
    let answered_by = async |app: &str| {
        eventually(&format!("an answer of {app}"), async || {
            let response = ask().await.map_err(|error| format!("{error:#}"))?;
            if response.header("x-app") == Some(app) { Ok(()) } else { Err(response.text()) }
        })
        .await;
    };
    answered_by("a").await;
    let status = server.status_where(&client, "its streams", |status| status.streams == 5).await;
    assert!(status.nacks.is_empty(), "{:?}", status.nacks);

    // First new endpoints; then a new cluster, and routes that lead to it.
    server.hub.publish(&client.name(), SeparateSet { app: b.address(), ..first }.set());
    answered_by("b").await;
    server.hub.publish(&client.name(), SeparateSet { cluster: "two", ..first }.set());
    answered_by("a").await;
    eventually("the first cluster to go", async || {
        let clusters = envoy.admin_get("/clusters").await.text();
        if clusters.lines().any(|line| line.starts_with("one::")) { Err(clusters) } else { Ok(()) }
    })
    .await;
    // The listener is removed.
    server
        .hub
        .publish(&client.name(), SeparateSet { cluster: "two", listener: None, ..first }.set());
    eventually("the listener to go", async || match ask().await {
        Err(_) => Ok(()),
        Ok(response) => Err(response.text()),
    })
    .await;
    envoy.assert_no_update_errors().await;
}

/// R5.
#[tokio::test(flavor = "multi_thread")]
async fn delta_envoy_with_a_stream_per_type_is_served() {
    let Some(envoy) = require_envoy() else { return };
    assert_types_arrive_by_separate_services(&envoy, ApiType::DeltaGrpc).await;
}

/// R5.
#[tokio::test(flavor = "multi_thread")]
async fn sotw_envoy_with_a_stream_per_type_is_served() {
    let Some(envoy) = require_envoy() else { return };
    assert_types_arrive_by_separate_services(&envoy, ApiType::Grpc).await;
}
