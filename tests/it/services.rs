//! The services of single types, in both variants, and unknown services.

use ironmesh_tests::eventually::patience;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{Node, TypedExtensionConfig};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Listener;
use ironmesh_xds_wire::pb::envoy::config::route::v3::RouteConfiguration;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use ironmesh_xds_wire::pb::envoy::service::runtime::v3::Runtime;
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status, Streaming, client::Grpc};
use tonic_prost::ProstCodec;

use crate::client::connect;
use crate::server::{Server, cluster};
use ironmesh_tests::authority::Identity;

/// Opens a stream of a method with a first request; the returned sender takes further ones.
async fn open<Q, R>(
    server: &Server,
    client: &Identity,
    path: &str,
    first: Q,
) -> Result<(mpsc::Sender<Q>, Streaming<R>), Status>
where
    Q: Message + Send + Sync + 'static,
    R: Message + Default + Send + 'static,
{
    let (requests, outgoing) = mpsc::channel(8);
    requests.send(first).await.unwrap();
    let mut grpc = Grpc::new(connect(server, client).await);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<Q, R>::default();
    let path = path.parse::<PathAndQuery>().unwrap();
    let stream = grpc.streaming(Request::new(ReceiverStream::new(outgoing)), path, codec);
    Ok((requests, timeout(patience(), stream).await.unwrap()?.into_inner()))
}

async fn next<R>(responses: &mut Streaming<R>) -> Result<R, Status> {
    let next = timeout(patience(), responses.message()).await.expect("a response");
    next.map(|response| response.expect("no end"))
}

/// The services by the last part of their names, and their types.
const SERVICES: [(&str, &str, ResourceType); 7] = [
    ("cluster.v3.Cluster", "Clusters", ResourceType::Cluster),
    ("endpoint.v3.Endpoint", "Endpoints", ResourceType::Endpoint),
    ("listener.v3.Listener", "Listeners", ResourceType::Listener),
    ("route.v3.Route", "Routes", ResourceType::Route),
    ("secret.v3.Secret", "Secrets", ResourceType::Secret),
    ("extension.v3.ExtensionConfig", "ExtensionConfigs", ResourceType::ExtensionConfig),
    ("runtime.v3.Runtime", "Runtime", ResourceType::Runtime),
];

fn path(service: &str, variant: &str, plural: &str) -> String {
    format!("/envoy.service.{service}DiscoveryService/{variant}{plural}")
}

/// One resource of each type, all named `x`.
fn everything() -> ResourceSet {
    let name = || "x".to_owned();
    let mut set = cluster("x", "1").1;
    for resource in [
        Resource::new(&ClusterLoadAssignment {
            cluster_name: name(),
            ..ClusterLoadAssignment::default()
        }),
        Resource::new(&Listener { name: name(), ..Listener::default() }),
        Resource::new(&RouteConfiguration { name: name(), ..RouteConfiguration::default() }),
        Resource::new(&Secret { name: name(), r#type: None }),
        Resource::new(&TypedExtensionConfig { name: name(), typed_config: None }),
        Resource::new(&Runtime { name: name(), layer: None }),
    ] {
        set.insert(resource.into());
    }
    set
}

fn node(client: &Identity) -> Node {
    Node { id: client.name(), ..Node::default() }
}

/// R5, R58: the request may omit the type.
#[tokio::test]
async fn each_type_has_its_own_service_in_both_variants() {
    let server = Server::start().await;
    let set = everything();
    for (service, plural, of) in SERVICES {
        let version = set.of(of)["x"].version();
        for type_url in ["", of.url()] {
            let client = server.authority.proxy();
            let first = DeltaDiscoveryRequest {
                node: Some(node(&client)),
                type_url: type_url.to_owned(),
                resource_names_subscribe: vec!["x".to_owned()],
                ..DeltaDiscoveryRequest::default()
            };
            let path_of_delta = path(service, "Delta", plural);
            let (requests, mut responses) =
                open::<_, DeltaDiscoveryResponse>(&server, &client, &path_of_delta, first)
                    .await
                    .unwrap();
            server.publish(&client, set.clone()).await;
            let push = next(&mut responses).await.unwrap();
            assert_eq!((push.resources.len(), &*push.type_url), (1, of.url()));
            assert_eq!(push.resources[0].version, version.to_string());
            let response_nonce = push.nonce;
            let answer =
                DeltaDiscoveryRequest { response_nonce, ..DeltaDiscoveryRequest::default() };
            requests.send(answer).await.unwrap();
            server.status_where(&client, "it has x", |s| s.has(of, "x", version)).await;

            let client = server.authority.proxy();
            let first = DiscoveryRequest {
                node: Some(node(&client)),
                type_url: type_url.to_owned(),
                resource_names: vec!["x".to_owned()],
                ..DiscoveryRequest::default()
            };
            let path_of_stream = path(service, "Stream", plural);
            let (requests, mut responses) =
                open::<_, DiscoveryResponse>(&server, &client, &path_of_stream, first)
                    .await
                    .unwrap();
            server.publish(&client, set.clone()).await;
            let push = next(&mut responses).await.unwrap();
            assert_eq!((push.resources.len(), &*push.type_url), (1, of.url()));
            assert_eq!(push.resources[0].type_url, of.url());
            let response_nonce = push.nonce;
            let resource_names = vec!["x".to_owned()];
            let answer =
                DiscoveryRequest { response_nonce, resource_names, ..DiscoveryRequest::default() };
            requests.send(answer).await.unwrap();
            server.status_where(&client, "it has x", |s| s.has(of, "x", version)).await;
        }
    }
}

/// R5 (sotw).
#[tokio::test]
async fn type_of_a_different_service_is_an_invalid_argument() {
    let server = Server::start().await;
    for (service, plural, of) in SERVICES {
        let client = server.authority.proxy();
        let other = ResourceType::ALL.into_iter().find(|other| *other != of).unwrap();
        let type_url = other.url().to_owned();
        let (node, path) = (Some(node(&client)), path(service, "Stream", plural));
        let first = DiscoveryRequest { node, type_url, ..DiscoveryRequest::default() };
        let stream = open::<_, DiscoveryResponse>(&server, &client, &path, first).await;
        let end = next(&mut stream.unwrap().1).await.expect_err("no answer");
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains(of.url()), "{end}");
    }
}

/// R8 (sotw). Several streams of one client do not overwrite each other's state.
#[tokio::test]
async fn acks_of_separate_streams_are_merged() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let set = everything();
    let mut streams = Vec::new();
    for (service, plural, _) in SERVICES {
        let resource_names = vec!["x".to_owned()];
        let first = DiscoveryRequest {
            node: Some(node(&client)),
            resource_names,
            ..DiscoveryRequest::default()
        };
        let path = path(service, "Stream", plural);
        streams.push(open::<_, DiscoveryResponse>(&server, &client, &path, first).await.unwrap());
    }
    server.status_where(&client, "all streams", |s| s.streams == SERVICES.len()).await;
    server.publish(&client, set.clone()).await;
    for (requests, responses) in &mut streams {
        let response_nonce = next(responses).await.unwrap().nonce;
        let resource_names = vec!["x".to_owned()];
        let answer =
            DiscoveryRequest { response_nonce, resource_names, ..DiscoveryRequest::default() };
        requests.send(answer).await.unwrap();
    }
    let has_all = |status: &ironmesh_xds_server::ClientStatus| {
        let mut all = set.iter();
        all.all(|r| status.has(r.resource_type(), r.name(), r.version()))
    };
    server.status_where(&client, "it has all", has_all).await;
}

/// R59 (delta).
#[tokio::test]
async fn unsupported_methods_are_unimplemented_with_advice() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    for (service, method, words) in [
        ("cluster.v3.Cluster", "FetchClusters", "set `api_type`"),
        ("route.v3.VirtualHost", "DeltaVirtualHosts", ""),
    ] {
        let path = format!("/envoy.service.{service}DiscoveryService/{method}");
        let first = DiscoveryRequest::default();
        let stream = open::<_, DiscoveryResponse>(&server, &client, &path, first).await;
        let end = match stream {
            Err(end) => end,
            Ok((_, mut responses)) => next(&mut responses).await.expect_err("no answer"),
        };
        assert_eq!(end.code(), Code::Unimplemented);
        assert!(end.message().contains(words), "{end}");
    }
}
