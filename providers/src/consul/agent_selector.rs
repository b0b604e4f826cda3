//! The agent selector: one task that decides which agent is queried, with which token, and whether
//! its answers are usable.
//!
//! Queries run on the [`ActiveAgent`]. A failing query requests a check by the selector: if an agent
//! dies, a thousand queries cause one check, and all continue on the next agent.
//!
//! It never reads an answer about a service.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use ironmesh_catalog::backoff::Backoff;
use reqwest::Url;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::{Clients, Lane};
use super::error::RequestError;
use super::options::ConsulOptions;
use super::preflight::{Objection, Preflight, Rights};
use super::token::TokenFile;
use crate::http::HttpError;

/// The interval of checks of the active agent. An agent behind a network that drops packets checks
/// like one that has no news.
const PULSE: Duration = Duration::from_secs(5);
/// The interval in which the token file is read.
const TOKEN: Duration = Duration::from_secs(1);
/// The wait between two checks if no agent was usable.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The agent and token that queries use.
#[derive(Debug)]
pub(super) struct ActiveAgent {
    /// The number of this selection. Running queries continue as long as it is the same.
    epoch: u64,
    pub(super) agent: Url,
    pub(super) token: Option<Secret>,
    pub(super) rights: Rights,
}

/// The result of the latest check.
#[derive(Debug, Clone)]
pub(super) enum AgentStatus {
    /// There was no check yet.
    Unknown,
    /// An agent is usable.
    Usable(Arc<ActiveAgent>),
    /// No agent is usable or reachable: the reason, and what to do.
    Unusable(Arc<str>),
}

#[derive(Debug)]
struct State {
    status: AgentStatus,
    /// The number of the latest requested check that has ended.
    checked: u64,
}

#[derive(Debug, Default)]
struct Requests {
    /// Whether there is a query. Without one there may be no Consul at all.
    is_needed: bool,
    /// The number of checks that were requested.
    checks: u64,
    /// The epoch whose agent queries want to leave, even if it passes the check.
    leave: Option<u64>,
}

/// The handle by which queries use the selector.
#[derive(Debug, Clone)]
pub(super) struct AgentSelector {
    state: watch::Receiver<State>,
    requests: Arc<watch::Sender<Requests>>,
}

impl AgentSelector {
    /// Creates a selector, and its task, which the caller must run.
    pub(super) fn new(
        options: Arc<ConsulOptions>,
        agents: Vec<Url>,
        clients: Arc<Clients>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let state = watch::Sender::new(State { status: AgentStatus::Unknown, checked: 0 });
        let requests = Arc::new(watch::Sender::new(Requests::default()));
        let watch = Watch {
            requests: requests.subscribe(),
            tokens: TokenFile::new(options.token_file.clone()),
            token: None,
            at: 0,
            epoch: 0,
            options,
            agents,
            lane: clients.first(),
            clients,
        };
        (Self { state: state.subscribe(), requests }, watch.run(state))
    }

    /// Waits for a usable agent. Never returns after the task has ended.
    pub(super) async fn active(&mut self) -> Arc<ActiveAgent> {
        loop {
            if let AgentStatus::Usable(active) = &self.state.borrow_and_update().status {
                return Arc::clone(active);
            }
            self.changed().await;
        }
    }

    /// Returns when a query that runs on `active` must run again.
    pub(super) async fn lost(&mut self, active: &ActiveAgent) {
        loop {
            match &self.state.borrow_and_update().status {
                AgentStatus::Usable(now) if now.epoch == active.epoch => {}
                _ => return,
            }
            self.changed().await;
        }
    }

    /// Sets whether there is a query. Without one, the task does not look for an agent.
    pub(super) fn need(&self, is_needed: bool) {
        self.requests.send_if_modified(|requests| {
            std::mem::replace(&mut requests.is_needed, is_needed) != is_needed
        });
    }

    /// Requests a check, and returns when one that began later has ended.
    pub(super) async fn check(&mut self) {
        self.request(|_| {}).await;
    }

    /// Requests a check that starts with another agent, if there is one.
    pub(super) async fn leave(&mut self, active: &ActiveAgent) {
        self.request(|requests| requests.leave = Some(active.epoch)).await;
    }

    /// Returns the rights of the token, if `active` is still the active agent.
    pub(super) fn rights(&self, active: &ActiveAgent) -> Option<Rights> {
        match &self.state.borrow().status {
            AgentStatus::Usable(now) if now.epoch == active.epoch => Some(now.rights),
            _ => None,
        }
    }

    /// Returns the status after its next change.
    pub(super) async fn news(&mut self) -> AgentStatus {
        self.changed().await;
        self.state.borrow_and_update().status.clone()
    }

    async fn request(&mut self, request: impl FnOnce(&mut Requests)) {
        let mut mine = 0;
        self.requests.send_modify(|requests| {
            requests.checks += 1;
            mine = requests.checks;
            request(requests);
        });
        while self.state.borrow_and_update().checked < mine {
            self.changed().await;
        }
    }

    async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // The provider is being dropped, and this task with it.
            std::future::pending::<()>().await;
        }
    }
}

/// The state of the task.
struct Watch {
    options: Arc<ConsulOptions>,
    agents: Vec<Url>,
    clients: Arc<Clients>,
    lane: Lane,
    requests: watch::Receiver<Requests>,
    tokens: TokenFile,
    token: Option<Secret>,
    /// The index of the queried agent.
    at: usize,
    epoch: u64,
}

impl Watch {
    async fn run(mut self, state: watch::Sender<State>) {
        let mut retry = Backoff::new(RETRY.0, RETRY.1);
        loop {
            if !self.requests.borrow().is_needed {
                // Without queries, no agent is unusable.
                state.send_modify(|state| state.status = AgentStatus::Unknown);
                if self.requests.wait_for(|requests| requests.is_needed).await.is_err() {
                    return;
                }
            }
            let (checks, leave) = {
                let requests = self.requests.borrow_and_update();
                (requests.checks, requests.leave)
            };
            if leave == Some(self.epoch) && self.agents.len() > 1 {
                self.rotate();
            }
            let found = self.check().await;
            let pause = match &found {
                Ok(_) => {
                    retry.reset();
                    PULSE
                }
                Err(_) => retry.step(),
            };
            self.publish(&state, found, checks);
            self.rest(pause).await;
        }
    }

    /// Checks each agent once, until one is usable.
    async fn check(&mut self) -> Result<Rights, String> {
        if self.clients.renew(&self.options) {
            // All queries connect again, with the new certificates.
            tracing::info!("consul certificates reloaded");
            self.epoch += 1;
        }
        let token = self.tokens.read()?;
        if self.token != token {
            self.token = token;
            self.epoch += 1;
        }
        let mut objections = Vec::new();
        let mut of_token = Vec::new();
        for _ in 0..self.agents.len() {
            let Some(agent) = self.agents.get(self.at) else { break };
            let preflight = Preflight {
                lane: &self.lane,
                agent,
                token: self.token.as_ref(),
                options: &self.options,
            };
            match preflight.rights().await {
                Ok(rights) => return Ok(rights),
                // Another agent may belong to another cluster, or know a newer token.
                Err(Objection::Token(reason)) => {
                    objections.push(format!("{agent}: {reason}"));
                    of_token.push(reason);
                }
                Err(Objection::Agent(error)) => {
                    let advice = self.advice(agent, &error);
                    objections.push(format!("{agent}: {error}{advice}"));
                }
            }
            self.rotate();
        }
        // If all agents reject the token, the token is the cause.
        if of_token.len() == self.agents.len() {
            return Err(of_token.swap_remove(0));
        }
        Err(format!("no Consul agent can be used; {}", objections.join("; ")))
    }

    /// Returns a hint about an error whose text does not name the cause.
    fn advice(&self, agent: &Url, error: &RequestError) -> &'static str {
        let is_transport = matches!(error, RequestError::Http(HttpError::Transport(_)));
        if !is_transport || agent.scheme() != "https" {
            ""
        } else if self.options.certificate.is_none() {
            // In TLS 1.3 an agent reports it only after the handshake, if at all.
            " (an agent with `verify_incoming` rejects clients without a certificate: set `certificate` and `key`)"
        } else if self.options.ca.is_none() {
            " (Consul usually has a certificate authority of its own: set `ca`)"
        } else {
            ""
        }
    }

    fn rotate(&mut self) {
        self.at = (self.at + 1) % self.agents.len().max(1);
        self.epoch += 1;
    }

    fn publish(
        &mut self,
        state: &watch::Sender<State>,
        found: Result<Rights, String>,
        checks: u64,
    ) {
        let status = match found {
            Ok(rights) => {
                let Some(agent) = self.agents.get(self.at) else { return };
                let (agent, token) = (agent.clone(), self.token.clone());
                AgentStatus::Usable(Arc::new(ActiveAgent {
                    epoch: self.epoch,
                    agent,
                    token,
                    rights,
                }))
            }
            Err(reason) => {
                // Running queries use an agent that is no longer usable.
                self.epoch += 1;
                AgentStatus::Unusable(reason.into())
            }
        };
        state.send_if_modified(|state| {
            let is_same = match (&state.status, &status) {
                (AgentStatus::Usable(one), AgentStatus::Usable(other)) => {
                    (one.epoch, one.rights) == (other.epoch, other.rights)
                }
                (AgentStatus::Unusable(one), AgentStatus::Unusable(other)) => one == other,
                _ => false,
            };
            if !is_same {
                match &status {
                    AgentStatus::Usable(active) => {
                        tracing::info!(agent = %active.agent, rights = ?active.rights, "consul agent selected");
                    }
                    AgentStatus::Unusable(reason) => tracing::warn!(
                        reason = &**reason,
                        action = "keeping stored endpoints, if any, and retrying",
                        "no consul agent is usable"
                    ),
                    AgentStatus::Unknown => {}
                }
                state.status = status;
            }
            let is_awaited = std::mem::replace(&mut state.checked, checks) != checks;
            !is_same || is_awaited
        });
    }

    /// Waits for the next check: until the pause is over, a query requests one, or the token
    /// changes.
    async fn rest(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        loop {
            let next = (Instant::now() + TOKEN).min(end);
            match timeout_at(next, self.requests.changed()).await {
                Ok(Ok(())) => return,
                // No query is left that could request a check.
                Ok(Err(_)) => sleep_until(next).await,
                Err(_) => {}
            }
            if Instant::now() >= end || self.tokens.read().is_ok_and(|token| token != self.token) {
                return;
            }
        }
    }
}
