//! One blocking query: it repeats a request, and returns each answer that may be new.
//!
//! It owns the index, the waits and the retries. It never reads the body of an answer.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use tokio::time::{Instant, sleep};

use super::agent_selector::AgentSelector;
use super::client::{Clients, Lane, Request};
use super::error::{ConsulError, RequestError};
use super::index::{Index, Step};
use super::options::ConsulOptions;
use super::preflight::{self, Rights};
use super::query_health::{HealthyQueries, QueryHealth};
use super::query_slots::QuerySlots;

/// The time beyond the agent's wait for which the query waits. (The agent itself adds up to a
/// sixteenth of the wait, so that answers do not come together.)
const SLACK: Duration = Duration::from_secs(5);
/// The wait between two attempts after a failure of this query alone.
const FAULTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The wait between two requests while answers bring nothing new: Consul also wakes queries for
/// changes of other services.
const CHURN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1500));
/// After so many failures in a row the query leaves its agent, even if that passes checks; not if
/// other queries succeed there, or the query itself is the cause.
const PATIENCE: u32 = 3;

/// The state that all queries share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Arc<ConsulOptions>,
    pub(super) clients: Arc<Clients>,
    pub(super) slots: QuerySlots,
    pub(super) selector: AgentSelector,
    pub(super) healthy_queries: HealthyQueries,
}

/// A repeated query.
#[derive(Debug)]
pub(super) struct Blocking {
    shared: Arc<Shared>,
    selector: AgentSelector,
    lane: Lane,
    path: Vec<String>,
    parameters: Vec<(&'static str, String)>,
    /// Whether the selector checks the token where this query reads; elsewhere its rights are
    /// unknown.
    is_tried: bool,
    index: Index,
    faults: Backoff,
    churn: Backoff,
    /// The wait before the next request.
    pause: Duration,
    /// The number of failures since the last answer.
    failures: u32,
    health: QueryHealth,
}

/// A recent answer of a server that has a leader.
#[derive(Debug)]
pub(super) struct BlockingQueryResponse {
    pub(super) body: Vec<u8>,
    pub(super) index: u64,
    /// Whether the index went backward: the agent is stale, or has lost its memory.
    pub(super) is_backward: bool,
    pub(super) scope: Scope,
    /// Whether it came before the wait was over.
    is_early: bool,
}

/// How complete an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Complete: an instance that it lacks does not exist.
    All,
    /// Limited to the rights of the token: an empty answer may be due to missing rights.
    Some,
    /// Consul reports that missing rights removed a part.
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
            selector: shared.selector.clone(),
            lane: shared.clients.lane()?,
            path: path.iter().map(|&part| part.to_owned()).collect(),
            parameters,
            is_tried,
            index: Index::default(),
            faults: Backoff::new(FAULTS.0, FAULTS.1),
            churn: Backoff::new(CHURN.0, CHURN.1),
            pause: Duration::ZERO,
            failures: 0,
            health: shared.healthy_queries.one(),
        })
    }

    /// Waits for the next answer, or for a failure of this query alone. For failures of all queries
    /// it waits until the selector has a usable agent.
    pub(super) async fn next(&mut self) -> Result<BlockingQueryResponse, RequestError> {
        loop {
            sleep(std::mem::take(&mut self.pause)).await;
            let active = self.selector.active().await;
            let shared = Arc::clone(&self.shared);
            let mut slot = shared.slots.take().await;
            let wait = slot.wait;
            let path: Vec<_> = self.path.iter().map(String::as_str).collect();
            let index = self.index.next().map(|index| index.to_string());
            let millis = format!("{}ms", wait.as_millis());
            let mut parameters = vec![("stale", "")];
            parameters.extend(self.parameters.iter().map(|(name, value)| (*name, value.as_str())));
            if let Some(index) = &index {
                parameters.extend([("index", index.as_str()), ("wait", millis.as_str())]);
            }
            let request = Request {
                agent: &active.agent,
                token: active.token.as_ref(),
                path: &path,
                parameters,
                patience: wait + wait / 16 + SLACK,
            };
            let begun = Instant::now();
            let answer = tokio::select! {
                biased;
                () = self.selector.lost(&active) => {
                    self.health.set(false);
                    self.index.restart();
                    continue;
                }
                () = slot.is_revised() => continue,
                answer = self.lane.get(request) => answer,
            };
            drop(slot);
            match answer.and_then(|answer| answer.recent(shared.options.max_staleness)) {
                Ok(response) => {
                    let Some(rights) = self.selector.rights(&active) else {
                        self.index.restart();
                        continue;
                    };
                    let scope = match rights {
                        _ if response.is_filtered => Scope::Filtered,
                        Rights::All if self.is_tried => Scope::All,
                        Rights::All | Rights::Some => Scope::Some,
                    };
                    self.health.set(true);
                    self.failures = 0;
                    self.faults.reset();
                    return Ok(BlockingQueryResponse {
                        is_backward: self.index.take(response.index) == Step::Backward,
                        scope,
                        is_early: begun.elapsed() < wait / 2,
                        index: response.index,
                        body: response.body,
                    });
                }
                Err(error) => {
                    self.index.restart();
                    self.health.set(false);
                    self.failures += 1;
                    let may_be_left = error.is_agent_failure() && !shared.healthy_queries.is_any();
                    if may_be_left && self.failures >= PATIENCE {
                        self.failures = 0;
                        self.selector.leave(&active).await;
                    } else {
                        self.selector.check().await;
                    }
                    if self.selector.rights(&active).is_some() {
                        self.pause = self.faults.step();
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Reports that the last answer brought news.
    pub(super) fn was_new(&mut self) {
        self.churn.reset();
    }

    /// Reports that the last answer brought nothing new.
    pub(super) fn was_old(&mut self, answer: &BlockingQueryResponse) {
        if answer.is_early {
            self.pause = self.churn.step();
        } else {
            self.churn.reset();
        }
    }

    /// Reports that the last answer was unreadable, and repeats the request.
    pub(super) fn was_unreadable(&mut self) {
        self.index.restart();
        self.pause = self.faults.step();
    }

    /// Checks the token and repeats the request, because the last answer is suspicious.
    pub(super) async fn recheck(&mut self) {
        self.index.restart();
        self.selector.check().await;
    }
}
