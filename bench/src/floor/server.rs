//! The serving side of the floor.

use std::convert::Infallible;
use std::future::Ready;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use ironmesh_catalog::{CertificateStore, Domain, TrustBundle, TrustDomain};
use ironmesh_cert::tls::server_config;
use ironmesh_cert::{Authority, ServerNames};
use ironmesh_store::{KeyEncryptionKey, Store};
use ironmesh_xds_wire::ResourceType;
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

/// The options of the floor.
#[derive(Debug, Clone, clap::Args)]
pub struct FloorOptions {
    /// Send the resources of this recording
    #[arg(long)]
    pub frames: PathBuf,
    /// Listen on this address
    #[arg(long)]
    pub listen: SocketAddr,
    /// Verify client certificates with these roots
    #[arg(long)]
    pub roots: PathBuf,
    /// Keep the floor's own authority in this folder, and write its roots to `roots.pem` there
    #[arg(long)]
    pub state: PathBuf,
    /// Start with the second content of the changing resource
    #[arg(long)]
    pub changed: bool,
}

/// Serves until stdin ends. Each line on stdin triggers a change.
#[expect(clippy::print_stdout, reason = "the parent process waits for the line")]
pub async fn serve(options: FloorOptions) -> anyhow::Result<()> {
    let tls = tls(&options)?;
    let frames = Arc::new(Frames::read(&options.frames)?);
    let changes = watch::Sender::new(usize::from(options.changed));
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

/// The TLS settings, made by the code of the control plane.
fn tls(options: &FloorOptions) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let is_old = Store::database_exists(&options.state);
    let kek = KeyEncryptionKey::load_or_create(&options.state.with_extension("kek"), is_old)?;
    let store = Store::open(&options.state, kek)?;
    let (now, trust_domain) = (jiff::Timestamp::now(), TrustDomain::new(Domain::default()));
    let authority = Authority::open(&store as &dyn CertificateStore, &trust_domain, now)?;
    fs_err::write(options.state.join("roots.pem"), authority.trust_bundle().roots)?;
    let certificate = authority.issue_control_plane_certificate(&ServerNames::default(), now)?;
    let clients = TrustBundle { roots: fs_err::read_to_string(&options.roots)? };
    server_config(&certificate, &clients).context("cannot configure TLS")
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
    let (mut deframer, mut wants_endpoints) = (Deframer::default(), false);
    let changing = |frames: &Frames, change: usize| frames.changing.get(change % 2).cloned();
    loop {
        let mut outgoing = Vec::new();
        tokio::select! {
            data = requests.frame() => {
                let Some(Ok(data)) = data else { return };
                let Ok(data) = data.into_data() else { return };
                deframer.push(data, |message| {
                    let Some(subscription) = Subscription::read(&message) else { return };
                    wants_endpoints |= subscription.resource_type == ResourceType::Endpoint;
                    if !subscription.is_resumed {
                        outgoing.extend(discovery.frames.by_type.get(&subscription.resource_type).cloned());
                    } else if subscription.resource_type == ResourceType::Endpoint {
                        let change = *discovery.changes.borrow();
                        outgoing.extend(changing(&discovery.frames, change));
                    }
                });
            }
            changed = discovery.changes.changed() => {
                let change = *discovery.changes.borrow_and_update();
                if changed.is_err() {
                    return;
                }
                if wants_endpoints {
                    outgoing.extend(changing(&discovery.frames, change));
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
