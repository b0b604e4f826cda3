//! A client of the socket, as Envoy is one.

use std::path::Path;
use std::time::Duration;

use ironmesh_xds_wire::pb::envoy::config::core::v3::data_source::Specifier;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use ironmesh_xds_wire::pb::envoy::service::secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient;
use ironmesh_xds_wire::pb::google::rpc::Status;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use ironmesh_sidecar::envoy::certificates_socket;

const PATIENCE: Duration = Duration::from_secs(30);

/// A subscription to these secrets.
pub(super) fn subscription(names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// A received secret.
pub(super) struct Received {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) chain: String,
    pub(super) key: String,
}

/// One delta stream.
pub(super) struct TestEnvoy {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    nonce: String,
    received: Vec<Resource>,
}

impl TestEnvoy {
    /// Connects as soon as the agent listens.
    pub(super) async fn connect(folder: &Path) -> Self {
        let uri = format!("unix://{}", certificates_socket(folder).display());
        let endpoint = Endpoint::from_shared(uri).unwrap();
        let connected = async {
            loop {
                if let Ok(channel) = endpoint.connect().await {
                    let mut client = SecretDiscoveryServiceClient::new(channel);
                    let (requests, receiver) = mpsc::channel(8);
                    let stream = ReceiverStream::new(receiver);
                    if let Ok(responses) = client.delta_secrets(stream).await {
                        return (requests, responses.into_inner());
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        let (requests, responses) = timeout(PATIENCE, connected).await.unwrap();
        Self { requests, responses, nonce: String::new(), received: Vec::new() }
    }

    pub(super) async fn send(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    /// NACKs the last response.
    pub(super) async fn nack(&self, message: &str) {
        let error = Status { message: message.to_owned(), ..Status::default() };
        let response_nonce = self.nonce.clone();
        let error_detail = Some(error);
        self.send(DeltaDiscoveryRequest { response_nonce, error_detail, ..subscription(&[]) })
            .await;
    }

    /// The next secret. No response may be empty or remove one.
    pub(super) async fn next(&mut self) -> Received {
        while self.received.is_empty() {
            let response = timeout(PATIENCE, self.responses.message()).await.unwrap();
            let response = response.unwrap().expect("the stream is open");
            assert!(!response.resources.is_empty() && response.removed_resources.is_empty());
            self.nonce = response.nonce;
            self.received = response.resources;
        }
        let resource = self.received.remove(0);
        let secret = Secret::decode(&*resource.resource.unwrap().value).unwrap();
        assert_eq!(secret.name, resource.name);
        let Some(secret::Type::TlsCertificate(certificate)) = secret.r#type else {
            panic!("another kind of secret");
        };
        let text = |source: Option<Specifier>| match source {
            Some(Specifier::InlineString(text)) => text,
            other => panic!("{other:?}"),
        };
        let chain = text(certificate.certificate_chain.unwrap().specifier);
        let key = text(certificate.private_key.unwrap().specifier);
        Received { name: resource.name, version: resource.version, chain, key }
    }
}
