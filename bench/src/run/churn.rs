//! Many endpoint changes a second: how long each takes to all proxies, and what they cost. The control plane may combine
//! changes, so the lag of a change ends with the ACK of the first content that includes it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::address::Address;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use prost::Message;
use tokio::time::{Instant, sleep, sleep_until};

use super::RunOptions;
use crate::fleet::Fleet;
use crate::measure::percentile;
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, cpu, cpu_since, rss};
use crate::report::{Row, count, microseconds, milliseconds};
use crate::shape::{CHANGING, STEPS, Shape};
use crate::totals::AckedContent;

/// Changes at even intervals.
#[derive(Debug, Clone, Copy)]
pub struct ChangeRate {
    /// The number of changes per second.
    pub per_second: u32,
    /// How long they go on.
    pub time: Duration,
}

pub(super) async fn measure(options: &RunOptions, shape: Shape) -> anyhow::Result<Vec<Row>> {
    let connections = shape.proxies + crate::fleet::VERIFIED_AT_ONCE;
    allow_connections(u64::try_from(connections)?)?;
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
    let identities = subject.enroll(shape).await?;
    let fleet = Fleet::with_bodies(identities, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(patience).await?;
    fleet.quiet(SETTLED, patience).await?;
    let before = rss(server)?;

    let (watch, counts, cpu_before) = (fleet.watch(CHANGING), fleet.counts(), cpu(server)?);
    let (begin, rate) = (Instant::now(), options.churn);
    let mut writes = Vec::new();
    while begin.elapsed() < rate.time {
        let due = Duration::from_secs(1) / rate.per_second * u32::try_from(writes.len())?;
        sleep_until(begin + due).await;
        writes.push(subject.change_step(writes.len())?);
    }
    let time = begin.elapsed();
    let last = writes.len().checked_sub(1).context("no change was made")?;
    let deadline = Instant::now() + patience;
    while !has_all(&fleet, last)? {
        ensure!(Instant::now() < deadline, "clients do not receive the last change");
        sleep(Duration::from_millis(10)).await;
    }
    let (used, received) = (cpu_since(server, cpu_before)?, fleet.counts() - counts);
    fleet.quiet(SETTLED, patience).await?;
    let after = rss(server)?;
    let acks = watch.acks();
    let lags = lags(&writes, &acks, &steps(&fleet, &acks)?);
    let verified = fleet.verify(subject.xds(), patience).await?;

    let n = count(u64::try_from(shape.proxies)?);
    let changes = count(u64::try_from(writes.len())?);
    ensure!(lags.len() == writes.len() * shape.proxies, "{} lags were measured", lags.len());
    let share = used.as_secs_f64() / time.as_secs_f64() * 100.0;
    let each = microseconds(used) / changes / n;
    let lag = |work, percent| Row::new(work, "ms", milliseconds(percentile(&lags, percent)));
    let memory = Row::new("churn: memory after, beside before", "MB", count(after) / 1e6);
    Ok(vec![
        Row::new("churn: changes per second", "/s", changes / time.as_secs_f64()),
        lag("churn: from the write to each ACK, median", 50),
        lag("churn: from the write to each ACK, 99th percentile", 99),
        lag("churn: from the write to each ACK, the slowest", 100),
        Row::new("churn: server's CPU", "% of a core", share),
        Row::new("churn: server's CPU per change and proxy", "us", each),
        Row::new(
            "churn: responses per change and proxy",
            "each",
            count(received.responses) / changes / n,
        ),
        memory.beside(count(before) / 1e6).at_most(MEMORY_GOAL),
        Row::new(
            "proxies with exactly the server's set after churn",
            "proxies",
            count(verified as u64),
        ),
    ])
}

/// Whether all clients have the content of this change.
fn has_all(fleet: &Fleet, change: usize) -> anyhow::Result<bool> {
    for client in 0..fleet.len() {
        let holdings = fleet.holdings(client).unwrap_or_default();
        let known = holdings.get(&ResourceType::Endpoint).and_then(|all| all.get(CHANGING));
        let body = known.and_then(|known| known.body.as_deref()).context("no content")?;
        if step(body)? != Some(change % STEPS) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The step of each ACKed content that has one.
fn steps(fleet: &Fleet, acks: &[AckedContent]) -> anyhow::Result<HashMap<u128, usize>> {
    // The cluster has the same name as its endpoints.
    let acked: HashSet<_> = acks.iter().map(|ack| ack.content).collect();
    let mut steps = HashMap::new();
    for known in fleet.contents(CHANGING) {
        if acked.contains(&known.content)
            && let Some(step) = step(known.body.as_deref().unwrap_or_default())?
        {
            steps.insert(known.content, step);
        }
    }
    Ok(steps)
}

/// The step whose endpoints this assignment has.
fn step(body: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut addresses = Vec::new();
    for locality in ClusterLoadAssignment::decode(body)?.endpoints {
        for one in locality.lb_endpoints {
            let Some(HostIdentifier::Endpoint(endpoint)) = one.host_identifier else { continue };
            let address = endpoint.address.and_then(|address| address.address);
            if let Some(Address::SocketAddress(socket)) = address {
                addresses.push(socket.address.parse()?);
            }
        }
    }
    Ok(Shape::step_of(&addresses))
}

/// The time from each change until each client has ACKed a content that includes it. `steps` maps contents to changes;
/// they repeat, so an ACK means the last such change before the client received it.
fn lags(writes: &[Instant], acks: &[AckedContent], steps: &HashMap<u128, usize>) -> Vec<Duration> {
    let mut next: HashMap<usize, usize> = HashMap::new();
    let mut lags = Vec::new();
    for ack in acks {
        let Some(step) = steps.get(&ack.content) else { continue };
        let written = writes.partition_point(|write| *write <= ack.received);
        let candidates = (0..written).rev().take(STEPS);
        let Some(change) = candidates.into_iter().find(|change| change % STEPS == *step) else {
            continue;
        };
        let first = next.entry(ack.client).or_default();
        let included = writes.get(*first..=change).unwrap_or_default();
        lags.extend(included.iter().map(|write| ack.acked - *write));
        *first = (*first).max(change + 1);
    }
    lags
}

/// The limit of the memory after all changes, relative to that before.
const MEMORY_GOAL: f64 = 1.1;
const SETTLED: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_of_a_combined_change_ends_with_the_next_content() {
        let begin = Instant::now();
        let at = |ms: usize| begin + Duration::from_millis(u64::try_from(ms).unwrap());
        let writes: Vec<_> = (0..STEPS + 3).map(|change| at(change * 20)).collect();
        let steps: HashMap<_, _> = (0..STEPS).map(|step| (step as u128 + 1000, step)).collect();
        let ack = |client: usize, change: usize, received: usize, acked: usize| AckedContent {
            client,
            content: (change % STEPS) as u128 + 1000,
            received: at(received),
            acked: at(acked),
        };
        // Client 0 receives the first three changes at once, and an unknown content; client 1 the first only.
        let unknown = AckedContent { content: 1, ..ack(0, 0, 1, 1) };
        let lags_of = |acks: &[AckedContent]| {
            lags(&writes, acks, &steps).iter().map(Duration::as_millis).collect::<Vec<_>>()
        };
        assert_eq!(lags_of(&[unknown, ack(1, 0, 2, 5), ack(0, 2, 45, 50)]), [5, 50, 30, 10]);
        // The same content again is the later change.
        let again = STEPS + 1;
        let lags = lags_of(&[ack(0, 1, 21, 22), ack(0, again, again * 20 + 3, again * 20 + 4)]);
        assert_eq!((lags.len(), lags.last()), (again + 1, Some(&4)));
    }
}
