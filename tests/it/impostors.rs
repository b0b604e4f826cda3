//! Clients that claim another identity, or request resources of others.

use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::Secret as SecretMessage;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest,
};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType::Secret};
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, connect, names};
use crate::server::Server;
use crate::sotw::{self, SotwStream};
use ironmesh_tests::authority::Identity;

/// A resource set with one secret.
fn secret(name: &str) -> ResourceSet {
    let mut set = ResourceSet::default();
    set.insert(Resource::new(&SecretMessage { name: name.to_owned(), r#type: None }).into());
    set
}

/// The first request for secrets.
fn secrets(client: &Identity, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: Secret.url().to_owned(),
        resource_names_subscribe: names.iter().map(|&name| name.to_owned()).collect(),
        ..clusters(client)
    }
}

fn sotw_secrets(client: &Identity, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: Secret.url().to_owned(),
        resource_names: names.iter().map(|&name| name.to_owned()).collect(),
        ..sotw::clusters(client)
    }
}

/// A8 (bystander).
#[tokio::test]
async fn false_node_id_is_denied_and_its_owner_is_served() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut bystander = Bystander::open(&server).await;
    let mut victim = Stream::begin(connect(&server, &other).await, secrets(&other, &["s"])).await;
    let channel = connect(&server, &client).await;
    let end = Stream::begin(channel, secrets(&other, &["s"])).await.end().await;
    assert_eq!(end.code(), Code::PermissionDenied);
    let first = sotw_secrets(&other, &["s"]);
    let end = SotwStream::begin(&server, &client, first).await.end().await;
    assert_eq!(end.code(), Code::PermissionDenied);
    server.publish(&other, secret("s")).await;
    assert_eq!(names(&victim.push().await), ["s"]);
    bystander.assert_served(&server).await;
}

/// A9 (bystander).
#[tokio::test]
async fn node_id_change_within_a_stream_ends_it() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut bystander = Bystander::open(&server).await;
    let node = Some(Node { id: other.name(), ..Node::default() });
    let mut delta = Stream::open(&server, &client).await;
    delta.send(DeltaDiscoveryRequest { node: node.clone(), ..clusters(&client) }).await;
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    let request = DiscoveryRequest { node, ..sotw::clusters(&client) };
    sotw.requests.send(request).await.unwrap();
    for end in [delta.end().await, sotw.end().await] {
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains("the node id changed"), "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A29: the server would hold it as long as the stream, and show it to operators.
#[tokio::test]
async fn huge_or_unprintable_node_id_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    for (id, words) in [
        (format!("a~b~{}~{}", client.name(), "x".repeat(1 << 20)), "longer than 512 bytes"),
        (format!("a~\u{1b}[2J~{}~d", client.name()), "control characters"),
    ] {
        let node = Some(Node { id, ..Node::default() });
        let request = DeltaDiscoveryRequest { node, ..clusters(&client) };
        let mut delta = Stream::begin(connect(&server, &client).await, request).await;
        let end = delta.end().await;
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains(words), "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A10 (bystander): a resource that is published for another client does not exist for this one.
#[tokio::test]
async fn secret_of_a_different_client_is_not_found() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut bystander = Bystander::open(&server).await;
    let mut owner =
        Stream::begin(connect(&server, &other).await, secrets(&other, &["theirs"])).await;
    server.publish(&other, secret("theirs")).await;
    assert_eq!(names(&owner.push().await), ["theirs"]);

    let both = ["ours", "theirs"];
    let mut delta = Stream::begin(connect(&server, &client).await, secrets(&client, &both)).await;
    let mut sotw = SotwStream::begin(&server, &client, sotw_secrets(&client, &both)).await;
    server.status_where(&client, "two streams", |status| status.streams == 2).await;
    server.publish(&client, secret("ours")).await;
    let push = delta.push().await;
    assert_eq!(names(&push), ["ours"]);
    assert_eq!(push.removed_resources, ["theirs"]);
    assert_eq!(sotw.push().await.resources.len(), 1);
    bystander.assert_served(&server).await;
}

/// A11 (bystander).
#[tokio::test]
async fn wildcard_secret_subscription_returns_none() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    for all in [&[][..], &["*"]] {
        let client = server.authority.proxy();
        let first = secrets(&client, all);
        let mut delta = Stream::begin(connect(&server, &client).await, first).await;
        let mut sotw = SotwStream::begin(&server, &client, sotw_secrets(&client, all)).await;
        server.status_where(&client, "two streams", |status| status.streams == 2).await;
        server.publish(&client, secret("s")).await;
        assert!(delta.push().await.resources.is_empty());
        assert!(sotw.push().await.resources.is_empty());
    }
    bystander.assert_served(&server).await;
}
