//! The connections of a listener: how many there may be, and how long one may be silent.
//!
//! It knows nothing of their requests. The admin socket needs no such bounds: only the owner of the state folder
//! connects to it.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ironmesh_listener::{WRITE_LIMIT, WriteDeadline};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most connections at once. Further ones are closed at once.
    pub(super) connections: usize,
    /// How long a client may take for the head of a request, its first or a later one.
    pub(super) head: Duration,
    /// How long a connection lasts.
    pub(super) life: Duration,
    /// How long a request in progress has after that.
    pub(super) grace: Duration,
}

impl Bounds {
    /// The bounds of the admin port and of the socket for a group.
    pub(super) const PORT: Self = Self {
        connections: 128,
        head: Duration::from_secs(15),
        life: Duration::from_secs(120),
        grace: Duration::from_secs(120),
    };

    /// The bounds on the network, where an export or a plan may take ten minutes. The listener counts connections.
    pub(super) const NETWORK: Self = Self { grace: Duration::from_secs(600), ..Self::PORT };
}

/// The most bytes of the head of a request, whose query may be a long question.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves each connection by the service that `service` makes for its stream, until the task is dropped.
pub(super) async fn serve<L, S>(mut listener: L, service: impl Fn(&L::Io) -> S, bounds: Bounds)
where
    L: Listener,
    S: tower_service::Service<hyper::Request<Incoming>, Response = Response>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let slots = Arc::new(Semaphore::new(bounds.connections));
    // The connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        // Goes on after failures of one connection, and after a pause when the system has no file for a connection.
        let (stream, _) = listener.accept().await;
        while connections.try_join_next().is_some() {}
        // Beyond the bound a connection is closed at once, instead of waiting without an answer.
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            let service = TowerToHyperService::new(service(&stream));
            connections.spawn(async move {
                let stream = WriteDeadline::new(stream, WRITE_LIMIT);
                serve_stream(TokioIo::new(stream), service, bounds).await;
                drop(slot);
            });
        }
    }
}

/// Serves the requests of one stream, until it ends or its time is over.
pub(super) async fn serve_stream<I, S>(stream: I, service: S, bounds: Bounds)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: hyper::service::HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = http1::Builder::new();
    // The wait for a head begins with the connection and with the end of each request.
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(MAX_HEAD_BYTES);
    let mut connection = std::pin::pin!(http.serve_connection(stream, service));
    // The failure of one connection does not affect the others.
    if timeout(bounds.life, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(timeout(bounds.grace, connection).await);
    }
}
