//! Frames that are no requests.

use ironmesh_tests::eventually::patience;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use tokio::time::timeout;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, client::Grpc};
use tonic_prost::ProstDecoder;

use crate::client::{Stream, clusters, connect, names};
use crate::server::{Server, cluster};

#[tokio::test]
async fn a_frame_that_is_no_request_ends_its_own_stream_only() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    // One stream on the same connection, one of another client.
    let channel = connect(&server, &client).await;
    let mut beside = Stream::begin(channel.clone(), clusters(&client)).await;
    let mut elsewhere = Stream::open(&server, &other).await;

    for path in [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
    ] {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let garbage = tokio_stream::iter([vec![0xff; 100]]);
        let path = PathAndQuery::from_static(path);
        let stream = grpc.streaming(Request::new(garbage), path, Raw).await;
        let mut stream = stream.unwrap().into_inner();
        let end = timeout(patience(), stream.message()).await.unwrap().expect_err("no answer");
        assert!(end.message().contains("decode"), "{end}");
    }

    for (client, stream) in [(&client, &mut beside), (&other, &mut elsewhere)] {
        server.publish(client, cluster("a", "1").1).await;
        assert_eq!(names(&stream.push().await), ["a"]);
    }
}

/// Sends bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = DeltaDiscoveryResponse;
    type Encoder = Self;
    type Decoder = ProstDecoder<DeltaDiscoveryResponse>;

    fn encoder(&mut self) -> Self::Encoder {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::default())
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &bytes);
        Ok(())
    }
}
