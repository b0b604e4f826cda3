//! Single measurements: a series of changes, a storm.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::fleet::Fleet;
use crate::process::cpu_of;
use crate::totals::{Counts, Watch};

/// The measurements of a series of changes.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The time from each change to the first client that received it.
    pub(crate) to_first: Vec<Duration>,
    /// The time from each change to the last ACK.
    pub(crate) to_last: Vec<Duration>,
    /// The CPU time of the servers for all changes.
    pub(crate) cpu: Duration,
    /// The counts of the clients.
    pub(crate) counts: Counts,
    /// The number of clients that receive each change.
    pub(crate) clients: usize,
}

impl Series {
    /// Adds a further series.
    pub(crate) fn extend(&mut self, other: Self) {
        self.to_first.extend(other.to_first);
        self.to_last.extend(other.to_last);
        self.cpu += other.cpu;
        self.counts = self.counts + other.counts;
        self.clients = other.clients;
    }

    /// The CPU time of the server per change and client.
    pub(crate) fn cpu_each(&self) -> Duration {
        let times = self.to_last.len().saturating_mul(self.clients);
        self.cpu / u32::try_from(times.max(1)).unwrap_or(u32::MAX)
    }
}

/// The median.
pub(crate) fn median(durations: &[Duration]) -> Duration {
    percentile(durations, 50)
}

/// The percentile: the measured value whose place in the order is nearest.
pub(crate) fn percentile(durations: &[Duration], percent: usize) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let index = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(index).copied().unwrap_or_default()
}

/// The clients that receive changes, and the time limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) cluster: &'a str,
    /// The number of clients that must receive a change, out of the first `among` clients.
    pub(crate) clients: usize,
    pub(crate) among: usize,
    /// The pause after each change.
    pub(crate) pause: Duration,
    pub(crate) patience: Duration,
}

/// Makes changes in sequence, each after all clients have ACKed the previous one. `servers` are their processes.
pub(crate) async fn series(
    fleet: &Fleet,
    servers: &[u32],
    scope: Scope<'_>,
    times: usize,
    mut change: impl AsyncFnMut() -> anyhow::Result<Instant>,
) -> anyhow::Result<Series> {
    let mut series = Series { clients: scope.clients, ..Series::default() };
    let (cpu_before, counts_before) = (cpu_of(servers)?, fleet.counts());
    for _ in 0..times {
        let watch = fleet.watch(scope.cluster);
        let begin = change().await?;
        let arrival = arrival(&watch, scope).await?;
        series.to_first.push(arrival.first_received - begin);
        series.to_last.push(arrival.last_acked - begin);
        sleep(scope.pause).await;
    }
    series.cpu = cpu_of(servers)?.saturating_sub(cpu_before);
    series.counts = fleet.counts() - counts_before;
    Ok(series)
}

/// Waits until the clients in scope have ACKed a change.
pub(crate) async fn arrival(
    watch: &Watch,
    scope: Scope<'_>,
) -> anyhow::Result<crate::totals::Arrival> {
    watch.all(scope.clients, scope.among, scope.patience).await
}

/// The measurements of a reconnect storm.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    pub(crate) time: Duration,
    pub(crate) cpu: Duration,
    pub(crate) counts: Counts,
}

/// Connects all clients at once, spread among the servers.
///
/// A fresh storm ends when all are configured. Otherwise it ends when all have the change that was made while they were
/// disconnected.
pub(crate) async fn storm(
    fleet: &Fleet,
    targets: &[SocketAddr],
    servers: &[u32],
    is_fresh: bool,
    scope: Scope<'_>,
) -> anyhow::Result<Storm> {
    let (cpu_before, counts_before) = (cpu_of(servers)?, fleet.counts());
    let watch = fleet.watch(scope.cluster);
    let begin = Instant::now();
    fleet.connect_to_any(targets, is_fresh);
    let end = if is_fresh {
        fleet.all_configured(scope.patience).await?
    } else {
        arrival(&watch, scope).await?.last_acked
    };
    let time = end - begin;
    // Repeated resources would arrive now, and the server must have finished its work.
    fleet.quiet(Duration::from_millis(500), scope.patience).await?;
    let counts = fleet.counts() - counts_before;
    Ok(Storm { time, cpu: cpu_of(servers)?.saturating_sub(cpu_before), counts })
}
