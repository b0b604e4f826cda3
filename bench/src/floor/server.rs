//! The serving side of the floor.

use std::convert::Infallible;
use std::future::Ready;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use ironmesh_catalog::TrustBundle;
use ironmesh_cert::tls;
use ironmesh_xds_wire::ResourceType;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::connection::Connection;
use super::frames::Frames;
use crate::messages::{DELTA_PATH, Deframer, Fields};
use crate::recording::Recording;

/// The options of the floor, which are the contract of a target.
#[derive(Debug, Clone, clap::Args)]
pub struct FloorOptions {
    /// Listen on this address
    #[arg(long, env = "BENCH_LISTEN")]
    pub listen: SocketAddr,
    /// Present this certificate chain
    #[arg(long, env = "BENCH_CERTIFICATE")]
    pub certificate: PathBuf,
    /// Use this private key
    #[arg(long, env = "BENCH_KEY")]
    pub key: PathBuf,
    /// Verify client certificates with these roots
    #[arg(long, env = "BENCH_CLIENT_ROOTS")]
    pub client_roots: PathBuf,
    /// Send the resources of this recording
    #[arg(long, env = "BENCH_RESOURCES")]
    pub resources: PathBuf,
    /// Start as after this many changes
    #[arg(long, env = "BENCH_CHANGES", default_value_t = 0)]
    pub changes: usize,
}

/// Serves until stdin ends. Each line on stdin triggers a change.
#[expect(clippy::print_stdout, reason = "the parent process waits for the line")]
pub async fn serve(options: FloorOptions) -> anyhow::Result<()> {
    let tls = tls_settings(&options)?;
    let frames = Arc::new(Frames::new(Recording::read(&options.resources)?)?);
    let changes = watch::Sender::new(options.changes);
    let listener = TcpListener::bind(options.listen).await?;
    let (connections, incoming) = mpsc::channel(64);
    tokio::spawn(accept(listener, TlsAcceptor::from(tls), connections));
    let discovery = Discovery { frames, changes: changes.subscribe() };
    let serving = tonic::transport::Server::builder()
        .add_service(discovery)
        .serve_with_incoming(ReceiverStream::new(incoming));
    println!("ready");
    let lines = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
            changes.send_modify(|change| *change += 1);
        }
    });
    tokio::select! {
        result = serving => Ok(result?),
        result = lines => Ok(result?),
    }
}

/// The TLS settings, as those of the control plane.
fn tls_settings(options: &FloorOptions) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let read = |path: &PathBuf| fs_err::read(path);
    let clients = TrustBundle { roots: fs_err::read_to_string(&options.client_roots)? };
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(tls::roots(&clients)?),
        tls::provider(),
    );
    let (chain, key) = (read(&options.certificate)?, read(&options.key)?);
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>()?;
    let mut config = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier.build()?)
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    connections: mpsc::Sender<std::io::Result<Connection>>,
) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (tls, connections) = (tls.clone(), connections.clone());
        tokio::spawn(async move {
            drop(tcp.set_nodelay(true));
            if let Ok(stream) = tls.accept(tcp).await {
                drop(connections.send(Ok(Connection(stream))).await);
            }
        });
    }
}

/// The discovery service.
#[derive(Debug, Clone)]
struct Discovery {
    frames: Arc<Frames>,
    changes: watch::Receiver<usize>,
}

impl NamedService for Discovery {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<http::Request<Body>> for Discovery {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != DELTA_PATH {
            let rejected = tonic::Status::unimplemented("the floor speaks delta only").into_http();
            return std::future::ready(Ok(rejected));
        }
        let (responses, frames) = mpsc::channel(16);
        tokio::spawn(stream(request.into_body(), responses, self.clone()));
        let body =
            ReceiverStream::new(frames).map(|frame| Ok::<_, tonic::Status>(Frame::data(frame)));
        let mut response = http::Response::new(Body::new(StreamBody::new(body)));
        let content_type = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        std::future::ready(Ok(response))
    }
}

/// Serves one stream. A subscription gets all resources of its type, unless it has initial versions. Every change is
/// pushed at once.
async fn stream(mut requests: Body, responses: mpsc::Sender<Bytes>, mut discovery: Discovery) {
    discovery.changes.mark_unchanged();
    let frames = Arc::clone(&discovery.frames);
    let (mut deframer, mut wants_changing) = (Deframer::default(), false);
    let changing = |change: usize| frames.changing.get(change % 2).cloned();
    loop {
        let mut outgoing = Vec::new();
        tokio::select! {
            data = requests.frame() => {
                let Some(Ok(data)) = data else { return };
                let Ok(data) = data.into_data() else { return };
                deframer.push(data, |message| {
                    let Some(subscription) = Subscription::read(&message) else { return };
                    let (resource_type, is_resumed) =
                        (subscription.resource_type, subscription.is_resumed);
                    if !is_resumed {
                        outgoing.extend(frames.by_type.get(&resource_type).cloned());
                    }
                    if resource_type == frames.changing_type {
                        wants_changing = true;
                        let change = *discovery.changes.borrow();
                        // The recording has the first content.
                        let is_current = !is_resumed && change.is_multiple_of(2);
                        outgoing.extend(changing(change).filter(|_| !is_current));
                    }
                });
            }
            changed = discovery.changes.changed() => {
                let change = *discovery.changes.borrow_and_update();
                if changed.is_err() {
                    return;
                }
                if wants_changing {
                    outgoing.extend(changing(change));
                }
            }
        }
        for frame in outgoing {
            if responses.send(frame).await.is_err() {
                return;
            }
        }
    }
}

/// A request that is no ACK or NACK.
struct Subscription {
    resource_type: ResourceType,
    /// Whether the client sent initial versions.
    is_resumed: bool,
}

impl Subscription {
    fn read(message: &[u8]) -> Option<Self> {
        let (mut resource_type, mut is_resumed) = (None, false);
        for field in Fields(message) {
            match field.ok()? {
                (2, url) => resource_type = ResourceType::from_url(std::str::from_utf8(url).ok()?),
                (5, _) => is_resumed = true,
                (6, _) => return None,
                _ => {}
            }
        }
        Some(Self { resource_type: resource_type?, is_resumed })
    }
}
