//! A model of Envoy: it connects, subscribes, ACKs or NACKs responses, keeps resources, and
//! reconnects.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};
use tower_service::Service;
use turmoil::net::TcpStream;

use crate::server::PORT;
use ironmesh_tests::random::SeededRandom;

mod delta;
mod sotw;
pub(crate) mod state;

use state::State;

/// The connect timeout, as in the bootstrap.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The silence before a keepalive, and the time to answer it, as in the bootstrap.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

/// The longest backoff in milliseconds, after the first failed attempt and after several, as in the
/// bootstrap.
const BACKOFF: (usize, usize) = (500, 1000);

/// The receive window in bytes: small, so that a slow reader soon takes effect.
const WINDOW: u32 = 2048;

/// The protocol variant of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Delta,
    Sotw,
}

/// One proxy and its observable state.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) id: String,
    pub(crate) variant: Variant,
    /// The servers that it tries in turn.
    pub(crate) servers: Vec<&'static str>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) state: Rc<RefCell<State>>,
    /// Whether it reads responses.
    pub(crate) reads: Rc<watch::Sender<bool>>,
    /// The maximum delay of its answers in milliseconds.
    pub(crate) max_delay_ms: Rc<Cell<usize>>,
    pub(crate) random: Rc<RefCell<SeededRandom>>,
}

impl Proxy {
    /// Runs a process with empty state until the simulation ends.
    pub(crate) async fn run(self) -> turmoil::Result {
        self.state.borrow_mut().begin();
        let mut failures = 0;
        for server in self.servers.iter().cycle() {
            let before = self.state.borrow().responses;
            let end = self.run_stream(server).await;
            let got_something = self.state.borrow().responses > before;
            self.state.borrow_mut().disconnected(end.err());
            failures = if got_something { 0 } else { failures + 1 };
            let longest = if failures < 2 { BACKOFF.0 } else { BACKOFF.1 };
            let pause = self.random.borrow_mut().millis(1..longest);
            sleep(pause).await;
        }
        Ok(())
    }

    /// Runs one connection and its stream until they end.
    async fn run_stream(&self, server: &'static str) -> Result<(), Status> {
        let endpoint = Endpoint::from_static("http://xds")
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW);
        let connector = Connector { server, config: Arc::clone(&self.tls) };
        let connecting = timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(connector));
        let unavailable = |why: String| Status::unavailable(why);
        let channel: Channel = connecting
            .await
            .map_err(|_| unavailable("no connection in time".to_owned()))?
            .map_err(|error| unavailable(format!("no connection: {error:?}")))?;
        match self.variant {
            Variant::Delta => Box::pin(self.run_delta(channel, server)).await,
            Variant::Sotw => Box::pin(self.run_sotw(channel, server)).await,
        }
    }

    fn node(&self) -> Node {
        Node { id: self.id.clone(), ..Node::default() }
    }

    /// Waits until reading is enabled, and for a random delay.
    async fn wait_before_reading(&self) {
        drop(self.reads.subscribe().wait_for(|reads| *reads).await);
        let longest = self.max_delay_ms.get();
        if longest > 0 {
            let pause = self.random.borrow_mut().millis(0..longest);
            sleep(pause).await;
        }
    }
}

/// Connects tonic to a simulated host with mutual TLS.
struct Connector {
    server: &'static str,
    config: Arc<ClientConfig>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (server, config) = (self.server, Arc::clone(&self.config));
        Box::pin(async move {
            let tcp = TcpStream::connect((server, PORT)).await?;
            let name = "xds".try_into().map_err(std::io::Error::other)?;
            Ok(TokioIo::new(TlsConnector::from(config).connect(name, tcp).await?))
        })
    }
}
