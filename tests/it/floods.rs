//! Clients that send without pause, while others are served.

use ironmesh_xds_server::CloseReason;
use ironmesh_xds_wire::ResourceType::Endpoint;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, connect, names};
use crate::server::{Server, cluster};

/// A41 (bystander): the newest request counts, and other clients do not wait.
#[tokio::test]
async fn endless_subscription_changes_do_not_delay_others() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    let flip = |n: u32| {
        let mut request = DeltaDiscoveryRequest {
            type_url: Endpoint.url().to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        let names = match n % 2 {
            0 => &mut request.resource_names_subscribe,
            _ => &mut request.resource_names_unsubscribe,
        };
        names.push("a".to_owned());
        request
    };
    for n in 0..5_000 {
        stream.send(flip(n)).await;
        if n % 1_000 == 0 {
            bystander.assert_served(&server).await;
        }
    }
    server.publish(&client, cluster("a", "2").1).await;
    loop {
        let push = stream.push().await;
        if names(&push) == ["a"] {
            break;
        }
    }
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Flood), 0);
}

/// A39 (bystander): also if each stream is closed at once.
#[tokio::test]
async fn client_opening_endless_streams_is_disconnected() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    // Each stream ends by itself, because its request has no node.
    let rejected = || DeltaDiscoveryRequest { node: None, ..clusters(&client) };
    let mut count = 0;
    let end = loop {
        count += 1;
        match Stream::try_begin(channel.clone(), rejected()).await {
            Ok(mut stream) => assert_eq!(stream.end().await.code(), Code::InvalidArgument),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
    assert!((1024..2048).contains(&count), "{count}");
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Flood), 1);
    // The client was disconnected, and reconnects.
    let mut stream = Stream::begin(connect(&server, &client).await, clusters(&client)).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
    bystander.assert_served(&server).await;
}
