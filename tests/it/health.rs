//! gRPC's health protocol reports whether xDS is served; other methods are not served.

use ironmesh_tests::eventually::patience;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;

use crate::client::{Stream, connect};
use crate::server::Server;

const ADS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_check_reports_xds_as_serving() {
    let server = Server::start().await;
    let channel = connect(&server, &server.authority.proxy()).await;
    let mut client = HealthClient::new(channel);
    for service in ["", ADS] {
        let answer = timeout(patience(), client.check(of(service))).await.unwrap().unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service:?}");
    }
    for service in ["grpc.health.v1.Health", "x"] {
        let rejected = timeout(patience(), client.check(of(service))).await.unwrap().unwrap_err();
        assert_eq!(rejected.code(), Code::NotFound, "{rejected}");
    }
}

// health.proto, Watch: unlike `Check`, which ends with `NOT_FOUND`.
#[tokio::test]
async fn health_watch_of_unknown_service_stays_open() {
    let server = Server::start().await;
    let channel = connect(&server, &server.authority.proxy()).await;
    let watch = timeout(patience(), HealthClient::new(channel).watch(of("x"))).await.unwrap();
    let mut watch = watch.unwrap().into_inner();
    let mut next = async || timeout(patience(), watch.message()).await.expect("a response");
    let reported = next().await.unwrap().expect("no end");
    assert_eq!(reported.status(), ServingStatus::ServiceUnknown);
    // The stream ends with the server, and not before.
    server.shutdown.cancel();
    assert_eq!(next().await.unwrap_err().code(), Code::Unavailable);
    server.ended().await;
}

#[tokio::test]
async fn health_watch_reports_shutdown_before_the_stream_ends() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    let channel = connect(&server, &client).await;
    let watch = HealthClient::new(channel).watch(of(ADS)).await;
    let mut watch = watch.unwrap().into_inner();
    let mut next = async || timeout(patience(), watch.message()).await.expect("a response");
    let status = |reported: Option<HealthCheckResponse>| reported.expect("no end").status();
    assert_eq!(status(next().await.unwrap()), ServingStatus::Serving);
    server.shutdown.cancel();
    assert_eq!(status(next().await.unwrap()), ServingStatus::NotServing);
    let end = next().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    assert_eq!(stream.end().await.code(), Code::Unavailable);
    server.ended().await;
}

// docs/decisions/0017.
#[tokio::test]
async fn unknown_grpc_methods_are_unimplemented() {
    let server = Server::start().await;
    let channel = connect(&server, &server.authority.proxy()).await;
    for path in [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/List",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/Other",
    ] {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let call = client.unary(Request::new(of("")), PathAndQuery::from_static(path), codec);
        let rejected = timeout(patience(), call).await.unwrap().unwrap_err();
        assert_eq!(rejected.code(), Code::Unimplemented, "{path}: {rejected}");
    }
}
