//! Traffic that goes on while something happens to the mesh.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::thief::{BOOK, expect};
use crate::error::Problem;
use crate::http_client::HttpConnection;

/// Running load of the buyer, over several kept connections. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Load {
    begin: Instant,
    report: Arc<Mutex<LoadReport>>,
    workers: JoinSet<()>,
}

/// What has become of it.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadReport {
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// The first failure, in words.
    pub(super) first_failure: Option<String>,
    /// Which machines answered.
    pub(super) machines: BTreeMap<String, Answers>,
}

/// The answers of one machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    pub(super) count: u64,
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl Load {
    pub(super) fn start(address: SocketAddr) -> Self {
        let report = Arc::<Mutex<LoadReport>>::default();
        let mut workers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            workers.spawn(work(address, Arc::clone(&report)));
        }
        Self { begin: Instant::now(), report, workers }
    }

    pub(super) fn report(&self) -> LoadReport {
        self.report.lock().clone()
    }

    /// Ends it. What is on its way does not count.
    pub(super) fn finish(mut self) -> (LoadReport, Duration) {
        let result = (self.report(), self.begin.elapsed());
        self.workers.abort_all();
        result
    }
}

impl LoadReport {
    /// A problem, if a request has failed.
    pub(super) fn unharmed(&self) -> Result<(), Problem> {
        match &self.first_failure {
            None => Ok(()),
            Some(first) => Err(Problem(format!(
                "{} of {} requests failed, the first: {first}",
                self.failed, self.requests
            ))),
        }
    }

    /// How many answers a machine gave.
    pub(super) fn answers_of(&self, machine: &str) -> u64 {
        self.machines.get(machine).map_or(0, |answers| answers.count)
    }

    fn answered(&mut self, machine: Option<String>) {
        let now = Instant::now();
        let none = Answers { count: 0, first: now, last: now };
        let answers = self.machines.entry(machine.unwrap_or_default()).or_insert(none);
        answers.count += 1;
        answers.last = now;
    }

    fn failed(&mut self, problem: Problem) {
        self.failed += 1;
        self.first_failure.get_or_insert(problem.0);
    }
}

async fn work(address: SocketAddr, report: Arc<Mutex<LoadReport>>) {
    let mut pace = interval(PACE);
    // What was late is made up for, so that a pause of the machine does not lower the rate.
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut kept = None;
    loop {
        pace.tick().await;
        let result = request(address, &mut kept).await;
        let mut report = report.lock();
        report.requests += 1;
        match result {
            Ok(machine) => report.answered(machine),
            Err(problem) => report.failed(problem),
        }
    }
}

/// One request; returns the machine that answered.
async fn request(
    address: SocketAddr,
    kept: &mut Option<HttpConnection>,
) -> Result<Option<String>, Problem> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => HttpConnection::open(address).await?,
    };
    let answer = connection.get(BOOK).await?;
    expect(&answer, 200)?;
    if !answer.closes {
        *kept = Some(connection);
    }
    Ok(answer.machine)
}

const CONNECTIONS: usize = 6;
/// Of each connection: 300 requests a second together.
const PACE: Duration = Duration::from_millis(20);
