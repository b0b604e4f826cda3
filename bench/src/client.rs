//! One client: its own TCP connection with mutual TLS and HTTP/2, and one stream on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use h2::{Ping, PingPong, RecvStream, SendStream};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::envoy::{Outgoing, SimulatedEnvoy};
use crate::identity::Identity;
use crate::messages::{Deframer, Variant};
use crate::totals::{Totals, Watch};

/// The command that all clients follow.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetCommand {
    /// The number of the command. A new number means a new connection.
    pub(crate) epoch: u64,
    /// The servers. Each client begins with a different one, and tries the next after a loss; none disconnects.
    pub(crate) targets: Arc<[SocketAddr]>,
    /// Whether clients start fresh, without resources.
    pub(crate) is_fresh: bool,
    pub(crate) faults: Faults,
}

/// The numbers of misbehaving clients, counted from the last client. No client has two faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Clients that NACK every response.
    pub nacking: usize,
    /// Clients that never answer.
    pub silent: usize,
    /// Clients that pause for three seconds after each read.
    pub slow: usize,
}

/// The behavior of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Good,
    Nacking,
    Silent,
    Slow,
}

impl Faults {
    fn of(self, from_last: usize) -> Behavior {
        let Self { nacking, silent, slow } = self;
        match from_last {
            n if n < nacking => Behavior::Nacking,
            n if n < nacking + silent => Behavior::Silent,
            n if n < nacking + silent + slow => Behavior::Slow,
            _ => Behavior::Good,
        }
    }

    /// The number of all misbehaving clients.
    pub fn total(self) -> usize {
        self.nacking + self.silent + self.slow
    }
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) from_last: usize,
    pub(crate) identity: Identity,
    pub(crate) variant: Variant,
    pub(crate) envoy: Arc<Mutex<SimulatedEnvoy>>,
    pub(crate) totals: Arc<Totals>,
}

impl Client {
    /// Follows commands until the fleet is dropped.
    pub(crate) async fn run(self, mut commands: watch::Receiver<FleetCommand>) {
        let mut begun = 0;
        let mut losses = 0;
        loop {
            let command = commands.borrow_and_update().clone();
            let epoch = command.epoch;
            let is_new = |command: &FleetCommand| command.epoch != epoch;
            let mut is_lost = false;
            if epoch != begun {
                losses = 0;
            }
            let next = (self.index + losses).checked_rem(command.targets.len());
            if let Some(target) = next.and_then(|next| command.targets.get(next).copied()) {
                if command.is_fresh && epoch != begun {
                    self.envoy.lock().forget();
                }
                begun = epoch;
                let end = self.connect(target, &command, &mut commands).await;
                self.totals.left(self.index);
                if let Err(error) = end {
                    self.totals.lost(&error);
                    losses += 1;
                    is_lost = true;
                }
            }
            tokio::select! {
                command = commands.wait_for(is_new) => if command.is_err() { return },
                // As Envoy, which reconnects within half a second with its resources.
                () = sleep(self.reconnect_delay()), if is_lost => {}
            }
        }
    }

    /// A different delay for each client, so that clients lost together do not reconnect together.
    fn reconnect_delay(&self) -> Duration {
        RECONNECT_WITHIN * u32::try_from(self.index % 100).unwrap_or(0) / 100
    }

    async fn handshake(&self, target: SocketAddr) -> anyhow::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(target).await?;
        tcp.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::clone(self.identity.tls()));
        Ok(connector.connect(ServerName::try_from("control-plane")?, tcp).await?)
    }

    /// Runs one connection to its end. Returns `Ok` on a new command.
    async fn connect(
        &self,
        target: SocketAddr,
        command: &FleetCommand,
        commands: &mut watch::Receiver<FleetCommand>,
    ) -> anyhow::Result<()> {
        // With other servers to try, as Envoy does with the bootstrap of a mesh.
        let deadline = if command.targets.len() > 1 { CONNECT_TIMEOUT } else { CONNECT_DEADLINE };
        let tls = timeout(deadline, self.handshake(target)).await??;
        // The window sizes of Envoy: a storm must not wait for window updates.
        let mut http = h2::client::Builder::new();
        http.initial_window_size(16 << 20).initial_connection_window_size(24 << 20);
        let (sender, mut connection) = http.handshake::<_, Bytes>(tls).await?;
        let keepalive = connection.ping_pong().map(keep_alive);
        let keepalive = keepalive.context("a connection has one source of pings")?;
        tokio::pin!(keepalive);
        let mut sender = sender.ready().await?;
        let request = http::Request::post(format!("http://control-plane{}", self.variant.path()))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())?;
        let (mut response, sender) = sender.send_request(request, false)?;
        self.totals.connected(self.index, target);

        let mut stream = Stream {
            client: self,
            sender,
            queue: VecDeque::new(),
            silenced: Vec::new(),
            behavior: command.faults.of(self.from_last),
            is_configured: false,
        };
        let mut node = self.identity.node(self.variant).to_vec();
        for first in self.envoy.lock().open() {
            stream.send(first.request.frame(self.variant, &std::mem::take(&mut node)))?;
        }
        let (mut body, mut deframer) = (None::<RecvStream>, Deframer::default());
        loop {
            let due = stream.queue.front().map(|next| next.due);
            tokio::select! {
                end = &mut connection => { end?; bail!("the connection was closed") }
                error = &mut keepalive => return Err(error),
                headers = &mut response, if body.is_none() => {
                    body = Some(headers?.into_body());
                    // A resumed client that lacks nothing receives no response.
                    stream.check_configured();
                }
                data = async { body.as_mut()?.data().await }, if body.is_some() => {
                    let body = body.as_mut().context("data without a body")?;
                    let Some(data) = data else {
                        let trailers = body.trailers().await?.unwrap_or_default();
                        bail!("the stream was ended: {trailers:?}");
                    };
                    let data = data?;
                    body.flow_control().release_capacity(data.len())?;
                    stream.on_data(data, &mut deframer)?;
                    if stream.behavior == Behavior::Slow && stream.is_configured {
                        // The connection is not polled meanwhile, so nothing is read.
                        sleep(SLOW).await;
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    stream.send_due()?;
                }
                changed = commands.changed() => {
                    changed?;
                    let new = commands.borrow_and_update().clone();
                    if new.epoch != command.epoch {
                        return Ok(());
                    }
                    stream.behavior = new.faults.of(self.from_last);
                    stream.answer_silenced()?;
                }
            }
        }
    }
}

/// Sends pings as often as Envoy does with the bootstrap of a mesh. Returns when one is not answered.
async fn keep_alive(mut pings: PingPong) -> anyhow::Error {
    loop {
        sleep(KEEPALIVE_INTERVAL).await;
        match timeout(KEEPALIVE_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return anyhow::anyhow!("no answer to a ping"),
        }
    }
}

/// An open stream.
struct Stream<'a> {
    client: &'a Client,
    sender: SendStream<Bytes>,
    /// The pending work of the simulated Envoy, in order.
    queue: VecDeque<Queued>,
    /// Answers that a silent client has not sent.
    silenced: Vec<Queued>,
    behavior: Behavior,
    is_configured: bool,
}

/// A request that the client sends at a later time.
struct Queued {
    due: Instant,
    outgoing: Outgoing,
    /// The watch, content and time, if the response contained the watched resource.
    watched: Option<(Arc<Watch>, u128, Instant)>,
}

impl Stream<'_> {
    fn on_data(&mut self, data: Bytes, deframer: &mut Deframer) -> anyhow::Result<()> {
        let mut messages = Vec::new();
        let totals = &self.client.totals;
        totals.bytes.fetch_add(data.len() as u64, Relaxed);
        deframer.push(data, |message| messages.push(message));
        for message in messages {
            let now = Instant::now();
            let nacks = self.behavior == Behavior::Nacking && self.is_configured;
            let nack_message = nacks.then_some("NACKed by a simulated Envoy");
            let watch = totals.watch.read().clone();
            let watched = watch.as_ref().map(|watch| &*watch.name);
            let reaction = self.client.envoy.lock().on_response(&message, watched, nack_message);
            let reaction =
                reaction.map_err(|e| anyhow::anyhow!("an unexpected response: {e:?}"))?;
            totals.responses.fetch_add(1, Relaxed);
            totals.resources.fetch_add(reaction.resources as u64, Relaxed);
            let mut due = self.queue.back().map_or(now, |last| last.due).max(now);
            for outgoing in reaction.outgoing {
                if outgoing.delay.is_zero() {
                    // A subscription, which Envoy sends before it answers the response.
                    self.send(outgoing.request.frame(self.client.variant, &[]))?;
                    continue;
                }
                due += outgoing.delay;
                let watched = watch.clone().zip(reaction.watched);
                let watched = watched.map(|(watch, content)| (watch, content, now));
                self.queue.push_back(Queued { due, outgoing, watched });
            }
        }
        Ok(())
    }

    /// Sends the requests that are due.
    fn send_due(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        while self.queue.front().is_some_and(|next| next.due <= now) {
            let Some(next) = self.queue.pop_front() else { break };
            if self.behavior == Behavior::Silent && self.is_configured {
                self.silenced.push(next);
            } else {
                self.answer(next)?;
            }
        }
        self.check_configured();
        Ok(())
    }

    /// Records when the client has all its resources.
    fn check_configured(&mut self) {
        if !self.is_configured && self.queue.is_empty() && self.client.envoy.lock().is_configured()
        {
            self.is_configured = true;
            self.client.totals.configured(self.client.index);
        }
    }

    fn answer(&mut self, queued: Queued) -> anyhow::Result<()> {
        let totals = &self.client.totals;
        let is_nack = queued.outgoing.request.nack_message.is_some();
        let counter = if is_nack { &totals.nacks } else { &totals.acks };
        counter.fetch_add(1, Relaxed);
        self.send(queued.outgoing.request.frame(self.client.variant, &[]))?;
        if let Some((watch, content, received)) = queued.watched {
            watch.record(self.client.index, content, received, Instant::now());
        }
        Ok(())
    }

    /// Sends the withheld answers once the client is no longer silent.
    fn answer_silenced(&mut self) -> anyhow::Result<()> {
        if self.behavior != Behavior::Silent {
            for queued in std::mem::take(&mut self.silenced) {
                self.answer(queued)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, frame: Vec<Bytes>) -> anyhow::Result<()> {
        for piece in frame {
            self.sender.send_data(piece, false)?;
        }
        Ok(())
    }
}

/// The time within which lost clients reconnect.
const RECONNECT_WITHIN: Duration = Duration::from_millis(500);
/// The time limit of a connection or a handshake. In a storm they queue.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);
/// The same if there are further servers: `connect_timeout` of the bootstrap.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// `connection_keepalive` of the bootstrap.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const SLOW: Duration = Duration::from_secs(3);
