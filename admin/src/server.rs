//! The server of the admin API: its listeners, and its routes.
//!
//! Each listener attaches a principal to its requests, the table of routes compares it with what an operation needs, and
//! the handlers ask the control plane. The server keeps no state of the mesh.

mod access;
mod answer_memory;
mod connections;
mod control_plane;
mod cordons;
mod credentials;
mod error;
mod events;
mod export;
mod handlers;
mod host;
mod log_level;
mod logins;
mod mesh_reads;
mod network;
mod openapi;
mod operations;
mod principal;
mod rejection;
mod routes;
mod session_cookie;
mod silences;
mod sockets;
#[cfg(test)]
mod tests;
mod versions;
mod work_queues;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Extension, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
pub use ironmesh_listener::ConnectionLosses;
use ironmesh_listener::TlsCredentials;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer as _;
use tracing::Instrument;

pub use access::{Authenticated, OperatorAccess, PresentedCredential};
pub use control_plane::{Cancellation, ControlPlane, NextChange, WriteExport};
use cordons::CordonWaits;
pub use error::ApiError;
use events::EventReaders;
pub use events::{EventCursor, EventSource};
use export::Exports;
use handlers::Waits;
pub use log_level::LogLevelAccess;
pub use logins::LoginAccess;
pub use mesh_reads::MeshReads;
pub use operations::Operation;
use principal::SocketUser;
pub use principal::{Identity, Permission, Principal};
pub use routes::{document, operations};
use sockets::SocketListener;
pub use sockets::{BindError, bind_group_socket, bind_socket};
use work_queues::WorkQueues;

type Shared = Arc<dyn ControlPlane>;

/// The API of a control plane, which all listeners serve: they share its queues.
#[derive(Clone)]
pub struct AdminApi {
    router: Router,
    control_plane: Shared,
    queues: WorkQueues,
}

impl std::fmt::Debug for AdminApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminApi").finish_non_exhaustive()
    }
}

impl AdminApi {
    /// The API of `control_plane`.
    pub fn new(control_plane: Arc<dyn ControlPlane>) -> Self {
        let queues = WorkQueues::default();
        let router = routes::routes()
            .router()
            .layer(Extension(queues.clone()))
            .layer(Extension(Waits::default()))
            .layer(Extension(CordonWaits::default()))
            .layer(Extension(Exports::default()))
            .layer(Extension(EventReaders::default()))
            .layer(middleware::from_fn(in_span))
            .with_state(Arc::clone(&control_plane));
        Self { router, control_plane, queues }
    }

    /// Serves the admin port until the task is dropped: reads for all users of the machine, whose clients use an address,
    /// `localhost` or one of `names` as the host.
    pub async fn serve_port(self, listener: TcpListener, names: impl IntoIterator<Item = String>) {
        let router = for_hosts(self.router.layer(Extension(Principal::local())), names);
        connections::serve(listener, |_| router.clone(), connections::Bounds::PORT).await;
    }

    /// Serves operators on the network until `shutdown`, whose clients use an address, `localhost` or one of `names` as the
    /// host. `credentials` verify client certificates below the mesh's roots, and require none. `losses` counts the connections
    /// that end without a request.
    pub async fn serve_network<C: TlsCredentials>(
        self,
        listener: TcpListener,
        credentials: watch::Receiver<Arc<C>>,
        names: impl IntoIterator<Item = String>,
        losses: Arc<ConnectionLosses>,
        shutdown: CancellationToken,
    ) {
        let router = network::with_principals(self.router, self.control_plane, self.queues);
        network::serve(listener, credentials, for_hosts(router, names), losses, shutdown).await;
    }

    /// Serves the socket for a group until the task is dropped: reads of the role operator.
    pub async fn serve_group_socket(self, listener: UnixListener) {
        let as_member = |stream: &UnixStream| {
            let uid = stream.peer_cred().ok().map(|peer| peer.uid());
            Extension(Principal::member(uid)).layer(self.router.clone())
        };
        connections::serve(listener, as_member, connections::Bounds::PORT).await;
    }

    /// Serves the admin socket until the task is dropped, for its owner, who may do everything.
    pub async fn serve_socket(self, listener: UnixListener) -> io::Result<()> {
        let router = self.router.layer(middleware::from_fn(as_owner));
        axum::serve(
            SocketListener(listener),
            router.into_make_service_with_connect_info::<SocketUser>(),
        )
        .await
    }
}

/// The same router for hosts of the control plane only.
fn for_hosts(router: Router, names: impl IntoIterator<Item = String>) -> Router {
    let names: host::Names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
    router.layer(middleware::from_fn_with_state(names, host::check))
}

async fn as_owner(
    ConnectInfo(SocketUser(uid)): ConnectInfo<SocketUser>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(Principal::owner(uid));
    next.run(request).await
}

/// Runs a request in a span, which marks the lines that it logs.
async fn in_span(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let span = tracing::debug_span!("request", %method, path);
    next.run(request).instrument(span).await
}
