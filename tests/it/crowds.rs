//! Crowds of connections that must not starve other clients.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::{CloseReason, ConnectionRejection, Limits};
use rustls::version::TLS13;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, config, connect, dial, names};
use crate::server::{Server, cluster};
use crate::sotw::{self, SotwStream};

/// A36 (bystander). The bystander reconnects while they hang, long before their timeout.
#[tokio::test]
async fn many_silent_connections_do_not_delay_other_clients() {
    let server = Server::start_with(Limits { handshakes: 16, ..Limits::default() }).await;
    let mut old = Bystander::open(&server).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    old.assert_served(&server).await;
    let mut new = Bystander::open(&server).await;
    new.assert_served(&server).await;
    let counters = server.hub.counters();
    assert!(counters.connections_rejected(ConnectionRejection::Displaced) > 0);
    assert_eq!(counters.connections_rejected(ConnectionRejection::SlowHandshake), 0);
}

/// Opens silent connections without end from one address, a few hundred at a time.
async fn flood(server: SocketAddr, from: IpAddr) {
    let mut open = VecDeque::new();
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        // If the system has no port or file left, older connections are about to close.
        if let Ok(connection) = socket.connect(server).await {
            open.push_back(connection);
        }
        if open.len() > 300 {
            open.pop_front();
        }
        tokio::task::yield_now().await;
    }
}

/// A36: during the flood, each client from a different address connects at its first attempt.
#[tokio::test]
async fn flood_of_silent_connections_starves_no_other_client() {
    let server = Server::start_with(Limits { handshakes: 16, ..Limits::default() }).await;
    let mut old = Bystander::open(&server).await;
    let flood = tokio::spawn(flood(server.address, [127, 0, 0, 2].into()));
    let displaced = || server.hub.counters().connections_rejected(ConnectionRejection::Displaced);
    for _ in 0..5 {
        let before = displaced();
        eventually("more of the flood", async || {
            if displaced() > before + 50 { Ok(()) } else { Err(displaced()) }
        })
        .await;
        let mut new = Bystander::open(&server).await;
        new.assert_served(&server).await;
        old.assert_served(&server).await;
    }
    // A client of the flood's address connects as well, if it speaks before the next 64 connections
    // arrive.
    let client = server.authority.proxy();
    let tls = config(server.authority.roots(), Some(&client), &[&TLS13]);
    eventually("a handshake from the address of the flood", async || {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 2], 0).into())?;
        let tcp = socket.connect(server.address).await?;
        let handshake = TlsConnector::from(tls.clone()).connect("xds".try_into().unwrap(), tcp);
        handshake.await.map(drop)
    })
    .await;
    assert!(!flood.is_finished());
    flood.abort();
}

/// A40 (bystander): also with a certificate for each connection.
#[tokio::test]
async fn connections_beyond_the_client_limit_are_rejected() {
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
    let rejected = Stream::try_begin(channel, clusters(&client)).await;
    let reported = rejected.map(drop).unwrap_err();
    assert_eq!(reported.code(), Code::ResourceExhausted, "{reported}");
    assert!(reported.message().contains("too many connections"), "{reported}");

    // A connection without a request is closed as soon as there are twice as many.
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
    bystander.assert_served(&server).await;
    server.publish(&client, cluster("a", "1").1).await;
    for stream in &mut streams {
        assert_eq!(names(&stream.push().await), ["a"], "those that were there stay");
    }
    // Once they have ended, the client may connect again.
    drop((crowd, last, streams));
    eventually("room for a connection", async || {
        let mut stream =
            Stream::try_begin(connect(&server, &client).await, clusters(&client)).await?;
        server.publish(&client, cluster("a", "1").1).await;
        stream.next().await.map(drop)
    })
    .await;
    assert!(server.hub.counters().connections_rejected(ConnectionRejection::Client) > 10);
}

/// A39.
#[tokio::test]
async fn stream_limit_counts_all_connections_of_a_client() {
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
        assert_eq!(end.message(), "this client has too many streams: the limit is 5");
    }
    assert_eq!(server.hub.counters().streams_closed(CloseReason::TooManyStreams), 2);
    bystander.assert_served(&server).await;
    server.publish(&client, cluster("a", "1").1).await;
    for stream in &mut streams {
        assert_eq!(names(&stream.push().await), ["a"], "those that were there stay");
    }
}
