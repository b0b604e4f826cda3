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
}

impl<S: Server> Pair<S> {
    pub(super) fn new(servers: [S; 2], fleet: Fleet) -> anyhow::Result<Self> {
        let mut pair = Self { servers, fleet, empty: 0 };
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
    /// spreads the clients.
    pub(super) async fn fail_over(&mut self, scope: Scope<'_>) -> anyhow::Result<Storm> {
        let (of_half, patience) = (Scope { clients: scope.clients / 2, ..scope }, scope.patience);
        let [first, second] = &mut self.servers;
        let watch = self.fleet.watch(scope.cluster);
        second.change().await?;
        arrival(&watch, of_half).await?;
        self.fleet.quiet(QUIET, patience).await?;
        let (server, counts) = ([second.id()?], self.fleet.counts());
        let (watch, cpu) = (self.fleet.watch(scope.cluster), cpu_of(&server)?);
        let begin = Instant::now();
        first.kill().await?;
        let time = arrival(&watch, of_half).await?.last_acked - begin;
        self.fleet.quiet(QUIET, patience).await?;
        let cpu = cpu_of(&server)?.saturating_sub(cpu);
        let counts = self.fleet.counts() - counts;
        first.run_changed().await?;
        self.spread(patience).await?;
        Ok(Storm { time, cpu, counts })
    }
}

const QUIET: Duration = Duration::from_millis(500);
