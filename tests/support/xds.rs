//! A gRPC client for the control plane, over mutual TLS that the test chooses.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fs_err as fs;
use hyper_util::rt::TokioIo;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{Node, data_source::Specifier};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use prost::Message;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt, once, pending};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Status, Streaming};
use tower_service::Service;

use crate::eventually::patience;
use crate::tls::client_config;

/// The TLS configuration of a client with a certificate: chain, key and roots in PEM.
pub fn client_tls(chain: &str, key: &str, roots: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut config = client_config(Some((chain, key)), roots)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Opens a gRPC connection to `address`.
pub async fn channel(address: SocketAddr, config: Arc<ClientConfig>) -> anyhow::Result<Channel> {
    let connector = Connector { address, config };
    Ok(Endpoint::from_static("http://xds").connect_with_connector(connector).await?)
}

/// An xDS client with the files of `ironmesh proxy bootstrap`, instead of an Envoy.
#[derive(Debug)]
pub struct ProxyClient {
    channel: Channel,
    /// The node id, as in the bootstrap.
    pub node_id: String,
    /// The roots of the mesh, in PEM.
    pub roots: String,
}

impl ProxyClient {
    /// Connects to `control_plane` with the files in `folder`.
    pub async fn connect(folder: &Path, control_plane: SocketAddr) -> anyhow::Result<Self> {
        let read = |name: &str| fs::read_to_string(folder.join(name));
        let roots = read("ca.crt")?;
        let config = client_tls(&read("proxy.crt")?, &read("proxy.key")?, &roots)?;
        let bootstrap: serde_json::Value = serde_json::from_str(&read("envoy.yaml")?)?;
        let node_id =
            bootstrap.pointer("/node/id").and_then(|id| id.as_str()).unwrap_or_default().to_owned();
        Ok(Self { channel: channel(control_plane, config).await?, node_id, roots })
    }

    /// The gRPC connection.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Requests a secret as `node` on a new stream, and returns the first response.
    pub async fn request_secret(
        &self,
        node: Node,
        secret: &str,
    ) -> Result<DeltaDiscoveryResponse, Status> {
        let request = DeltaDiscoveryRequest {
            node: Some(node),
            type_url: ResourceType::Secret.url().to_owned(),
            resource_names_subscribe: vec![secret.to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        let requests = StreamExt::chain(once(request), pending());
        let mut client = AggregatedDiscoveryServiceClient::new(self.channel.clone());
        let answer = async {
            let mut responses = client.delta_aggregated_resources(requests).await?.into_inner();
            let first = responses.message().await?;
            first.ok_or_else(|| Status::unknown("the stream ended without an answer"))
        };
        timeout(patience(), answer).await.expect("an answer in time")
    }

    /// Subscribes to all clusters as `node` on a new stream, NACKs the first response with `words`,
    /// and returns the open stream.
    pub async fn nack(
        &self,
        node: Node,
        words: &str,
    ) -> Result<Streaming<DeltaDiscoveryResponse>, Status> {
        let (sender, requests) = mpsc::channel(2);
        let subscribe = DeltaDiscoveryRequest {
            node: Some(node),
            type_url: ResourceType::Cluster.url().to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        sender.try_send(subscribe).map_err(|_| Status::unknown("the stream ended"))?;
        // The stream would end with its requests.
        let requests = StreamExt::chain(ReceiverStream::new(requests), pending());
        let mut client = AggregatedDiscoveryServiceClient::new(self.channel.clone());
        let answer = async {
            let mut responses = client.delta_aggregated_resources(requests).await?.into_inner();
            let first = responses.message().await?;
            let first = first.ok_or_else(|| Status::unknown("the stream ended"))?;
            let error = ironmesh_xds_wire::pb::google::rpc::Status {
                code: tonic::Code::InvalidArgument.into(),
                message: words.to_owned(),
                details: Vec::new(),
            };
            let nack = DeltaDiscoveryRequest {
                type_url: first.type_url,
                response_nonce: first.nonce,
                error_detail: Some(error),
                ..DeltaDiscoveryRequest::default()
            };
            sender.try_send(nack).map_err(|_| Status::unknown("the stream ended"))?;
            Ok(responses)
        };
        timeout(patience(), answer).await.expect("an answer in time")
    }

    /// The service certificate of `account` (`namespace/name`): chain and key.
    pub async fn service_certificate(&self, account: &str) -> anyhow::Result<(String, String)> {
        let node = Node { id: self.node_id.clone(), ..Node::default() };
        let answer = self.request_secret(node, &format!("service-cert:{account}")).await?;
        let resource = answer.resources.into_iter().next().and_then(|resource| resource.resource);
        let body = resource.ok_or_else(|| anyhow::anyhow!("no such secret is given"))?;
        let secret = Secret::decode(&*body.value)?;
        let Some(secret::Type::TlsCertificate(certificate)) = secret.r#type else {
            anyhow::bail!("not a certificate: {}", secret.name);
        };
        let text = |source: Option<_>| match source {
            Some(Specifier::InlineString(text)) => text,
            _ => String::new(),
        };
        Ok((
            text(certificate.certificate_chain.and_then(|source| source.specifier)),
            text(certificate.private_key.and_then(|source| source.specifier)),
        ))
    }
}

/// Connects tonic with a TLS configuration that tonic's own settings cannot express.
#[derive(Debug)]
pub struct Connector {
    /// The address of the server.
    pub address: SocketAddr,
    /// The TLS configuration.
    pub config: Arc<ClientConfig>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, config) = (self.address, Arc::clone(&self.config));
        Box::pin(async move {
            let tcp = TcpStream::connect(address).await?;
            let name = "xds".try_into().map_err(io::Error::other)?;
            Ok(TokioIo::new(TlsConnector::from(config).connect(name, tcp).await?))
        })
    }
}
