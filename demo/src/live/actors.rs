//! The clients of the live demo: buyer, thief, stores, and a poller of the control plane.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::facts::{Facts, RepeatedCall};
use crate::applications::outcome_of;
use crate::control_plane::{PolicyView, readiness};
use crate::http_client::{DemoResponse, HttpClient, RequestError};
use crate::ledger::Ledger;
use crate::sidecars::{BUYER, FIRST, SECOND, STORE_PORT, THIEF};
use crate::stage::{OpenStore, Stage};
use crate::tally::{Outcome, Shares, Tally};

/// All running clients. Dropping it stops them.
#[derive(Debug)]
pub(super) struct Actors {
    rows: Vec<(RepeatedCall, Arc<Tally>)>,
    shares: Arc<Shares>,
    last_readiness: Arc<Mutex<LastReadiness>>,
    _tasks: JoinSet<()>,
}

/// The last answer of the control plane, and its time.
#[derive(Debug)]
struct LastReadiness {
    policy: PolicyView,
    at: Instant,
}

impl Actors {
    pub(super) fn start(stage: &Stage) -> Self {
        let shares = Arc::<Shares>::default();
        let nothing = LastReadiness { policy: PolicyView::default(), at: Instant::now() };
        let last_readiness = Arc::new(Mutex::new(nothing));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_policy(stage.admin(), Arc::clone(&last_readiness)));

        let tallies: [Arc<Tally>; 4] = Default::default();
        let [bought, looked, stolen, broken_in] = tallies;
        let buyer = BUYER.socket(&stage.network, STORE_PORT);
        tasks.spawn(buy(buyer, Arc::clone(&bought), Arc::clone(&shares)));
        let thief = THIEF.socket(&stage.network, STORE_PORT);
        tasks.spawn(call(thief, "/", Arc::clone(&looked)));
        tasks.spawn(call(thief, "/books/1", Arc::clone(&stolen)));
        tasks.spawn(break_in(stage.warehouse_of(&THIEF), Arc::clone(&broken_in)));
        let repeated = |from, to, request| RepeatedCall { from, to, request };
        let recorded = |open: &OpenStore| {
            // Failures during the start do not count.
            open.records.tally().reset();
            Arc::clone(open.records.tally())
        };
        let rows = vec![
            (repeated("bookbuyer", "bookstore", "GET /books/N"), bought),
            (repeated("bookthief", "bookstore", "GET /"), looked),
            (repeated("bookthief", "bookstore", "GET /books/1"), stolen),
            (repeated("bookthief", "bookwarehouse", "TCP connect"), broken_in),
            (repeated(FIRST.name, "bookwarehouse", "TCP sale"), recorded(&stage.first)),
            (repeated(SECOND.name, "bookwarehouse", "TCP sale"), recorded(&stage.second)),
        ];
        Self { rows, shares, last_readiness, _tasks: tasks }
    }

    /// The current facts.
    pub(super) fn facts(&self) -> Facts {
        let last_readiness = self.last_readiness.lock();
        let silent = last_readiness.at.elapsed();
        Facts {
            rows: self.rows.iter().map(|(call, tally)| (*call, tally.count())).collect(),
            second: self.shares.second(),
            policy: last_readiness.policy.clone(),
            silent: (silent > SILENT_AFTER).then_some(silent.as_secs()),
        }
    }
}

/// Polls the active policy, and keeps the last answer.
async fn watch_policy(admin: SocketAddr, last_readiness: Arc<Mutex<LastReadiness>>) {
    let mut ticks = ticks(POLICY_INTERVAL);
    loop {
        ticks.tick().await;
        if let Ok(found) = readiness(admin).await {
            *last_readiness.lock() = LastReadiness { policy: found.policy, at: Instant::now() };
        }
    }
}

async fn buy(address: SocketAddr, tally: Arc<Tally>, shares: Arc<Shares>) {
    let mut ticks = ticks(BUYER_INTERVAL);
    let mut client = HttpClient::new(address);
    for number in 1_u64.. {
        ticks.tick().await;
        let answer = client.get(&format!("/books/{number}")).await;
        let application = answer.as_ref().ok().and_then(|answer| answer.application.as_deref());
        if let Some(application) = application {
            shares.record(application == SECOND.name);
        }
        tally.record(outcome(&answer));
    }
}

async fn call(address: SocketAddr, path: &'static str, tally: Arc<Tally>) {
    let mut ticks = ticks(THIEF_INTERVAL);
    let mut client = HttpClient::new(address);
    loop {
        ticks.tick().await;
        tally.record(outcome(&client.get(path).await));
    }
}

async fn break_in(address: SocketAddr, tally: Arc<Tally>) {
    let mut ticks = ticks(BREAK_IN_INTERVAL);
    loop {
        ticks.tick().await;
        tally.record(match Ledger::open(address).await {
            Ok(_) => Outcome::Recorded,
            Err(error) => outcome_of(&error),
        });
    }
}

fn outcome(answer: &Result<DemoResponse, RequestError>) -> Outcome {
    match answer {
        Ok(answer) => Outcome::Status(answer.status),
        Err(error) if error.is_connection_refused() => Outcome::Refused,
        Err(_) => Outcome::Failed,
    }
}

/// An interval that does not make up for late ticks.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// 50 requests per second.
const BUYER_INTERVAL: Duration = Duration::from_millis(20);
/// 5 requests per second.
const THIEF_INTERVAL: Duration = Duration::from_millis(200);
/// Often enough that a change shows within a second.
const BREAK_IN_INTERVAL: Duration = Duration::from_millis(700);
const POLICY_INTERVAL: Duration = Duration::from_millis(100);
/// The time that a busy machine may need for an answer.
const SILENT_AFTER: Duration = Duration::from_secs(2);
