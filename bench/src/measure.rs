//! Single measurements: a series of changes, a storm.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::fleet::Fleet;
use crate::process::{cpu, cpu_since};
use crate::totals::{Counts, Watch};

/// What a series of changes took.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// From the change to the first client that was told.
    pub(crate) to_first: Vec<Duration>,
    /// From the change to the last answer.
    pub(crate) to_last: Vec<Duration>,
    /// Of the server, for all of them.
    pub(crate) cpu: Duration,
    /// What came to the clients.
    pub(crate) counts: Counts,
    /// How many clients each was about.
    pub(crate) clients: usize,
}

impl Series {
    /// Adds another.
    pub(crate) fn extend(&mut self, other: Self) {
        self.to_first.extend(other.to_first);
        self.to_last.extend(other.to_last);
        self.cpu += other.cpu;
        self.counts = self.counts + other.counts;
        self.clients = other.clients;
    }

    /// CPU time of the server for each change and client.
    pub(crate) fn cpu_each(&self) -> Duration {
        let times = self.to_last.len().saturating_mul(self.clients);
        self.cpu / u32::try_from(times.max(1)).unwrap_or(u32::MAX)
    }
}

/// The middle one.
pub(crate) fn median(durations: &[Duration]) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Whom changes are about, and how long they are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) cluster: &'a str,
    /// How many are to be told, of the first so many.
    pub(crate) clients: usize,
    pub(crate) among: usize,
    /// How long the server is left alone after each.
    pub(crate) pause: Duration,
    pub(crate) patience: Duration,
}

/// Makes changes, one after the other, each when the last has come to all.
pub(crate) async fn series(
    fleet: &Fleet,
    server: u32,
    scope: Scope<'_>,
    times: usize,
    mut change: impl AsyncFnMut() -> anyhow::Result<Instant>,
) -> anyhow::Result<Series> {
    let mut series = Series { clients: scope.clients, ..Series::default() };
    let (cpu_before, counts_before) = (cpu(server)?, fleet.counts());
    for _ in 0..times {
        let watch = fleet.watch(scope.cluster);
        let begin = change().await?;
        let arrival = arrival(&watch, scope).await?;
        series.to_first.push(arrival.first_received - begin);
        series.to_last.push(arrival.last_acked - begin);
        sleep(scope.pause).await;
    }
    series.cpu = cpu_since(server, cpu_before)?;
    series.counts = fleet.counts() - counts_before;
    Ok(series)
}

pub(crate) async fn arrival(
    watch: &Watch,
    scope: Scope<'_>,
) -> anyhow::Result<crate::totals::Arrival> {
    watch.all(scope.clients, scope.among, scope.patience).await
}

/// What it took until all were there again.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    pub(crate) time: Duration,
    pub(crate) cpu: Duration,
    pub(crate) counts: Counts,
}

/// All connect at once. It is over when all have what changed while they were away, where something
/// did; otherwise when all are configured.
pub(crate) async fn storm(
    fleet: &Fleet,
    target: std::net::SocketAddr,
    server: u32,
    is_fresh: bool,
    scope: Scope<'_>,
) -> anyhow::Result<Storm> {
    let (cpu_before, counts_before) = (cpu(server)?, fleet.counts());
    let watch = fleet.watch(scope.cluster);
    let begin = Instant::now();
    fleet.connect(target, is_fresh);
    let end = if is_fresh {
        fleet.all_configured(scope.patience).await?
    } else {
        arrival(&watch, scope).await?.last_acked
    };
    let time = end - begin;
    // What is sent again would come now; and the server is to have done all its work.
    fleet.quiet(Duration::from_millis(500), scope.patience).await?;
    let counts = fleet.counts() - counts_before;
    Ok(Storm { time, cpu: cpu_since(server, cpu_before)?, counts })
}
