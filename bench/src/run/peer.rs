//! A target with a fleet of its own, beside which the control plane is measured; and the rows of what both sides do.

use std::time::Duration;

use super::RunOptions;
use crate::fleet::Fleet;
use crate::identity::{Identity, folders};
use crate::measure::{Scope, Series, Storm, median, series, storm};
use crate::process::rss;
use crate::report::{Row, count, microseconds, milliseconds};
use crate::shape::Shape;
use crate::target::{Contract, Program, Target};

pub(super) const CPU: &str = "one change: server's CPU per proxy";

/// The measurements of the control plane and of the floor.
pub(super) struct Both<T> {
    pub(super) ours: T,
    pub(super) floor: Option<T>,
}

impl<T> Both<T> {
    pub(super) fn row(
        &self,
        work: &'static str,
        unit: &'static str,
        figure: impl Fn(&T) -> f64,
    ) -> Row {
        Row::new(work, unit, figure(&self.ours)).floor(self.floor.as_ref().map(figure))
    }
}

/// The resident memory of a server, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// Without connections.
    pub(super) empty: u64,
    /// With all proxies connected.
    pub(super) full: u64,
}

/// A target and its fleet.
pub(super) struct Peer {
    target: Target,
    fleet: Fleet,
    empty: u64,
}

impl Peer {
    /// Starts a target for all identities of the contract.
    pub(super) async fn start(
        program: Program,
        contract: &Contract,
        shape: Shape,
        options: &RunOptions,
    ) -> anyhow::Result<Self> {
        let target = Target::start(program, contract.clone()).await?;
        let identities = identities(contract, shape)?;
        let fleet = Fleet::new(identities, options.variant, options.delay);
        let empty = rss(target.id()?)?;
        Ok(Self { target, fleet, empty })
    }

    /// Connects all clients as fresh processes.
    pub(super) async fn connect(&self, scope: Scope<'_>) -> anyhow::Result<Storm> {
        storm(&self.fleet, &[self.target.address()], &[self.target.id()?], true, scope).await
    }

    /// Reconnects all clients with their resources.
    pub(super) async fn reconnect(&self, patience: Duration) -> anyhow::Result<()> {
        self.fleet.connect(self.target.address(), false);
        self.fleet.all_configured(patience).await.map(drop)
    }

    pub(super) async fn changes(
        &mut self,
        scope: Scope<'_>,
        times: usize,
    ) -> anyhow::Result<Series> {
        let (id, target) = (self.target.id()?, &mut self.target);
        series(&self.fleet, &[id], scope, times, async || target.change().await).await
    }

    /// Kills and restarts the target with a change, and reconnects all clients at once.
    pub(super) async fn storm(&mut self, scope: Scope<'_>) -> anyhow::Result<Storm> {
        self.target.kill().await?;
        self.fleet.disconnect();
        self.target.run_changed().await?;
        storm(&self.fleet, &[self.target.address()], &[self.target.id()?], false, scope).await
    }

    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        Ok(Memory { empty: self.empty, full: rss(self.target.id()?)? })
    }

    /// Compares the resources of all clients with those of fresh ones. Returns the number of compared clients.
    pub(super) async fn verify(&self, patience: Duration) -> anyhow::Result<usize> {
        self.fleet.verify(self.target.address(), patience).await
    }
}

/// The identities of the contract, which trust the certificate of its target.
pub(super) fn identities(contract: &Contract, shape: Shape) -> anyhow::Result<Vec<Identity>> {
    let own_roots = contract.own_roots()?;
    let mut identities = Vec::new();
    for group in 0..shape.groups() {
        for folder in folders(&contract.identities().join(format!("{group:04}")))? {
            let mut identity = Identity::read(&folder, Some(&own_roots))?;
            identity.metadata = shape.metadata(identities.len());
            identities.push(identity);
        }
    }
    Ok(identities)
}

/// The row of the memory of `n` proxies.
pub(super) fn memory_row(work: &'static str, both: &Both<Memory>, n: f64) -> Row {
    let each = |m: &Memory| count(m.full.saturating_sub(m.empty)) / 1e3 / n;
    both.row(work, "KB", each).at_most(1.3)
}

/// The rows of connecting `n` proxies as fresh processes.
pub(super) fn fresh_rows(both: &Both<Storm>, n: f64) -> [Row; 3] {
    let work = "all connect fresh: to the last configured";
    let time = both.row(work, "ms", |storm| milliseconds(storm.time));
    let work = "all connect fresh: server's CPU per proxy";
    let cpu = both.row(work, "us", |storm| microseconds(storm.cpu) / n).at_most(2.0);
    let bytes = both.row("all connect fresh: received per proxy", "KB", |storm| {
        count(storm.counts.bytes) / 1e3 / n
    });
    [time, cpu, bytes]
}

/// The rows of changes that all `n` proxies receive.
pub(super) fn change_rows(both: &Both<Series>, n: f64) -> [Row; 5] {
    let work = "one service's endpoints change: to the last ACK, median";
    let to_last = both.row(work, "ms", |s| milliseconds(median(&s.to_last))).at_most(1.2);
    let slowest = |s: &Series| milliseconds(s.to_last.iter().max().copied().unwrap_or_default());
    let slowest = both.row("one change: to the last ACK, the slowest", "ms", slowest);
    let work = "one change: to the first proxy that receives it, median";
    let to_first = both.row(work, "ms", |s| milliseconds(median(&s.to_first)));
    let cpu = both.row(CPU, "us", |s| microseconds(s.cpu_each())).at_most(1.3);
    let bytes = both.row("one change: received per proxy", "bytes", |s| {
        count(s.counts.bytes) / count(s.to_last.len() as u64) / n
    });
    [to_last, slowest, to_first, cpu, bytes]
}

/// The rows of restarts after SIGKILL.
pub(super) fn storm_rows(both: &Both<Vec<Storm>>, n: f64) -> [Row; 2] {
    let of = |storms: &Vec<Storm>, of: fn(&Storm) -> Duration| {
        median(&storms.iter().map(of).collect::<Vec<_>>())
    };
    let work = "SIGKILL, restart, all connect again: to the last ACK";
    let time = both.row(work, "ms", |s| milliseconds(of(s, |s| s.time))).at_most(1.3);
    let work = "SIGKILL, restart: server's CPU per proxy";
    let cpu = both.row(work, "us", |s| microseconds(of(s, |s| s.cpu)) / n).at_most(2.0);
    [time, cpu]
}
