//! A bookstore: an HTTP/1.1 server that names itself in its answers, and counts requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::next_connection;
use crate::error::DemoError;

/// The header with the name of the application.
pub(crate) const APPLICATION: &str = "x-app";
/// The header with the address of the application.
pub(crate) const MACHINE: &str = "x-machine";

/// A running store. Dropping it ends the store.
#[derive(Debug)]
pub(crate) struct Store {
    requests: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Store {
    /// Opens a store with this name. It queues sales in `sales`, and drops them if the queue is full.
    pub(crate) async fn open(
        name: &'static str,
        address: SocketAddr,
        sales: mpsc::Sender<String>,
    ) -> Result<Self, DemoError> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| DemoError::Listen { address, source })?;
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Counter {
            name: HeaderValue::from_static(name),
            // An address has only characters that a header may have.
            machine: HeaderValue::from_str(&address.ip().to_string()).ok(),
            requests: Arc::clone(&requests),
            sales,
        };
        let task = tokio::spawn(accept(listener, Arc::new(counter))).abort_handle();
        Ok(Self { requests, task })
    }

    /// The number of requests that have reached it.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Ends the store and its connections.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// The request handler of a store.
struct Counter {
    name: HeaderValue,
    machine: Option<HeaderValue>,
    requests: Arc<AtomicU64>,
    sales: mpsc::Sender<String>,
}

impl Counter {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let text = match request.uri().path().strip_prefix("/books/") {
            Some(title) => {
                // A full queue means that the warehouse is unreachable. Answers do not wait for it.
                drop(self.sales.try_send(title.to_owned()));
                format!("book {title}\n")
            }
            None => "welcome to the bookstore\n".to_owned(),
        };
        let mut response = Response::new(Full::from(text));
        response.headers_mut().insert(APPLICATION, self.name.clone());
        if let Some(machine) = &self.machine {
            response.headers_mut().insert(MACHINE, machine.clone());
        }
        response
    }
}

/// Accepts connections until it is aborted, which ends all of them.
async fn accept(listener: TcpListener, counter: Arc<Counter>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = next_connection(&listener).await;
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&counter)));
    }
}

async fn serve(stream: TcpStream, counter: Arc<Counter>) {
    // Without this every answer would take 40 ms.
    let _ = stream.set_nodelay(true);
    let service = service_fn(async |request| Ok::<_, Infallible>(counter.answer(&request)));
    // The client may end the connection in any way.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
