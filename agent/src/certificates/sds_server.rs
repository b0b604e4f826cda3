//! The SDS server on the socket: delta streams for the local Envoy.
//!
//! It never reads a certificate itself: [`SecretStream`] decides what a stream sends.

use std::path::Path;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use ironmesh_xds_wire::pb::envoy::service::secret::v3::secret_discovery_service_server::{
    SecretDiscoveryService, SecretDiscoveryServiceServer,
};
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::sds_socket::is_own_user;
use super::secret_stream::SecretStream;
use super::table::CertificateTable;
use crate::error::AgentError;
use ironmesh_sidecar::envoy::certificates_socket;

/// The most streams at once. Envoy has one for each secret, and twice as many during a hot restart.
const MAX_STREAMS: usize = 256;

/// The most bytes of a request: the first one of a stream has the node.
const MAX_REQUEST: usize = 1 << 20;

/// Serves the socket until `stop`, or until it is dropped.
pub(super) async fn serve(
    listener: UnixListener,
    folder: &Path,
    table: Arc<CertificateTable>,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let streams = Arc::new(Semaphore::new(MAX_STREAMS));
    let service = SecretService { table, streams, stop: stop.clone() };
    let service = SecretDiscoveryServiceServer::new(service).max_decoding_message_size(MAX_REQUEST);
    let incoming = UnixListenerStream::new(listener)
        .filter(|accepted| accepted.as_ref().map_or(true, is_own_user));
    let served = Server::builder()
        .max_concurrent_streams(u32::try_from(MAX_STREAMS).ok())
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await;
    served.map_err(|error| AgentError::ServiceCertificateSocket {
        path: certificates_socket(folder),
        source: std::io::Error::other(error),
    })
}

struct SecretService {
    table: Arc<CertificateTable>,
    streams: Arc<Semaphore>,
    stop: CancellationToken,
}

type Responses = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

#[tonic::async_trait]
impl SecretDiscoveryService for SecretService {
    type DeltaSecretsStream = Responses;
    type StreamSecretsStream = ReceiverStream<Result<DiscoveryResponse, Status>>;

    async fn delta_secrets(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let permit =
            permit.map_err(|_| Status::resource_exhausted("the agent has too many SDS streams"))?;
        let (sender, responses) = mpsc::channel(1);
        let stream = SecretStream::new(Arc::clone(&self.table));
        let (changes, requests) = (self.table.changes(), request.into_inner());
        let work = run(stream, changes, requests, sender, permit);
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(work).await });
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn stream_secrets(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        Err(unsupported())
    }

    async fn fetch_secrets(
        &self,
        _: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(unsupported())
    }
}

fn unsupported() -> Status {
    Status::unimplemented("the agent serves secrets by delta SDS: set `api_type: DELTA_GRPC`")
}

/// Serves one stream until the client ends it.
async fn run(
    mut stream: SecretStream,
    mut changes: tokio::sync::watch::Receiver<()>,
    mut requests: Streaming<DeltaDiscoveryRequest>,
    responses: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    _permit: OwnedSemaphorePermit,
) {
    loop {
        tokio::select! {
            request = requests.message() => match request {
                Ok(Some(request)) => stream.receive(request),
                // An Envoy that ends resets its streams.
                Ok(None) | Err(_) => return,
            },
            changed = changes.changed() => if changed.is_err() { return },
        }
        if let Some(response) = stream.respond()
            && responses.send(Ok(response)).await.is_err()
        {
            return;
        }
    }
}
