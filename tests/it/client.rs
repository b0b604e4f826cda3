//! gRPC's own client over TLS that the test chooses.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_cert::SpiffeServerVerifier;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::Connector;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use ironmesh_xds_wire::pb::google::rpc;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::server::Server;
use ironmesh_tests::authority::Identity;

/// A delta stream.
pub(crate) struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Stream {
    /// Opens a stream that subscribes to clusters, on a new connection.
    pub(crate) async fn open(server: &Server, client: &Identity) -> Self {
        Self::begin(connect(server, client).await, clusters(client)).await
    }

    /// Opens a stream with this first request.
    pub(crate) async fn begin(channel: Channel, first: DeltaDiscoveryRequest) -> Self {
        Self::try_begin(channel, first).await.unwrap()
    }

    /// Opens a stream with this first request, which the server may reject.
    pub(crate) async fn try_begin(
        channel: Channel,
        first: DeltaDiscoveryRequest,
    ) -> Result<Self, Status> {
        let (requests, outgoing) = mpsc::channel(8);
        requests.send(first).await.unwrap();
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let stream = client.delta_aggregated_resources(ReceiverStream::new(outgoing));
        let responses = timeout(patience(), stream).await.unwrap()?.into_inner();
        Ok(Self { requests, responses })
    }

    pub(crate) async fn send(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    /// Sends a request to a stream that may have ended.
    pub(crate) async fn try_send(&self, request: DeltaDiscoveryRequest) {
        drop(self.requests.send(request).await);
    }

    /// Answers a push with an ACK, or with a NACK and its error.
    pub(crate) async fn answer(&self, push: &DeltaDiscoveryResponse, error: Option<&str>) {
        let words =
            |message: &str| rpc::Status { code: 13, message: message.to_owned(), details: vec![] };
        self.send(DeltaDiscoveryRequest {
            type_url: push.type_url.clone(),
            response_nonce: push.nonce.clone(),
            error_detail: error.map(words),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    pub(crate) async fn next(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        timeout(patience(), self.responses.message()).await.expect("a response")
    }

    /// Reads the next push.
    pub(crate) async fn push(&mut self) -> DeltaDiscoveryResponse {
        self.next().await.expect("a push").expect("no end")
    }

    /// Reads until the stream ends, and returns its status.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

/// The names of a push's resources.
pub(crate) fn names(push: &DeltaDiscoveryResponse) -> Vec<&str> {
    push.resources.iter().map(|resource| resource.name.as_str()).collect()
}

/// The first request for clusters, with a node id that matches the certificate.
pub(crate) fn clusters(client: &Identity) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node { id: client.name(), ..Node::default() }),
        type_url: ResourceType::Cluster.url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// Opens a gRPC connection.
pub(crate) async fn connect(server: &Server, client: &Identity) -> Channel {
    connect_with(Endpoint::from_static("http://xds"), server, client).await
}

pub(crate) async fn connect_with(
    endpoint: Endpoint,
    server: &Server,
    client: &Identity,
) -> Channel {
    let config = config(server.authority.roots(), Some(client), &[&TLS13]);
    let connector = Connector { address: server.address, config };
    endpoint.connect_with_connector(connector).await.unwrap()
}

/// Opens a connection without gRPC.
pub(crate) async fn dial(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    let handshake = TlsConnector::from(config).connect("xds".try_into().unwrap(), tcp);
    timeout(patience(), handshake).await.expect("the handshake ends")
}

/// The TLS configuration of a client that trusts `roots` and presents the certificate of `client`.
pub(crate) fn config(
    roots: RootCertStore,
    client: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SpiffeServerVerifier::any(roots)));
    let mut config = match client {
        Some(client) => {
            config.with_client_auth_cert(client.certificates(), client.private_key()).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}
