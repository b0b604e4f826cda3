//! One client: a TCP connection with mutual TLS and HTTP/2 of its own, and one stream on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use crate::envoy::{Outgoing, SimulatedEnvoy};
use crate::identity::Identity;
use crate::messages::{Deframer, Variant};
use crate::totals::{Totals, Watch};

/// What clients are told to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    /// Another number is another connection.
    pub(crate) epoch: u64,
    /// Where to; none is nowhere.
    pub(crate) target: Option<SocketAddr>,
    /// Whether they come with nothing, as processes that begin.
    pub(crate) is_fresh: bool,
    pub(crate) faults: Faults,
}

/// How many clients misbehave, and how. These are others in each row, from the last one down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// They refuse whatever comes.
    pub refusing: usize,
    /// They take what comes and never say so.
    pub silent: usize,
    /// They read nothing for three seconds after each thing that they read.
    pub slow: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Good,
    Refusing,
    Silent,
    Slow,
}

impl Faults {
    fn of(self, from_last: usize) -> Behaviour {
        let Self { refusing, silent, slow } = self;
        match from_last {
            n if n < refusing => Behaviour::Refusing,
            n if n < refusing + silent => Behaviour::Silent,
            n if n < refusing + silent + slow => Behaviour::Slow,
            _ => Behaviour::Good,
        }
    }

    /// How many in all.
    pub fn total(self) -> usize {
        self.refusing + self.silent + self.slow
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
    /// Does as it is told until nobody tells it anything any more.
    pub(crate) async fn run(self, mut orders: watch::Receiver<Order>) {
        let mut begun = 0;
        loop {
            let order = orders.borrow_and_update().clone();
            let epoch = order.epoch;
            let is_another = |order: &Order| order.epoch != epoch;
            let mut is_lost = false;
            if let Some(target) = order.target {
                if order.is_fresh && epoch != begun {
                    self.envoy.lock().forget();
                }
                begun = epoch;
                let end = self.connect(target, &order, &mut orders).await;
                self.totals.left(self.index);
                if let Err(error) = end {
                    self.totals.lost(&error);
                    is_lost = true;
                }
            }
            tokio::select! {
                told = orders.wait_for(is_another) => if told.is_err() { return },
                // As Envoy, which comes back within half a second with what it has.
                () = sleep(self.reconnect_delay()), if is_lost => {}
            }
        }
    }

    /// Another for each, so that those who were lost together do not come back together.
    fn reconnect_delay(&self) -> Duration {
        RECONNECT_WITHIN * u32::try_from(self.index % 100).unwrap_or(0) / 100
    }

    /// One connection, to its end: `Ok` where it is told to do something else.
    async fn connect(
        &self,
        target: SocketAddr,
        order: &Order,
        orders: &mut watch::Receiver<Order>,
    ) -> anyhow::Result<()> {
        let tcp = timeout(CONNECT_DEADLINE, TcpStream::connect(target)).await??;
        tcp.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::clone(self.identity.tls()));
        let name = ServerName::try_from("control-plane")?;
        let tls = timeout(CONNECT_DEADLINE, connector.connect(name, tcp)).await??;
        // Windows as Envoy has them: no storm is to wait for them.
        let mut http = h2::client::Builder::new();
        http.initial_window_size(16 << 20).initial_connection_window_size(24 << 20);
        let (sender, mut connection) = http.handshake::<_, Bytes>(tls).await?;
        let mut sender = sender.ready().await?;
        let request = http::Request::post(format!("http://control-plane{}", self.variant.path()))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())?;
        let (mut response, sender) = sender.send_request(request, false)?;
        self.totals.connects.fetch_add(1, Relaxed);

        let mut stream = Stream {
            client: self,
            sender,
            queue: VecDeque::new(),
            silenced: Vec::new(),
            behaviour: order.faults.of(self.from_last),
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
                headers = &mut response, if body.is_none() => {
                    body = Some(headers?.into_body());
                    // Who comes again and lacks nothing is told nothing.
                    stream.look();
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
                    if stream.behaviour == Behaviour::Slow && stream.is_configured {
                        // Nobody drives the connection meanwhile: nothing is read at all.
                        sleep(SLOW).await;
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    stream.send_due()?;
                }
                changed = orders.changed() => {
                    changed?;
                    let new = orders.borrow_and_update().clone();
                    if new.epoch != order.epoch {
                        return Ok(());
                    }
                    stream.behaviour = new.faults.of(self.from_last);
                    stream.speak()?;
                }
            }
        }
    }
}

/// A stream that is open.
struct Stream<'a> {
    client: &'a Client,
    sender: SendStream<Bytes>,
    /// What Envoy is busy with: one thing after the other.
    queue: VecDeque<Queued>,
    /// Answers that a silent one did not give.
    silenced: Vec<Queued>,
    behaviour: Behaviour,
    is_configured: bool,
}

struct Queued {
    due: Instant,
    outgoing: Outgoing,
    /// Where the resource that is watched came: its content, and when.
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
            let refuses = self.behaviour == Behaviour::Refusing && self.is_configured;
            let refusal = refuses.then_some("refused by a simulated Envoy");
            let watch = totals.watch.read().clone();
            let watched = watch.as_ref().map(|watch| &*watch.name);
            let reaction = self.client.envoy.lock().on_response(&message, watched, refusal);
            let reaction =
                reaction.map_err(|e| anyhow::anyhow!("an unexpected response: {e:?}"))?;
            totals.responses.fetch_add(1, Relaxed);
            totals.resources.fetch_add(reaction.resources as u64, Relaxed);
            let mut due = self.queue.back().map_or(now, |last| last.due).max(now);
            for outgoing in reaction.outgoing {
                if outgoing.delay.is_zero() {
                    // Asked on the way, before what came is answered.
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

    /// Sends what is due.
    fn send_due(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        while self.queue.front().is_some_and(|next| next.due <= now) {
            let Some(next) = self.queue.pop_front() else { break };
            if self.behaviour == Behaviour::Silent && self.is_configured {
                self.silenced.push(next);
            } else {
                self.answer(next)?;
            }
        }
        self.look();
        Ok(())
    }

    /// Takes note when it has all that it asked for.
    fn look(&mut self) {
        if !self.is_configured && self.queue.is_empty() && self.client.envoy.lock().is_configured()
        {
            self.is_configured = true;
            self.client.totals.configured(self.client.index);
        }
    }

    fn answer(&mut self, queued: Queued) -> anyhow::Result<()> {
        let totals = &self.client.totals;
        let is_refusal = queued.outgoing.request.refusal.is_some();
        let counter = if is_refusal { &totals.nacks } else { &totals.acks };
        counter.fetch_add(1, Relaxed);
        self.send(queued.outgoing.request.frame(self.client.variant, &[]))?;
        if let Some((watch, content, received)) = queued.watched {
            watch.taken(self.client.index, content, received, Instant::now());
        }
        Ok(())
    }

    /// Says what a silent one has not said, when it is silent no more.
    fn speak(&mut self) -> anyhow::Result<()> {
        if self.behaviour != Behaviour::Silent {
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

/// Within which time those come back that were lost together.
const RECONNECT_WITHIN: Duration = Duration::from_millis(500);
/// How long a connection or a handshake may take: in a storm they take turns.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);
const SLOW: Duration = Duration::from_secs(3);
