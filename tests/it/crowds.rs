//! Clients that come in crowds, and whom they do not shut out.

use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::{Closed, Limits, Turned};
use rustls::version::TLS13;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, config, connect, dial, names};
use crate::server::{Server, cluster};
use crate::sotw::{self, SotwStream};

// A36. (While they hang, the bystander comes anew, and is there long before their time is over.)
#[tokio::test]
async fn silent_connections_in_masses_stand_in_nobodys_way() {
    let server = Server::start_with(Limits { handshakes: 16, ..Limits::default() }).await;
    let mut old = Bystander::open(&server).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    old.is_served(&server).await;
    let mut new = Bystander::open(&server).await;
    new.is_served(&server).await;
    let counters = server.hub.counters();
    assert!(counters.connections_turned_away(Turned::Displaced) > 0);
    assert_eq!(counters.connections_turned_away(Turned::SlowHandshake), 0);
}

// A40: also where it has a certificate for each.
#[tokio::test]
async fn of_many_connections_of_one_client_few_are_served_and_some_are_told() {
    let limits = Limits { connections_per_client: 3, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let renewed = server.authority.issue(client.proxy);
        assert_ne!(renewed.chain, client.chain);
        streams.push(Stream::open(&server, &renewed).await);
    }
    server.status_where(&client, "its streams", |status| status.streams == 3).await;
    let channel = connect(&server, &client).await;
    let refused = Stream::try_begin(channel, clusters(&client)).await;
    let told = refused.map(drop).unwrap_err();
    assert_eq!(told.code(), Code::ResourceExhausted, "{told}");
    assert!(told.message().contains("too many connections"), "{told}");

    // Who does not even ask is closed, as soon as there are twice as many.
    let tls = config(server.authority.roots(), Some(&client), &[&TLS13]);
    let mut crowd = Vec::new();
    for _ in 0..20 {
        if let Ok(connection) = dial(server.address, tls.clone()).await {
            crowd.push(connection);
        }
    }
    let mut last = crowd.pop().unwrap();
    let closed = timeout(patience(), last.read(&mut [0])).await.expect("an end");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    bystander.is_served(&server).await;
    server.publish(&client, cluster("a", "1").1).await;
    for stream in &mut streams {
        assert_eq!(names(&stream.push().await), ["a"], "those that were there stay");
    }
    // When they have gone, it may come again.
    drop((crowd, last, streams));
    eventually("a seat", async || {
        let mut stream =
            Stream::try_begin(connect(&server, &client).await, clusters(&client)).await?;
        server.publish(&client, cluster("a", "1").1).await;
        stream.next().await.map(drop)
    })
    .await;
    assert!(server.hub.counters().connections_turned_away(Turned::Client) > 10);
}

// A39.
#[tokio::test]
async fn the_streams_of_a_client_are_counted_over_all_its_connections() {
    let server = Server::start_with(Limits { streams_per_client: 5, ..Limits::default() }).await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let mut streams = Vec::new();
    for n in 0..5 {
        let channel = if n % 2 == 0 { channel.clone() } else { connect(&server, &client).await };
        streams.push(Stream::begin(channel, clusters(&client)).await);
    }
    server.status_where(&client, "its streams", |status| status.streams == 5).await;
    let mut delta = Stream::begin(channel, clusters(&client)).await;
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    for end in [delta.end().await, sotw.end().await] {
        assert_eq!(end.code(), Code::ResourceExhausted);
        assert_eq!(end.message(), "this client has too many streams: 5 are the most");
    }
    assert_eq!(server.hub.counters().streams_closed(Closed::TooManyStreams), 2);
    bystander.is_served(&server).await;
    server.publish(&client, cluster("a", "1").1).await;
    for stream in &mut streams {
        assert_eq!(names(&stream.push().await), ["a"], "those that were there stay");
    }
}
