//! Small HTTP applications that run behind sidecars.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, watch};
use tokio::task::{AbortHandle, JoinSet};

/// An HTTP application that answers every request with 200, unless told otherwise. The body is the
/// request as JSON, and the header `x-app` is the application's name. Dropping this value stops it.
///
/// Request headers change the answer: `x-answer: 503` sets the status, and `x-answer: never`
/// suppresses the answer. `x-request-name` names a request, so that a test can count it. With
/// `x-batch-size: 8`, requests of one name are answered in groups of eight, once all eight have
/// arrived.
#[derive(Debug)]
pub struct App {
    address: SocketAddr,
    state: Arc<AppState>,
    task: AbortHandle,
}

impl App {
    /// Starts an application that speaks HTTP/1.1 only.
    pub async fn http1(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, Protocol::Http1).await
    }

    /// Starts an application that speaks HTTP/2 only, in plaintext. At `/echo` it returns each
    /// piece of the request's body as it arrives.
    pub async fn http2(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, Protocol::Http2).await
    }

    async fn start(name: &str, address: SocketAddr, protocol: Protocol) -> Self {
        let listener = TcpListener::bind(address)
            .await
            .unwrap_or_else(|error| panic!("{name} cannot listen on {address}: {error}"));
        let address = listener.local_addr().unwrap();
        let state = Arc::new(AppState { name: name.to_owned(), ..AppState::default() });
        let task = tokio::spawn(accept(listener, protocol, Arc::clone(&state))).abort_handle();
        Self { address, state, task }
    }

    /// The address at which the application listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests that have arrived.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Acquire)
    }

    /// The number of requests that have arrived with this name (`x-request-name`). It includes all
    /// requests that [`Self::requests`] has counted.
    pub fn requests_named(&self, name: &str) -> u64 {
        self.state.by_name.lock().get(name).copied().unwrap_or_default()
    }

    /// The number of requests without a name, such as those of load.
    pub fn unnamed_requests(&self) -> u64 {
        self.requests_named("")
    }

    /// Sets the status of all later answers.
    pub fn answer_with(&self, status: StatusCode) {
        self.state.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// Suspends all answers until the returned guard is dropped.
    pub async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.state.gate).write_owned().await
    }

    /// The number of connections that have arrived.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A unique name for a request (`x-request-name`).
pub fn request_name() -> String {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    NAMES.fetch_add(1, Ordering::Relaxed).to_string()
}

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
}

#[derive(Debug, Default)]
struct AppState {
    name: String,
    /// The status of answers; 0 means 200.
    status: AtomicU16,
    /// Held for writing while answers are suspended.
    gate: Arc<RwLock<()>>,
    requests: AtomicU64,
    /// Request counts by name.
    by_name: Mutex<BTreeMap<String, u64>>,
    /// Notified of each counted request.
    arrivals: watch::Sender<()>,
    connections: AtomicU64,
}

/// Accepts connections until the task is aborted, which closes them all.
async fn accept(listener: TcpListener, protocol: Protocol, state: Arc<AppState>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        state.connections.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, protocol, Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, protocol: Protocol, state: Arc<AppState>) {
    // Without this, each answer would take 40 ms.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(stream);
    let service = service_fn(|request| answer(Arc::clone(&state), request, protocol));
    // The client decides how a connection ends.
    let _ = match protocol {
        Protocol::Http1 => http1::Builder::new().serve_connection(stream, service).await,
        Protocol::Http2 => {
            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
        }
    };
}

async fn answer(
    state: Arc<AppState>,
    request: Request<Incoming>,
    protocol: Protocol,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Infallible> {
    let (head, body) = request.into_parts();
    let name = head
        .headers
        .get("x-request-name")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let number = {
        let mut by_name = state.by_name.lock();
        let count = by_name.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    };
    // Counted after the name, so that a test that waits for the count finds the name.
    state.requests.fetch_add(1, Ordering::Release);
    state.arrivals.send_replace(());
    let batch_size =
        head.headers.get("x-batch-size").and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(batch_size) = batch_size {
        let wanted = number.next_multiple_of(batch_size);
        let are_there =
            |(): &()| state.by_name.lock().get(name).is_some_and(|count| *count >= wanted);
        let _ = state.arrivals.subscribe().wait_for(are_there).await;
    }
    let wanted = head.headers.get("x-answer").and_then(|value| value.to_str().ok());
    if wanted == Some("never") {
        // The client cancels the request at some point, which drops this future.
        std::future::pending::<()>().await;
    }
    let wanted = wanted.and_then(|status| status.parse().ok());
    let body = if matches!(protocol, Protocol::Http2) && head.uri.path() == "/echo" {
        body.boxed()
    } else {
        // Read to the end, so that the connection stays usable.
        let _ = body.collect().await;
        let lines: Vec<(&str, String)> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into()))
            .collect();
        let headers: BTreeMap<_, _> = lines.iter().cloned().collect();
        let answer = json!({
            "app": state.name,
            "method": head.method.as_str(),
            "path": head.uri.path_and_query().map(ToString::to_string),
            "headers": headers,
            "header_lines": lines,
        });
        Full::from(answer.to_string()).map_err(|never| match never {}).boxed()
    };
    drop(state.gate.read().await);
    let status = wanted.unwrap_or_else(|| state.status.load(Ordering::Relaxed));
    let status = StatusCode::from_u16(status).unwrap_or_default();
    let response = Response::builder()
        .status(status)
        .header("x-app", &state.name)
        .header("content-type", "application/json")
        .body(body);
    Ok(response.expect("the name of an app is a valid header value"))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{Http1Connection, Http2Connection};

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[tokio::test]
    async fn app_reports_its_requests() {
        let app = App::http1("shop", any_port()).await;
        let mut connection = Http1Connection::connect(app.address()).await.unwrap();
        for count in 1..=2 {
            let response = connection.get("/books/../1?x=%2f", "bookstore").await.unwrap();
            assert_eq!(response.header("x-app"), Some("shop"));
            assert_eq!(response.json()["path"], "/books/../1?x=%2f");
            assert_eq!(response.json()["headers"]["host"], "bookstore");
            assert_eq!((app.requests(), app.connections()), (count, 1));
        }
        let named = [("host", "bookstore"), ("x-request-name", "first")];
        connection.request(Method::GET, "/", &named).await.unwrap();
        assert_eq!(
            (app.requests_named("first"), app.requests_named("second"), app.unnamed_requests()),
            (1, 0, 2)
        );
        let app = App::http2("shop", any_port()).await;
        let mut connection = Http2Connection::connect(app.address()).await.unwrap();
        assert_eq!(connection.get("/", "bookstore").await.unwrap().json()["method"], "GET");
    }

    #[tokio::test]
    async fn echo_stream_stays_open_in_both_directions() {
        let app = App::http2("ledger", any_port()).await;
        let mut connection = Http2Connection::connect(app.address()).await.unwrap();
        let mut stream = connection.open_echo("/echo", "ledger").await.unwrap();
        for _ in 0..3 {
            stream.exchange(Bytes::from_static(b"entry")).await.unwrap();
        }
        drop(app);
        let broken = crate::eventually("the end of the stream", async || {
            stream.exchange(Bytes::from_static(b"entry")).await.err().ok_or("still open")
        });
        broken.await;
    }
}
