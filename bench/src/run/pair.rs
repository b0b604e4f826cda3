//! Two servers that share the clients of a fleet: two control planes, or two floors.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::peer::Memory;
use crate::fleet::Fleet;
use crate::measure::{Scope, Series, Storm, arrival, series, storm};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{cpu_of, rss};
use crate::target::Target;

/// A control plane or a floor.
pub(super) trait Server {
    fn id(&self) -> anyhow::Result<u32>;
    fn address(&self) -> SocketAddr;
    async fn change(&mut self) -> anyhow::Result<Instant>;
    async fn kill(&mut self) -> anyhow::Result<()>;
    /// Starts it again, with a change that it has not sent.
    async fn run_changed(&mut self) -> anyhow::Result<()>;
}

impl Server for MeasuredControlPlane {
    fn id(&self) -> anyhow::Result<u32> {
        self.id()
    }
    fn address(&self) -> SocketAddr {
        self.xds()
    }
    async fn change(&mut self) -> anyhow::Result<Instant> {
        self.change()
    }
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.kill().await
    }
    async fn run_changed(&mut self) -> anyhow::Result<()> {
        self.change()?;
        self.run().await
    }
}

impl Server for Target {
    fn id(&self) -> anyhow::Result<u32> {
        self.id()
    }
    fn address(&self) -> SocketAddr {
        self.address()
    }
    async fn change(&mut self) -> anyhow::Result<Instant> {
        self.change().await
    }
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.kill().await
    }
    async fn run_changed(&mut self) -> anyhow::Result<()> {
        self.run_changed().await
    }
}

/// Two servers and their clients. Each client uses one of them, and the other after a loss.
pub(super) struct Pair<S> {
    pub(super) servers: [S; 2],
    pub(super) fleet: Fleet,
    /// The memory of both without connections.
    empty: u64,
    /// The connections that ended because the first server was killed.
    killed: u64,
}

impl<S: Server> Pair<S> {
    pub(super) fn new(servers: [S; 2], fleet: Fleet) -> anyhow::Result<Self> {
        let mut pair = Self { servers, fleet, empty: 0, killed: 0 };
        pair.empty = pair.memory()?.full;
        Ok(pair)
    }

    pub(super) fn ids(&self) -> anyhow::Result<[u32; 2]> {
        let [first, second] = &self.servers;
        Ok([first.id()?, second.id()?])
    }

    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        self.servers.each_ref().map(S::address)
    }

    /// The memory of both.
    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        let [first, second] = self.ids()?;
        Ok(Memory { empty: self.empty, full: rss(first)? + rss(second)? })
    }

    /// Connects all clients as fresh processes.
    pub(super) async fn connect(&self, scope: Scope<'_>) -> anyhow::Result<Storm> {
        storm(&self.fleet, &self.addresses(), &self.ids()?, true, scope).await
    }

    /// The number of clients of the first server. Some that had to wait at one have gone to the other.
    fn clients_of_first(&self) -> usize {
        self.fleet.clients_of(self.servers[0].address())
    }

    /// Kills the first server, and returns the number of its clients.
    pub(super) async fn kill_first(&mut self) -> anyhow::Result<usize> {
        let clients = self.clients_of_first();
        self.killed += clients as u64;
        self.servers[0].kill().await?;
        Ok(clients)
    }

    /// The connections that ended, but not because their server was killed.
    pub(super) fn lost(&self) -> u64 {
        self.fleet.counts().lost.saturating_sub(self.killed)
    }

    /// Connects all clients again, half of them to each server.
    pub(super) async fn spread(&self, patience: Duration) -> anyhow::Result<()> {
        self.fleet.connect_to_any(&self.addresses(), false);
        self.fleet.all_configured(patience).await?;
        self.fleet.quiet(QUIET, patience).await
    }

    /// Makes changes, each at both servers.
    pub(super) async fn changes(
        &mut self,
        scope: Scope<'_>,
        times: usize,
    ) -> anyhow::Result<Series> {
        let (ids, [first, second]) = (self.ids()?, &mut self.servers);
        let change = async || {
            let before = first.change().await?;
            second.change().await.map(|_| before)
        };
        series(&self.fleet, &ids, scope, times, change).await
    }

    /// Kills the first server. Its clients connect to the second one, which has a change for them. Starts it again, and
    /// spreads the clients. Returns the CPU time for each of these clients, and the resources beyond that change.
    pub(super) async fn fail_over(&mut self, scope: Scope<'_>) -> anyhow::Result<Storm> {
        let (first, patience) = (self.clients_of_first(), scope.patience);
        let watch = self.fleet.watch(scope.cluster);
        self.servers[1].change().await?;
        arrival(&watch, Scope { clients: scope.clients - first, ..scope }).await?;
        self.fleet.quiet(QUIET, patience).await?;
        let (server, before) = ([self.servers[1].id()?], self.fleet.counts());
        let (watch, cpu) = (self.fleet.watch(scope.cluster), cpu_of(&server)?);
        let begin = Instant::now();
        let first = self.kill_first().await?;
        let time = arrival(&watch, Scope { clients: first, ..scope }).await?.last_acked - begin;
        self.fleet.quiet(QUIET, patience).await?;
        let cpu = cpu_of(&server)?.saturating_sub(cpu) / u32::try_from(first)?.max(1);
        let mut counts = self.fleet.counts() - before;
        counts.resources = counts.resources.saturating_sub(first as u64);
        self.servers[0].run_changed().await?;
        self.spread(patience).await?;
        Ok(Storm { time, cpu, counts })
    }
}

const QUIET: Duration = Duration::from_millis(500);
