//! A model of Envoy: it connects, subscribes, takes or refuses what it is sent, keeps what it has, and
//! comes back when its connection is lost.

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

use crate::random::SeededRandom;
use crate::server::PORT;

mod delta;
mod sotw;
pub(crate) mod state;

use state::State;

/// How long a connection attempt may take, as in the bootstrap.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long a silence it asks whether the server is there, and how long that may take to answer,
/// as in the bootstrap.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

/// The longest time between two attempts, in milliseconds: after the first one that fails, and after
/// several, as in the bootstrap.
const BACKOFF: (usize, usize) = (500, 1000);

/// How much may be on its way to it that it has not read: little, so that one who does not read is soon
/// felt.
const WINDOW: u32 = 2048;

/// The variant of the protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Delta,
    Sotw,
}

/// One proxy, and what can be seen of it from outside.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) id: String,
    pub(crate) variant: Variant,
    /// The servers that it tries, one after the other.
    pub(crate) servers: Vec<&'static str>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) state: Rc<RefCell<State>>,
    /// Whether it reads what is sent to it.
    pub(crate) reads: Rc<watch::Sender<bool>>,
    /// How long it may take to answer, in milliseconds.
    pub(crate) max_delay_ms: Rc<Cell<usize>>,
    pub(crate) random: Rc<RefCell<SeededRandom>>,
}

impl Proxy {
    /// Its whole life, from a process that has nothing.
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

    /// One connection and its stream, to their end.
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

    /// Waits until it is to read on, and a moment.
    async fn wait_before_reading(&self) {
        drop(self.reads.subscribe().wait_for(|reads| *reads).await);
        let longest = self.max_delay_ms.get();
        if longest > 0 {
            let pause = self.random.borrow_mut().millis(0..longest);
            sleep(pause).await;
        }
    }
}

/// Connects tonic to a host of the simulation, by mutual TLS.
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
