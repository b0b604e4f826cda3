//! Continuous traffic during a change of the mesh.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::thief::{BOOK, expect};
use crate::error::Problem;
use crate::http_client::{HttpConnection, Version};
use crate::ledger::Ledger;

/// The running load of the buyer over several kept connections, and of a store over one connection to the warehouse.
/// Dropping it ends the load.
#[derive(Debug)]
pub(super) struct Load {
    begin: Instant,
    report: Arc<Mutex<LoadReport>>,
    workers: JoinSet<()>,
}

/// The results of the load so far.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadReport {
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// The first failure, in words.
    pub(super) first_failure: Option<String>,
    /// The number of exchanges between the store and the warehouse, over one connection.
    pub(super) exchanges: u64,
    /// The error that ended that connection, if any.
    pub(super) ended: Option<String>,
    /// The answers by machine.
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
    /// Starts the load on the buyer's local address of the store, and on a store's connection to the warehouse.
    pub(super) fn start(address: SocketAddr, ledger: Ledger) -> Self {
        let report = Arc::<Mutex<LoadReport>>::default();
        let mut workers = JoinSet::new();
        for version in [Version::One, Version::Two].repeat(CONNECTIONS_OF_EACH) {
            workers.spawn(work(version, address, Arc::clone(&report)));
        }
        workers.spawn(record(ledger, Arc::clone(&report)));
        Self { begin: Instant::now(), report, workers }
    }

    pub(super) fn report(&self) -> LoadReport {
        self.report.lock().clone()
    }

    /// Ends the load. Pending requests do not count.
    pub(super) fn finish(mut self) -> (LoadReport, Duration) {
        let result = (self.report(), self.begin.elapsed());
        self.workers.abort_all();
        result
    }
}

impl LoadReport {
    /// Fails if a request has failed, or the connection to the warehouse has ended.
    pub(super) fn unharmed(&self) -> Result<(), Problem> {
        if let Some(first) = &self.first_failure {
            let (failed, requests) = (self.failed, self.requests);
            return Err(Problem(format!(
                "{failed} of {requests} requests failed, the first: {first}"
            )));
        }
        match &self.ended {
            None => Ok(()),
            Some(why) => Err(Problem(format!(
                "the store's connection to the warehouse ended after {} exchanges: {why}",
                self.exchanges
            ))),
        }
    }

    /// The number of answers of a machine.
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

async fn work(version: Version, address: SocketAddr, report: Arc<Mutex<LoadReport>>) {
    let mut ticks = interval(INTERVAL);
    // Late requests are made up for, so that a pause of the machine does not lower the rate.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut kept = None;
    loop {
        ticks.tick().await;
        let result = request(version, address, &mut kept).await;
        let mut report = report.lock();
        report.requests += 1;
        match result {
            Ok(machine) => report.answered(machine),
            Err(problem) => report.failed(problem),
        }
    }
}

/// Records sales over one connection until it breaks. It is not reopened.
async fn record(mut ledger: Ledger, report: Arc<Mutex<LoadReport>>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let result = ledger.record("load").await;
        let mut report = report.lock();
        match result {
            Ok(_) => report.exchanges += 1,
            Err(error) => {
                report.ended = Some(chain(&error));
                return;
            }
        }
    }
}

/// Sends one request, and returns the machine that answered.
async fn request(
    version: Version,
    address: SocketAddr,
    kept: &mut Option<HttpConnection>,
) -> Result<Option<String>, Problem> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => HttpConnection::open_for(version, address).await?,
    };
    let answer = connection.get(BOOK).await?;
    expect(&answer, 200)?;
    if !answer.closes {
        *kept = Some(connection);
    }
    Ok(answer.machine)
}

/// The connections per HTTP version.
const CONNECTIONS_OF_EACH: usize = 3;
/// The interval of each connection. All together send 300 requests per second.
const INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_request_or_ended_connection_fails_the_load_report() {
        let mut report = LoadReport { requests: 9, exchanges: 7, ..LoadReport::default() };
        report.unharmed().unwrap();
        report.ended = Some("connection broke".to_owned());
        let problem = "the store's connection to the warehouse ended after 7 exchanges: \
                       connection broke";
        assert_eq!(report.unharmed().unwrap_err().0, problem);
        report.failed(Problem("503".to_owned()));
        report.failed(Problem("504".to_owned()));
        let problem = "2 of 9 requests failed, the first: 503";
        assert_eq!(report.unharmed().unwrap_err().0, problem);
    }
}
