//! Floods of HTTP/2 frames: the server ends the connection without delaying others.

use ironmesh_tests::eventually;
use ironmesh_xds_server::CloseReason;
use rustls::version::TLS13;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::bystander::Bystander;
use crate::client::{config, dial};
use crate::server::Server;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// An unknown type, which receivers must ignore.
const UNKNOWN: u8 = 0x55;

const END_HEADERS: u8 = 4;

/// The error code for excessive load (RFC 9113, section 7).
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a request stream, in HPACK without Huffman coding.
fn headers(stream: u32) -> Vec<u8> {
    let text = |name: u8, value: &str| {
        [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
    };
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
    let block = [
        // POST, http, and static table names with literal values.
        vec![0x83, 0x86],
        text(0x04, path),
        text(0x01, "xds"),
        // 31, in two bytes.
        [&[0x0f], &text(16, "application/grpc")[..]].concat(),
    ];
    frame(HEADERS, END_HEADERS, stream, &block.concat())
}

/// A flood: its name, its first bytes, and the frame that repeats without end.
type Flood = (&'static str, Vec<u8>, fn(u32) -> Vec<u8>);

fn floods() -> Vec<Flood> {
    vec![
        ("resets", Vec::new(), |n| {
            let stream = 2 * n + 1;
            [headers(stream), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        }),
        ("pings", Vec::new(), |_| frame(PING, 0, 0, &[7; 8])),
        ("settings", Vec::new(), |_| frame(SETTINGS, 0, 0, &[])),
        ("headers that go on", frame(HEADERS, 0, 1, &[0x83, 0x86]), |_| {
            frame(CONTINUATION, 0, 1, &[])
        }),
        ("empty data", headers(1), |_| frame(DATA, 0, 1, &[])),
        ("windows", headers(1), |n| frame(WINDOW_UPDATE, 0, n % 2, &1_u32.to_be_bytes())),
        ("priorities", Vec::new(), |n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 1])),
        ("unknown frames", Vec::new(), |_| frame(UNKNOWN, 0, 0, &[])),
    ]
}

/// Sends a flood until the connection ends. Returns the bytes received.
async fn send(mut io: TlsStream<TcpStream>, (_, first, next): Flood) -> Vec<u8> {
    io.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &first].concat()).await.unwrap();
    let (mut read, mut write) = tokio::io::split(io);
    let flood = async move {
        for n in 0.. {
            let many: Vec<_> = (n * 100..(n + 1) * 100).flat_map(next).collect();
            if write.write_all(&many).await.is_err() {
                return;
            }
        }
    };
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    tokio::pin!(flood);
    let mut floods = true;
    loop {
        tokio::select! {
            () = &mut flood, if floods => floods = false,
            read = read.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return received,
                Ok(count) => received.extend(buffer.iter().take(count)),
            },
        }
    }
}

/// The error codes of the server's GOAWAY frames.
fn goodbyes(mut received: &[u8]) -> Vec<u32> {
    let mut goodbyes = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = received {
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap();
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        if *kind == GOAWAY {
            let (_, error) = payload.split_first_chunk::<4>().unwrap();
            goodbyes.push(u32::from_be_bytes(*error.first_chunk().unwrap()));
        }
        received = rest;
    }
    goodbyes
}

/// A38 (bystander). h2 ends its own limits with a reason; other connections get a plain GOAWAY.
#[tokio::test]
async fn http2_frame_flood_ends_its_connection_without_delaying_others() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    let mut attacks = Vec::new();
    for flood in floods() {
        let client = server.authority.proxy();
        let tls = config(server.authority.roots(), Some(&client), &[&TLS13]);
        let io = dial(server.address, tls).await.unwrap();
        attacks.push((flood.0, tokio::spawn(send(io, flood))));
    }
    let mut served = 0;
    eventually("all floods to end", async || {
        bystander.assert_served(&server).await;
        served += 1;
        let go_on: Vec<_> = attacks
            .iter()
            .filter(|(_, attack)| !attack.is_finished())
            .map(|(name, _)| name)
            .collect();
        if go_on.is_empty() { Ok(()) } else { Err(format!("{go_on:?} go on")) }
    })
    .await;
    assert!(served > 10, "the other was served {served} times meanwhile");
    for (name, attack) in attacks {
        let goodbyes = goodbyes(&attack.await.unwrap());
        // Streams that the server sees before their reset have a limit of the server.
        let reported = match name {
            "resets" => !goodbyes.is_empty(),
            "headers that go on" | "empty data" => goodbyes.contains(&ENHANCE_YOUR_CALM),
            // The reset of a connection with unread data may overtake the GOAWAY.
            _ => goodbyes.is_empty() || goodbyes.contains(&0),
        };
        assert!(reported, "{name}: {goodbyes:?}");
    }
    assert!(server.hub.counters().streams_closed(CloseReason::Flood) >= 5);
    bystander.assert_served(&server).await;
}
