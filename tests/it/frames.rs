//! Bytes that are no gRPC requests, or not of the method's type.

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DiscoveryRequest;
use prost::Message as _;
use prost::encoding::{encode_key, encode_varint};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service as _;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, connect, names};
use crate::server::{Server, cluster};
use crate::sotw;

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const SOTW: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const SECRETS: &str = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";

/// Sends raw bytes, then nothing more. Returns the status of the stream.
async fn end_of(channel: &Channel, path: &str, encoding: &str, bytes: Vec<u8>) -> Status {
    let silence = tokio_stream::pending();
    let bytes = Ok::<_, Status>(Frame::data(Bytes::from(bytes)));
    send(
        channel,
        path,
        encoding,
        Body::new(StreamBody::new(tokio_stream::once(bytes).chain(silence))),
    )
    .await
}

/// Sends raw bytes and half-closes the stream. Returns its status.
async fn end_of_closed(channel: &Channel, path: &str, bytes: Vec<u8>) -> Status {
    send(channel, path, "identity", Body::new(http_body_util::Full::new(Bytes::from(bytes)))).await
}

async fn send(channel: &Channel, path: &str, encoding: &str, body: Body) -> Status {
    let mut channel = channel.clone();
    let request = http::Request::post(format!("http://xds{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .body(body)
        .unwrap();
    let end = async {
        std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        let response = channel.call(request).await.unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let body = response.into_body().collect().await.unwrap();
        Status::from_header_map(body.trailers().unwrap()).unwrap()
    };
    timeout(patience(), end).await.expect("the stream ends")
}

/// A message with gRPC's frame header.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Pseudorandom bytes, the same in each run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A22.
#[tokio::test]
async fn undecodable_frame_ends_only_its_stream() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    // One stream on the same connection, and one of another client.
    let channel = connect(&server, &client).await;
    let mut long_connections = Stream::begin(channel.clone(), clusters(&client)).await;
    let mut elsewhere = Stream::open(&server, &other).await;

    for path in [DELTA, SOTW, SECRETS] {
        let end = end_of(&channel, path, "identity", framed(&[0xff; 100])).await;
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains("decode"), "{end}");
    }
    // Also after a valid request.
    let garbage = [framed(&clusters(&client).encode_to_vec()), framed(&[0xff; 100])].concat();
    let end = end_of(&channel, DELTA, "identity", garbage).await;
    assert_eq!(end.code(), Code::InvalidArgument);

    for (client, stream) in [(&client, &mut long_connections), (&other, &mut elsewhere)] {
        server.publish(client, cluster("a", "1").1).await;
        assert_eq!(names(&stream.push().await), ["a"]);
    }
}

/// A22 (bystander).
#[tokio::test]
async fn random_and_truncated_bytes_are_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let request = clusters(&client).encode_to_vec();
    for path in [DELTA, SOTW] {
        for seed in 0..100 {
            let bytes = noise(seed, usize::try_from(seed).unwrap() * 7 + 1);
            let end = end_of(&channel, path, "identity", framed(&bytes)).await;
            assert_eq!(end.code(), Code::InvalidArgument, "{seed}: {end}");
            // Without a frame header: most are invalid frames or declare a huge length.
            let end = end_of_closed(&channel, path, bytes).await;
            let codes = [Code::InvalidArgument, Code::ResourceExhausted];
            assert!(codes.contains(&end.code()), "{seed}: {end}");
        }
        for length in 1..request.len() {
            let end = end_of(&channel, path, "identity", framed(&request[..length])).await;
            assert_eq!(end.code(), Code::InvalidArgument, "{length}: {end}");
        }
        bystander.assert_served(&server).await;
    }
    // The frame itself may be truncated.
    let whole = framed(&request);
    for length in 1..whole.len() {
        let end = end_of_closed(&channel, DELTA, whole[..length].to_vec()).await;
        assert_eq!(end.code(), Code::InvalidArgument, "{length}: {end}");
    }
    bystander.assert_served(&server).await;
    let status = server.hub.status();
    assert!(status.iter().all(|(key, _)| **key != *client.name()), "it never was one: {status:?}");
}

/// A22, A23: the declared length is checked before the body is read.
#[tokio::test]
async fn oversized_request_is_rejected_by_its_length() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    for path in [DELTA, SOTW] {
        for length in [u32::MAX, 5 << 20] {
            let prefix = [&[0], &length.to_be_bytes()[..]].concat();
            let end = end_of(&channel, path, "identity", prefix).await;
            assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
            bystander.assert_served(&server).await;
        }
    }
}

/// A24 (bystander).
#[tokio::test]
async fn compressed_requests_are_rejected() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let mut compressed = framed(&noise(1, 1000));
    compressed[0] = 1;
    for path in [DELTA, SOTW] {
        for encoding in ["gzip", "zstd", "unheard-of"] {
            let end = end_of(&channel, path, encoding, compressed.clone()).await;
            assert_eq!(end.code(), Code::Unimplemented, "{end}");
        }
        // A client that sets the flag without naming an encoding violates the protocol.
        let end = end_of(&channel, path, "identity", compressed.clone()).await;
        assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A28.
#[tokio::test]
async fn invalid_utf_8_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let mark = "name-to-break";
    let delta = clusters(&client);
    let sotw = sotw::clusters(&client);
    let of_delta = [delta.encode_to_vec(), names_field(mark)].concat();
    let of_sotw = [sotw.encode_to_vec(), names_field(mark)].concat();
    for (path, mut bytes) in [(DELTA, of_delta), (SOTW, of_sotw)] {
        let last = bytes.len() - 1;
        bytes[last] = 0xC3;
        let end = end_of(&channel, path, "identity", framed(&bytes)).await;
        assert_eq!(end.code(), Code::InvalidArgument, "{end}");
        assert!(end.message().contains("UTF-8"), "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A requested name, encoded: both variants use the same field number.
fn names_field(name: &str) -> Vec<u8> {
    DiscoveryRequest { resource_names: vec![name.to_owned()], ..DiscoveryRequest::default() }
        .encode_to_vec()
}

/// A29 (bystander).
#[tokio::test]
async fn deeply_nested_node_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    for depth in [100, 10_000] {
        // `Node.metadata` is field 3; `Struct.fields` is 1, of entries with the value in 2;
        // `Value.struct_value` is 5.
        let mut structure = Vec::new();
        for _ in 0..depth {
            structure = field(1, &field(2, &field(5, &structure)));
        }
        let id = Node { id: client.name(), ..Node::default() }.encode_to_vec();
        let node = [id, field(3, &structure)].concat();
        for (path, number, request) in [
            (DELTA, 1, clusters(&client).encode_to_vec()),
            (SOTW, 2, sotw::clusters(&client).encode_to_vec()),
        ] {
            let bytes = [field(number, &node), request].concat();
            let end = end_of(&channel, path, "identity", framed(&bytes)).await;
            assert_eq!(end.code(), Code::InvalidArgument, "{depth}: {end}");
            assert!(end.message().contains("recursion"), "{depth}: {end}");
        }
    }
    bystander.assert_served(&server).await;
}

/// A length-delimited field.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    encode_key(number, prost::encoding::WireType::LengthDelimited, &mut field);
    encode_varint(content.len().try_into().unwrap(), &mut field);
    field.extend_from_slice(content);
    field
}

/// A35 (bystander).
#[tokio::test]
async fn request_of_the_other_variant_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    for (path, request) in [
        (SOTW, clusters(&client).encode_to_vec()),
        (DELTA, sotw::clusters(&client).encode_to_vec()),
    ] {
        let end = end_of(&channel, path, "identity", framed(&request)).await;
        assert_eq!(end.code(), Code::InvalidArgument, "{path}: {end}");
    }
    bystander.assert_served(&server).await;
}
