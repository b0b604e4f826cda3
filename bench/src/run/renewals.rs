//! The certificates of all proxies are renewed one after the other, evenly, beside a connected fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_catalog::Secret;
use ironmesh_cert::proxy_csr;
use ironmesh_enrollment::MachineIdentity;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::RunOptions;
use super::machines::{Call, Machine, renew};
use super::parts::PAUSE;
use crate::fleet::{Fleet, VERIFIED_AT_ONCE};
use crate::identity::folders;
use crate::measure::{Scope, arrival, median};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, cpu, cpu_since};
use crate::report::{Row, count, microseconds, milliseconds};
use crate::shape::{CHANGING, Shape};

/// The time without renewals and changes in which the idle CPU is measured.
const IDLE: Duration = Duration::from_secs(5);
/// The number of changes while the certificates are renewed.
const CHANGES: u32 = 72;
/// The renewals that are open at once.
const OPEN: u64 = 100;

pub(super) async fn measure(options: &RunOptions, shape: Shape) -> anyhow::Result<Vec<Row>> {
    let connections = u64::try_from(shape.proxies + VERIFIED_AT_ONCE)? + OPEN;
    allow_connections(connections)?;
    let mut subject = MeasuredControlPlane::start(&options.ironmesh, shape).await?;
    let measured = rows(options, &mut subject, shape).await;
    measured.with_context(|| format!("the control plane's log ends with\n{}", subject.log_tail()))
}

async fn rows(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
    shape: Shape,
) -> anyhow::Result<Vec<Row>> {
    let (server, patience) = (subject.id()?, options.patience);
    let fleet = Fleet::new(subject.enroll(shape).await?, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(patience).await?;
    fleet.quiet(Duration::from_secs(2), patience).await?;
    let mut alone = Vec::new();
    for _ in 0..options.events {
        alone.push(change(options, subject, &fleet).await?);
    }
    let before = cpu(server)?;
    sleep(IDLE).await;
    let idle = cpu_since(server, before)?.as_secs_f64() / IDLE.as_secs_f64();

    let calls = renewals(subject, shape)?;
    let begin = Instant::now();
    let done = Arc::new(AtomicU32::new(0));
    let renewing = tokio::spawn(run_evenly(calls, options.renewals, Arc::clone(&done)));
    let (mut beside, mut counted) = (Vec::new(), Counted::default());
    for round in 1..=CHANGES {
        let (since, cpu_before, done_before) = (Instant::now(), cpu(server)?, done.load(Relaxed));
        sleep_until(begin + options.renewals / CHANGES * round).await;
        // Only the time without a change counts for the CPU of renewals.
        counted.cpu += cpu_since(server, cpu_before)?;
        counted.time += since.elapsed();
        counted.renewals += done.load(Relaxed) - done_before;
        beside.push(change(options, subject, &fleet).await?);
    }
    let slowest = renewing.await??;
    let renewed = begin.elapsed();
    let verified = fleet.verify(subject.xds(), patience).await?;
    ensure!(verified == shape.proxies, "{verified} clients were compared");

    let last = |times: &[Duration]| milliseconds(times.iter().max().copied().unwrap_or_default());
    let rows = [
        ("renewals: to the last of all proxies", "s", renewed.as_secs_f64()),
        ("renewals: server's CPU each", "us", counted.cpu_each(idle)),
        ("renewals: the slowest", "ms", milliseconds(slowest)),
        ("a change without renewals: to the last ACK, median", "ms", milliseconds(median(&alone))),
        ("a change without renewals: to the last ACK, the slowest", "ms", last(&alone)),
    ];
    let mut rows: Vec<_> = rows.map(|(work, unit, ours)| Row::new(work, unit, ours)).into();
    let work = "a change while they renew: to the last ACK, median, beside none";
    let row = Row::new(work, "ms", milliseconds(median(&beside)));
    rows.push(row.beside(milliseconds(median(&alone))));
    let work = "a change while they renew: to the last ACK, the slowest, beside none";
    rows.push(Row::new(work, "ms", last(&beside)).beside(last(&alone)));
    let work = "proxies with exactly the server's set after renewals";
    rows.push(Row::new(work, "proxies", count(u64::try_from(verified)?)));
    Ok(rows)
}

/// The server's CPU in the times without a change.
#[derive(Debug, Default)]
struct Counted {
    cpu: Duration,
    time: Duration,
    renewals: u32,
}

impl Counted {
    /// Microseconds per renewal, beyond the `idle` share of a core.
    fn cpu_each(&self, idle: f64) -> f64 {
        let own = microseconds(self.cpu) - microseconds(self.time) * idle;
        own.max(0.0) / f64::from(self.renewals.max(1))
    }
}

/// Changes an endpoint. Returns the time to the last ACK.
async fn change(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
    fleet: &Fleet,
) -> anyhow::Result<Duration> {
    let (clients, patience) = (fleet.len(), options.patience);
    let scope = Scope { cluster: CHANGING, clients, among: clients, pause: PAUSE, patience };
    let watch = fleet.watch(CHANGING);
    let before = subject.change()?;
    let time = arrival(&watch, scope).await?.last_acked - before;
    sleep(scope.pause).await;
    Ok(time)
}

/// The renewal of each proxy's certificate, by its own key.
fn renewals(subject: &MeasuredControlPlane, shape: Shape) -> anyhow::Result<Vec<Call<Machine>>> {
    let mut calls = Vec::new();
    for group in 0..shape.groups() {
        for folder in folders(&subject.folder().join(format!("proxies/{group:04}")))? {
            let read = |name: &str| fs_err::read_to_string(folder.join(name));
            let key = Secret::new(read("proxy.key")?);
            let request = proxy_csr(&key)?;
            let identity = MachineIdentity { certificate: read("proxy.crt")?, key };
            calls.push(renew(subject, Machine { identity, request, roots: read("ca.crt")? })?);
        }
    }
    Ok(calls)
}

/// Begins the calls at even intervals over `time`, and counts those that are done. Returns the time of the slowest.
async fn run_evenly<T: Send + 'static>(
    calls: Vec<Call<T>>,
    time: Duration,
    done: Arc<AtomicU32>,
) -> anyhow::Result<Duration> {
    let interval = time / u32::try_from(calls.len().max(1))?;
    let (begin, mut running) = (Instant::now(), JoinSet::new());
    for (number, call) in (0_u32..).zip(calls) {
        sleep_until(begin + interval * number).await;
        let done = Arc::clone(&done);
        running.spawn(async move {
            let begin = Instant::now();
            call.await?;
            done.fetch_add(1, Relaxed);
            anyhow::Ok(begin.elapsed())
        });
    }
    let mut slowest = Duration::ZERO;
    while let Some(result) = running.join_next().await {
        slowest = slowest.max(result??);
    }
    Ok(slowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_a_renewal_has_no_idle_part() {
        let (cpu, time) = (Duration::from_secs(3), Duration::from_secs(100));
        let counted = Counted { cpu, time, renewals: 500 };
        assert!((counted.cpu_each(0.01) - 4000.0).abs() < 1e-6);
        assert!(counted.cpu_each(0.5).abs() < f64::EPSILON);
    }
}
