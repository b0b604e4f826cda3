//! One blocking query: asks again and again, and returns when there may be something new.
//!
//! It knows indexes, waits and faults, and nothing of what is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::agent_selector::AgentSelector;
use super::client::{Clients, Lane, Request};
use super::error::{ConsulError, RequestError};
use super::index::{Index, Step};
use super::options::ConsulOptions;
use super::preflight::{self, Rights};
use super::turns::Turns;
use super::well::{Well, Wellness};
use crate::backoff::Backoff;

/// How much longer than the agent may wait its answer is waited for. (The agent itself adds up to a
/// sixteenth of the wait, lest all answers come together.)
const SLACK: Duration = Duration::from_secs(5);
/// How long there is between two attempts after a fault that is the query's own.
const FAULTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long there is between two questions when answers come that say nothing new: Consul wakes queries also
/// for changes of others.
const CHURN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1500));
/// After so many faults in a row an agent is left, although it answers the warden: unless it answers other
/// queries well, or the question is at fault.
const PATIENCE: u32 = 3;

/// What all queries share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Arc<ConsulOptions>,
    pub(super) clients: Arc<Clients>,
    pub(super) turns: Turns,
    pub(super) warden: AgentSelector,
    pub(super) wellness: Wellness,
}

/// A query that goes on.
#[derive(Debug)]
pub(super) struct Blocking {
    shared: Arc<Shared>,
    warden: AgentSelector,
    lane: Lane,
    path: Vec<String>,
    parameters: Vec<(&'static str, String)>,
    /// Whether the warden tries the token where this asks: what it may read elsewhere is not known.
    is_tried: bool,
    index: Index,
    faults: Backoff,
    churn: Backoff,
    /// How long nothing is asked now.
    pause: Duration,
    /// How many faults there were since the last answer.
    failures: u32,
    well: Well,
}

/// An answer that is recent, by a server that has a leader.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    pub(super) index: u64,
    /// Whether it knows less than the answer before: the agent is behind, or has lost its memory.
    pub(super) is_backward: bool,
    pub(super) scope: Scope,
    /// Whether it came before the wait was over.
    is_early: bool,
}

/// What the agent has looked at for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All: what it does not name is not there.
    All,
    /// What the token may read: that there is nothing may be for want of rights.
    Some,
    /// It says that something was left out for want of rights.
    Filtered,
}

impl Blocking {
    pub(super) fn new(
        shared: &Arc<Shared>,
        path: &[&str],
        parameters: Vec<(&'static str, String)>,
    ) -> Result<Self, ConsulError> {
        let is_tried = preflight::is_tried(&shared.options, &parameters);
        Ok(Self {
            shared: Arc::clone(shared),
            warden: shared.warden.clone(),
            lane: shared.clients.lane()?,
            path: path.iter().map(|&part| part.to_owned()).collect(),
            parameters,
            is_tried,
            index: Index::default(),
            faults: Backoff::new(FAULTS.0, FAULTS.1),
            churn: Backoff::new(CHURN.0, CHURN.1),
            pause: Duration::ZERO,
            failures: 0,
            well: shared.wellness.one(),
        })
    }

    /// Waits for the next answer, or for a fault of this query alone. What concerns all queries is not told
    /// here: then it waits until the warden has somebody to ask.
    pub(super) async fn next(&mut self) -> Result<Answer, RequestError> {
        loop {
            sleep(std::mem::take(&mut self.pause)).await;
            let ground = self.warden.ground().await;
            let shared = Arc::clone(&self.shared);
            let mut turn = shared.turns.take().await;
            let wait = turn.wait;
            let path: Vec<_> = self.path.iter().map(String::as_str).collect();
            let index = self.index.next().map(|index| index.to_string());
            let millis = format!("{}ms", wait.as_millis());
            let mut parameters = vec![("stale", "")];
            parameters.extend(self.parameters.iter().map(|(name, value)| (*name, value.as_str())));
            if let Some(index) = &index {
                parameters.extend([("index", index.as_str()), ("wait", millis.as_str())]);
            }
            let request = Request {
                agent: &ground.agent,
                token: ground.token.as_ref(),
                path: &path,
                parameters,
                patience: wait + wait / 16 + SLACK,
            };
            let begun = Instant::now();
            let answer = tokio::select! {
                biased;
                () = self.warden.lost(&ground) => {
                    self.well.set(false);
                    self.index.restart();
                    continue;
                }
                () = turn.is_revised() => continue,
                answer = self.lane.get(request) => answer,
            };
            drop(turn);
            match answer.and_then(|answer| answer.recent(shared.options.max_staleness)) {
                Ok(response) => {
                    let Some(rights) = self.warden.rights(&ground) else {
                        self.index.restart();
                        continue;
                    };
                    let scope = match rights {
                        _ if response.is_filtered => Scope::Filtered,
                        Rights::All if self.is_tried => Scope::All,
                        Rights::All | Rights::Some => Scope::Some,
                    };
                    self.well.set(true);
                    self.failures = 0;
                    self.faults.reset();
                    return Ok(Answer {
                        is_backward: self.index.take(response.index) == Step::Backward,
                        scope,
                        is_early: begun.elapsed() < wait / 2,
                        index: response.index,
                        body: response.body,
                    });
                }
                Err(error) => {
                    self.index.restart();
                    self.well.set(false);
                    self.failures += 1;
                    let may_be_left = error.is_of_agent() && !shared.wellness.is_any();
                    if may_be_left && self.failures >= PATIENCE {
                        self.failures = 0;
                        self.warden.leave(&ground).await;
                    } else {
                        self.warden.look().await;
                    }
                    if self.warden.rights(&ground).is_some() {
                        self.pause = self.faults.step();
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The last answer said something new.
    pub(super) fn was_new(&mut self) {
        self.churn.reset();
    }

    /// The last answer said nothing new.
    pub(super) fn was_old(&mut self, answer: &Answer) {
        if answer.is_early {
            self.pause = self.churn.step();
        } else {
            self.churn.reset();
        }
    }

    /// The last answer cannot be read; it is asked for again.
    pub(super) fn was_unreadable(&mut self) {
        self.index.restart();
        self.pause = self.faults.step();
    }

    /// The last answer is hard to believe: the token is looked at anew, and then it is asked for again.
    pub(super) async fn doubt(&mut self) {
        self.index.restart();
        self.warden.look().await;
    }
}
