//! Operators' requests: the wait for a policy revision, a page of the list of proxies, and a scrape of metrics.

use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_admin::Client;
use ironmesh_api::{MAX_PROXY_PAGE, MAX_WAIT, ProxyQuery, WaitOutcome, WaitRequest};
use tokio::time::{Instant, sleep};

use super::RunOptions;
use crate::fleet::Fleet;
use crate::measure::{Scope, arrival, median};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, cpu, cpu_since};
use crate::report::{Row, milliseconds};
use crate::shape::{CHANGING, Shape};

/// The connected fleet.
pub(super) const SHAPE: Shape = Shape::new(1000, 100);
/// The number of enrolled proxies when the list is requested. Those beyond the fleet never connect.
const ENROLLED: usize = 10_000;
/// The number of proxies that one `proxy bootstrap` enrolls.
const BATCH: usize = 1000;
/// The service of the proxies that never connect. It is the last by name, and so are they: the first page has only
/// connected proxies, whose rows cost the most.
const LAST_SERVICE: &str = "service-0097";
/// The contents of the changing document that alternate: its revisions are known before they become active again.
const CONTENTS: [usize; 2] = [1, 2];
/// The number of samples of CPU time.
const SAMPLES: usize = 24;
/// The number of requests of each sample, because the system counts CPU time in steps of 10 ms.
const REQUESTS: u32 = 10;
/// The pause before a change, which is longer than the debounce.
const PAUSE: Duration = Duration::from_millis(300);
const WAIT_GOAL: f64 = 50.0;
const PAGE_GOAL: f64 = 100.0;
const SCRAPE_GOAL: f64 = 20.0;

pub(super) async fn measure(options: &RunOptions) -> anyhow::Result<Vec<Row>> {
    allow_connections(u64::try_from(SHAPE.proxies)?)?;
    let mut subject = MeasuredControlPlane::start(&options.ironmesh, SHAPE).await?;
    let measured = requests(options, &mut subject).await;
    measured.with_context(|| format!("the control plane's log ends with\n{}", subject.log_tail()))
}

async fn requests(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
) -> anyhow::Result<Vec<Row>> {
    let fleet = Fleet::new(subject.enroll(SHAPE).await?, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(options.patience).await?;
    fleet.quiet(PAUSE, options.patience).await?;
    let mut rows = wait_rows(&waits(options, subject, &fleet).await?).to_vec();
    enroll_more(subject).await?;
    fleet.quiet(PAUSE, options.patience).await?;
    rows.push(page_row(&pages(subject).await?));
    rows.push(scrape_row(&scrapes(subject).await?));
    Ok(rows)
}

/// Measures the time from the last ACK of a changed document until a wait for its revision is answered. All proxies
/// receive each change.
async fn waits(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
    fleet: &Fleet,
) -> anyhow::Result<Vec<Duration>> {
    let client = subject.admin();
    let (clients, patience) = (fleet.len(), options.patience);
    let scope = Scope { cluster: CHANGING, clients, among: clients, pause: PAUSE, patience };
    let mut revisions = Vec::new();
    for content in CONTENTS {
        let watch = fleet.watch(CHANGING);
        subject.change_to(content)?;
        arrival(&watch, scope).await?;
        revisions.push((content, wait(&client, None).await?.0));
        sleep(PAUSE).await;
    }
    let mut delays = Vec::new();
    for (content, revision) in revisions.iter().cycle().take(options.events) {
        let (client, revision) = (client.clone(), revision.clone());
        let waiting = tokio::spawn(async move { wait(&client, Some(revision)).await });
        // The request is at the control plane when the document changes.
        sleep(scope.pause).await;
        let watch = fleet.watch(CHANGING);
        subject.change_to(*content)?;
        let last_acked = arrival(&watch, scope).await?.last_acked;
        let (_, answered) = waiting.await??;
        let delay = answered.checked_duration_since(last_acked);
        delays.push(delay.context("the wait was answered before the last ACK")?);
    }
    Ok(delays)
}

/// Waits until a revision is synced; the active one if there is none. Returns the revision, and the time of the answer.
async fn wait(client: &Client, revision: Option<String>) -> anyhow::Result<(String, Instant)> {
    let timeout_ms = u64::try_from(MAX_WAIT.as_millis())?;
    let request =
        WaitRequest { revision, may_become_active: true, timeout_ms, ..WaitRequest::default() };
    let answer = client.policy_wait(&request).await?;
    let answered = Instant::now();
    ensure!(answer.outcome == WaitOutcome::Synced, "a wait ended without success: {answer:?}");
    Ok((answer.revision, answered))
}

/// Enrolls the proxies that never connect.
async fn enroll_more(subject: &MeasuredControlPlane) -> anyhow::Result<()> {
    for first in (SHAPE.proxies..ENROLLED).step_by(BATCH) {
        let (count, address) = (BATCH.to_string(), Shape::address(first).to_string());
        let arguments = ["--count", &count, "--address", &address, "--service", LAST_SERVICE];
        let out = subject.folder().join(format!("unconnected/{first}"));
        subject.bootstrap(&arguments, &out).await?;
    }
    Ok(())
}

/// Measures the control plane's CPU time for the first page of the list of proxies.
async fn pages(subject: &MeasuredControlPlane) -> anyhow::Result<Vec<Duration>> {
    let (client, server) = (subject.admin(), subject.id()?);
    let query = ProxyQuery { limit: Some(MAX_PROXY_PAGE), ..ProxyQuery::default() };
    let page = client.proxy_page(&query).await?;
    ensure!(page.matching == ENROLLED, "{} proxies are enrolled", page.matching);
    let connected = page.proxies.iter().filter(|proxy| proxy.streams > 0).count();
    ensure!(connected == MAX_PROXY_PAGE, "{connected} proxies of the first page are connected");
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let before = cpu(server)?;
        for _ in 0..REQUESTS {
            client.proxy_page(&query).await?;
        }
        times.push(cpu_since(server, before)? / REQUESTS);
    }
    Ok(times)
}

/// Measures the control plane's CPU time for a scrape of its metrics.
async fn scrapes(subject: &MeasuredControlPlane) -> anyhow::Result<Vec<Duration>> {
    let server = subject.id()?;
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let before = cpu(server)?;
        for _ in 0..REQUESTS {
            let enrolled = subject.metric("ironmesh_proxies_enrolled ").await?;
            ensure!(usize::try_from(enrolled)? == ENROLLED, "{enrolled} proxies are enrolled");
        }
        times.push(cpu_since(server, before)? / REQUESTS);
    }
    Ok(times)
}

fn wait_rows(delays: &[Duration]) -> [Row; 2] {
    let row = |work, delay| Row::new(work, "ms", milliseconds(delay)).itself_at_most(WAIT_GOAL);
    let slowest = delays.iter().max().copied().unwrap_or_default();
    [
        row("`policy wait`: from the last ACK to the answer, median", median(delays)),
        row("`policy wait`: from the last ACK to the answer, slowest", slowest),
    ]
}

fn page_row(times: &[Duration]) -> Row {
    let work = "first page of 10,000 in `GET /v1/proxies`: server's CPU, median";
    Row::new(work, "ms", milliseconds(median(times))).itself_at_most(PAGE_GOAL)
}

fn scrape_row(times: &[Duration]) -> Row {
    let work = "a scrape of `/metrics` with 10,000 enrolled proxies: server's CPU, median";
    Row::new(work, "ms", milliseconds(median(times))).itself_at_most(SCRAPE_GOAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Goal;

    #[test]
    fn rows_have_median_slowest_and_goals() {
        let wait = Some(Goal::Value(50.0));
        let times = [9, 60, 4, 8, 7].map(Duration::from_millis);
        let [middle, slowest] = wait_rows(&times);
        assert_eq!((middle.ours, middle.goal, middle.met), (8.0, wait, Some(true)));
        assert_eq!((slowest.ours, slowest.goal, slowest.met), (60.0, wait, Some(false)));
        let page = page_row(&times);
        assert_eq!((page.ours, page.goal, page.met), (8.0, Some(Goal::Value(100.0)), Some(true)));
        let scrape = scrape_row(&times);
        assert_eq!((scrape.ours, scrape.goal), (8.0, Some(Goal::Value(20.0))));
    }

    #[test]
    fn alternating_contents_differ_from_each_other_and_the_first() {
        let [one, other] = CONTENTS.map(|content| Shape::changing(9, content, 0));
        assert!(one != other && ![one, other].contains(&Shape::changing(9, 0, 0)));
    }

    #[test]
    fn unconnected_proxies_serve_the_last_service_by_name() {
        let first = |group| SHAPE.services_of(group).swap_remove(0);
        let last = (0..SHAPE.groups()).map(first).max();
        assert_eq!(last.as_deref(), Some(LAST_SERVICE));
        assert_eq!((ENROLLED - SHAPE.proxies) % BATCH, 0);
    }
}
