//! Who does what in the bookstore, all the time, and who asks the control plane what is in force.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::facts::{Facts, Habit};
use crate::applications::outcome_of;
use crate::control_plane::{PolicyView, readiness};
use crate::http_client::{Answer, HttpClient, RequestError};
use crate::ledger::Ledger;
use crate::sidecars::{BUYER, FIRST, SECOND, STORE_PORT, THIEF};
use crate::stage::{OpenStore, Stage};
use crate::tally::{Outcome, Shares, Tally};

/// Everybody who does something. They stop when this is dropped.
#[derive(Debug)]
pub(super) struct Actors {
    rows: Vec<(Habit, Arc<Tally>)>,
    shares: Arc<Shares>,
    heard: Arc<Mutex<Heard>>,
    _tasks: JoinSet<()>,
}

/// What the control plane said last, and when.
#[derive(Debug)]
struct Heard {
    policy: PolicyView,
    at: Instant,
}

impl Actors {
    pub(super) fn start(stage: &Stage) -> Self {
        let shares = Arc::<Shares>::default();
        let nothing = Heard { policy: PolicyView::default(), at: Instant::now() };
        let heard = Arc::new(Mutex::new(nothing));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_policy(stage.admin(), Arc::clone(&heard)));

        let tallies: [Arc<Tally>; 4] = Default::default();
        let [bought, looked, stolen, broken_in] = tallies;
        let buyer = BUYER.socket(&stage.network, STORE_PORT);
        tasks.spawn(buy(buyer, Arc::clone(&bought), Arc::clone(&shares)));
        let thief = THIEF.socket(&stage.network, STORE_PORT);
        tasks.spawn(call(thief, "/", Arc::clone(&looked)));
        tasks.spawn(call(thief, "/books/1", Arc::clone(&stolen)));
        tasks.spawn(break_in(stage.warehouse_of(&THIEF), Arc::clone(&broken_in)));
        let habit = |from, to, request| Habit { from, to, request };
        let recorded = |open: &OpenStore| {
            // What went wrong before all was up is of no interest.
            open.records.tally().forget();
            Arc::clone(open.records.tally())
        };
        let rows = vec![
            (habit("bookbuyer", "bookstore", "GET /books/N"), bought),
            (habit("bookthief", "bookstore", "GET /"), looked),
            (habit("bookthief", "bookstore", "GET /books/1"), stolen),
            (habit("bookthief", "bookwarehouse", "TCP connect"), broken_in),
            (habit(FIRST.name, "bookwarehouse", "TCP sale"), recorded(&stage.first)),
            (habit(SECOND.name, "bookwarehouse", "TCP sale"), recorded(&stage.second)),
        ];
        Self { rows, shares, heard, _tasks: tasks }
    }

    pub(super) fn facts(&self) -> Facts {
        let heard = self.heard.lock();
        let silent = heard.at.elapsed();
        Facts {
            rows: self.rows.iter().map(|(habit, tally)| (*habit, tally.count())).collect(),
            second: self.shares.second(),
            policy: heard.policy.clone(),
            silent: (silent > SILENT_AFTER).then_some(silent.as_secs()),
        }
    }
}

/// Asks what is in force, and keeps the last answer.
async fn watch_policy(admin: SocketAddr, heard: Arc<Mutex<Heard>>) {
    let mut pace = pace(POLICY_PACE);
    loop {
        pace.tick().await;
        if let Ok(found) = readiness(admin).await {
            *heard.lock() = Heard { policy: found.policy, at: Instant::now() };
        }
    }
}

async fn buy(address: SocketAddr, tally: Arc<Tally>, shares: Arc<Shares>) {
    let mut pace = pace(BUYER_PACE);
    let mut client = HttpClient::new(address);
    for number in 1_u64.. {
        pace.tick().await;
        let answer = client.get(&format!("/books/{number}")).await;
        let application = answer.as_ref().ok().and_then(|answer| answer.application.as_deref());
        if let Some(application) = application {
            shares.record(application == SECOND.name);
        }
        tally.record(outcome(&answer));
    }
}

async fn call(address: SocketAddr, path: &'static str, tally: Arc<Tally>) {
    let mut pace = pace(THIEF_PACE);
    let mut client = HttpClient::new(address);
    loop {
        pace.tick().await;
        tally.record(outcome(&client.get(path).await));
    }
}

async fn break_in(address: SocketAddr, tally: Arc<Tally>) {
    let mut pace = pace(BREAK_IN_PACE);
    loop {
        pace.tick().await;
        tally.record(match Ledger::open(address).await {
            Ok(_) => Outcome::Recorded,
            Err(error) => outcome_of(&error),
        });
    }
}

fn outcome(answer: &Result<Answer, RequestError>) -> Outcome {
    match answer {
        Ok(answer) => Outcome::Status(answer.status),
        Err(error) if error.is_refused() => Outcome::Refused,
        Err(_) => Outcome::Failed,
    }
}

/// A pace that is not made up for: what is late stays late.
fn pace(period: Duration) -> Interval {
    let mut pace = interval(period);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// 50 a second.
const BUYER_PACE: Duration = Duration::from_millis(20);
/// 5 a second.
const THIEF_PACE: Duration = Duration::from_millis(200);
/// Often enough that a change shows within a second.
const BREAK_IN_PACE: Duration = Duration::from_millis(700);
const POLICY_PACE: Duration = Duration::from_millis(100);
/// What a busy machine may take for an answer.
const SILENT_AFTER: Duration = Duration::from_secs(2);
