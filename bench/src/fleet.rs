//! A fleet of simulated clients in one process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use ironmesh_xds_wire::ResourceType;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Faults, FleetCommand};
use crate::envoy::{AckDelay, Holdings, SimulatedEnvoy};
use crate::identity::Identity;
use crate::library::{Library, ResourceContent};
use crate::messages::Variant;
use crate::totals::{Counts, Totals, Watch};

/// Simulated Envoys, each with its own connection. They follow commands together. Dropping the fleet ends them.
#[derive(Debug)]
pub struct Fleet {
    identities: Vec<Identity>,
    envoys: Vec<Arc<Mutex<SimulatedEnvoy>>>,
    variant: Variant,
    delay: AckDelay,
    library: Arc<Library>,
    totals: Arc<Totals>,
    commands: watch::Sender<FleetCommand>,
    _tasks: JoinSet<()>,
}

impl Fleet {
    /// Creates the clients. They connect on [`Self::connect`].
    pub fn new(identities: Vec<Identity>, variant: Variant, delay: AckDelay) -> Self {
        Self::with_library(identities, variant, delay, Library::default())
    }

    /// Clients that keep the bytes of all contents.
    pub(crate) fn with_bodies(
        identities: Vec<Identity>,
        variant: Variant,
        delay: AckDelay,
    ) -> Self {
        Self::with_library(identities, variant, delay, Library::with_bodies())
    }

    fn with_library(
        identities: Vec<Identity>,
        variant: Variant,
        delay: AckDelay,
        library: Library,
    ) -> Self {
        let library = Arc::new(library);
        let totals = Arc::new(Totals::new(identities.len()));
        let commands = watch::Sender::new(FleetCommand::default());
        let (mut envoys, mut tasks) = (Vec::new(), JoinSet::new());
        for (index, identity) in identities.iter().enumerate() {
            let envoy = SimulatedEnvoy::new(variant, delay, Arc::clone(&library));
            let envoy = Arc::new(Mutex::new(envoy));
            envoys.push(Arc::clone(&envoy));
            let client = Client {
                index,
                from_last: identities.len() - 1 - index,
                identity: identity.clone(),
                variant,
                envoy,
                totals: Arc::clone(&totals),
            };
            tasks.spawn(client.run(commands.subscribe()));
        }
        Self { identities, envoys, variant, delay, library, totals, commands, _tasks: tasks }
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.identities.len()
    }

    /// Whether the fleet has no clients.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Reconnects all clients at once: with initial versions, or fresh as new processes.
    pub fn connect(&self, target: SocketAddr, is_fresh: bool) {
        self.connect_to_any(&[target], is_fresh);
    }

    /// The same with several servers, among which the clients are spread. A client that loses its connection tries the
    /// next one.
    pub fn connect_to_any(&self, targets: &[SocketAddr], is_fresh: bool) {
        self.totals.begin();
        self.commands.send_modify(|command| {
            command.epoch += 1;
            command.targets = targets.into();
            command.is_fresh = is_fresh;
        });
    }

    /// Disconnects all clients.
    pub fn disconnect(&self) {
        self.commands.send_modify(|command| {
            command.epoch += 1;
            command.targets = [].into();
        });
    }

    /// Sets how many clients misbehave from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.commands.send_modify(|command| command.faults = faults);
    }

    /// Waits until all clients have ACKed all their subscriptions. Returns the time of the last ACK.
    pub async fn all_configured(&self, patience: Duration) -> anyhow::Result<Instant> {
        self.totals.all_configured(0, patience).await
    }

    /// Whether a client has ACKed all its subscriptions on the stream that it has now.
    pub fn is_configured(&self, client: usize) -> bool {
        self.totals.is_configured(client)
    }

    /// The number of clients whose last stream is to this server.
    pub(crate) fn clients_of(&self, server: SocketAddr) -> usize {
        self.totals.clients_of(server)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.totals.counts()
    }

    /// The total size of all distinct contents that the clients received, in bytes.
    pub fn distinct_bytes(&self) -> u64 {
        self.library.bytes()
    }

    /// All contents that the clients received of resources with this name.
    pub(crate) fn contents(&self, name: &str) -> Vec<Arc<ResourceContent>> {
        self.library.contents(name)
    }

    /// Starts to record when the endpoints of this cluster arrive.
    pub fn watch(&self, cluster: &str) -> Arc<Watch> {
        let watch = Watch::new(cluster);
        *self.totals.watch.write() = Some(Arc::clone(&watch));
        watch
    }

    /// The resources of one client.
    pub fn holdings(&self, client: usize) -> Option<Holdings> {
        self.envoys.get(client).map(|envoy| envoy.lock().holdings())
    }

    /// The number of endpoints of one client, over all clusters.
    pub(crate) fn endpoints(&self, client: usize) -> u64 {
        let holdings = self.holdings(client).unwrap_or_default();
        let endpoints = holdings.get(&ResourceType::Endpoint).into_iter().flatten();
        endpoints.map(|(_, known)| u64::from(known.references.endpoints)).sum()
    }

    /// Waits until no response has arrived for the time `silence`.
    pub async fn quiet(&self, silence: Duration, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let before = self.counts().responses;
            sleep(silence).await;
            if self.counts().responses == before {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "clients still receive responses");
        }
    }

    /// Connects a second, fresh client of each identity, and compares the hashes of the resources of both. Skips
    /// misbehaving clients. Returns the number of compared clients.
    pub async fn verify(&self, target: SocketAddr, patience: Duration) -> anyhow::Result<usize> {
        let good = self.len() - self.commands.borrow().faults.total();
        for begin in (0..good).step_by(VERIFIED_AT_ONCE) {
            let end = (begin + VERIFIED_AT_ONCE).min(good);
            let identities = self.identities.get(begin..end).unwrap_or_default().to_vec();
            let fresh = Self::new(identities, self.variant, self.delay);
            fresh.connect(target, true);
            fresh.all_configured(patience).await?;
            for (index, other) in (begin..end).zip(0..) {
                let (old, new) = (self.holdings(index), fresh.holdings(other));
                if let Some(difference) = old.zip(new).and_then(|(old, new)| difference(&old, &new))
                {
                    anyhow::bail!(
                        "client {index} and a fresh client have different resources: {difference}"
                    );
                }
            }
        }
        Ok(good)
    }

    /// Records the resources of the first client, with all bytes.
    pub(crate) async fn record(
        &self,
        target: SocketAddr,
        patience: Duration,
    ) -> anyhow::Result<Holdings> {
        let identities = self.identities.iter().take(1).cloned().collect();
        let one = Self::with_bodies(identities, self.variant, self.delay);
        one.connect(target, true);
        one.all_configured(patience).await?;
        Ok(one.holdings(0).unwrap_or_default())
    }
}

/// The first resource with different contents.
fn difference(one: &Holdings, other: &Holdings) -> Option<String> {
    for (resource_type, resources) in one {
        let others = other.get(resource_type)?;
        let content = |known: Option<&Arc<ResourceContent>>| known.map(|known| known.content);
        for name in resources.keys().chain(others.keys()) {
            if content(resources.get(name)) != content(others.get(name)) {
                return Some(format!("{resource_type} `{name}`"));
            }
        }
    }
    None
}

pub(crate) const VERIFIED_AT_ONCE: usize = 50;
