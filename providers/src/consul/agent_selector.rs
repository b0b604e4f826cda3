//! The one task that decides which agent is asked, with which token, and whether it can be believed.
//!
//! Queries ask where it says, on its [`ActiveAgent`]. When one of them has trouble, it asks the warden to look: a
//! thousand queries whose agent has died are one look and not a thousand, and all go on together elsewhere.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use reqwest::Url;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::{Clients, Lane};
use super::error::RequestError;
use super::options::ConsulOptions;
use super::preflight::{Objection, Preflight, Rights};
use super::token::TokenFile;
use crate::backoff::Backoff;
use crate::http::HttpError;

/// So often it is looked whether the agent answers still. An agent behind a network that swallows packets
/// says nothing, and so does one that has nothing to tell.
const PULSE: Duration = Duration::from_secs(5);
/// So often the token file is read.
const TOKEN: Duration = Duration::from_secs(1);
/// How long there is between two looks when none was good.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// On what a query stands: whom it asks, and as whom.
#[derive(Debug)]
pub(super) struct ActiveAgent {
    /// Which agent and token it is. As long as it is the same, running queries run on.
    epoch: u64,
    pub(super) agent: Url,
    pub(super) token: Option<Secret>,
    pub(super) rights: Rights,
}

/// How things stand.
#[derive(Debug, Clone)]
pub(super) enum AgentTrust {
    /// It was not looked yet.
    Unknown,
    /// All is well.
    Good(Arc<ActiveAgent>),
    /// Nobody can be believed, or reached. Why, and what to do.
    Bad(Arc<str>),
}

#[derive(Debug)]
struct State {
    standing: AgentTrust,
    /// Up to which look, of those that were asked for, it has been looked.
    looked: u64,
}

#[derive(Debug, Default)]
struct Wishes {
    /// Whether there is anything to ask: where policy asks nothing of Consul, there may be none.
    is_needed: bool,
    /// How many looks have been asked for.
    looks: u64,
    /// The agent of this epoch is to be left, also if it answers the warden.
    leave: Option<u64>,
}

/// What queries know of the warden.
#[derive(Debug, Clone)]
pub(super) struct AgentSelector {
    state: watch::Receiver<State>,
    wishes: Arc<watch::Sender<Wishes>>,
}

impl AgentSelector {
    /// A warden, and the task that it is, which is for the caller to run.
    pub(super) fn new(
        options: Arc<ConsulOptions>,
        agents: Vec<Url>,
        clients: Arc<Clients>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let state = watch::Sender::new(State { standing: AgentTrust::Unknown, looked: 0 });
        let wishes = Arc::new(watch::Sender::new(Wishes::default()));
        let watch = Watch {
            asked: wishes.subscribe(),
            tokens: TokenFile::new(options.token_file.clone()),
            token: None,
            at: 0,
            epoch: 0,
            options,
            agents,
            lane: clients.first(),
            clients,
        };
        (Self { state: state.subscribe(), wishes }, watch.run(state))
    }

    /// On what to ask, as soon as somebody can be believed. Never returns when the warden has ended.
    pub(super) async fn ground(&mut self) -> Arc<ActiveAgent> {
        loop {
            if let AgentTrust::Good(ground) = &self.state.borrow_and_update().standing {
                return Arc::clone(ground);
            }
            self.changed().await;
        }
    }

    /// Returns when what was asked on `ground` is to be asked again.
    pub(super) async fn lost(&mut self, ground: &ActiveAgent) {
        loop {
            match &self.state.borrow_and_update().standing {
                AgentTrust::Good(now) if now.epoch == ground.epoch => {}
                _ => return,
            }
            self.changed().await;
        }
    }

    /// Whether anything is to be asked. As long as nothing is, it looks for nobody.
    pub(super) fn need(&self, is_needed: bool) {
        self.wishes.send_if_modified(|wishes| {
            std::mem::replace(&mut wishes.is_needed, is_needed) != is_needed
        });
    }

    /// Asks for a look, and returns when one that began after that has ended.
    pub(super) async fn look(&mut self) {
        self.wish(|_| {}).await;
    }

    /// The same, and the agent is left where there is another.
    pub(super) async fn leave(&mut self, ground: &ActiveAgent) {
        self.wish(|wishes| wishes.leave = Some(ground.epoch)).await;
    }

    /// What the token may read, if what was asked on `ground` still counts.
    pub(super) fn rights(&self, ground: &ActiveAgent) -> Option<Rights> {
        match &self.state.borrow().standing {
            AgentTrust::Good(now) if now.epoch == ground.epoch => Some(now.rights),
            _ => None,
        }
    }

    /// How things stand, once that has changed.
    pub(super) async fn news(&mut self) -> AgentTrust {
        self.changed().await;
        self.state.borrow_and_update().standing.clone()
    }

    async fn wish(&mut self, wish: impl FnOnce(&mut Wishes)) {
        let mut mine = 0;
        self.wishes.send_modify(|wishes| {
            wishes.looks += 1;
            mine = wishes.looks;
            wish(wishes);
        });
        while self.state.borrow_and_update().looked < mine {
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

/// The task.
struct Watch {
    options: Arc<ConsulOptions>,
    agents: Vec<Url>,
    clients: Arc<Clients>,
    lane: Lane,
    asked: watch::Receiver<Wishes>,
    tokens: TokenFile,
    token: Option<Secret>,
    /// The agent that is asked, by its place in the list.
    at: usize,
    epoch: u64,
}

impl Watch {
    async fn run(mut self, state: watch::Sender<State>) {
        let mut retry = Backoff::new(RETRY.0, RETRY.1);
        loop {
            if !self.asked.borrow().is_needed {
                // What is not asked is not answered badly.
                state.send_modify(|state| state.standing = AgentTrust::Unknown);
                if self.asked.wait_for(|wishes| wishes.is_needed).await.is_err() {
                    return;
                }
            }
            let (looks, leave) = {
                let wishes = self.asked.borrow_and_update();
                (wishes.looks, wishes.leave)
            };
            if leave == Some(self.epoch) && self.agents.len() > 1 {
                self.rotate();
            }
            let found = self.look().await;
            let pause = match &found {
                Ok(_) => {
                    retry.reset();
                    PULSE
                }
                Err(_) => retry.step(),
            };
            self.publish(&state, found, looks);
            self.rest(pause).await;
        }
    }

    /// Asks each agent once, until one is good.
    async fn look(&mut self) -> Result<Rights, String> {
        if self.clients.renew(&self.options) {
            // All connect anew, and show what they are now.
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
                // Another agent may be of another cluster, or know a newer token.
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
        // Where all of them find fault with the token, that is what is wrong.
        if of_token.len() == self.agents.len() {
            return Err(of_token.swap_remove(0));
        }
        Err(format!("no Consul agent can be used; {}", objections.join("; ")))
    }

    /// What to do about an error of which only we can guess why.
    fn advice(&self, agent: &Url, error: &RequestError) -> &'static str {
        let is_transport = matches!(error, RequestError::Http(HttpError::Transport(_)));
        if !is_transport || agent.scheme() != "https" {
            ""
        } else if self.options.certificate.is_none() {
            // In TLS 1.3 an agent says so only after the handshake, if at all.
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

    fn publish(&mut self, state: &watch::Sender<State>, found: Result<Rights, String>, looks: u64) {
        let standing = match found {
            Ok(rights) => {
                let Some(agent) = self.agents.get(self.at) else { return };
                let (agent, token) = (agent.clone(), self.token.clone());
                AgentTrust::Good(Arc::new(ActiveAgent { epoch: self.epoch, agent, token, rights }))
            }
            Err(reason) => {
                // Whatever is under way was asked of somebody who is not believed any more.
                self.epoch += 1;
                AgentTrust::Bad(reason.into())
            }
        };
        state.send_if_modified(|state| {
            let is_same = match (&state.standing, &standing) {
                (AgentTrust::Good(one), AgentTrust::Good(other)) => {
                    (one.epoch, one.rights) == (other.epoch, other.rights)
                }
                (AgentTrust::Bad(one), AgentTrust::Bad(other)) => one == other,
                _ => false,
            };
            if !is_same {
                match &standing {
                    AgentTrust::Good(ground) => {
                        tracing::info!(agent = %ground.agent, rights = ?ground.rights, "consul agent selected");
                    }
                    AgentTrust::Bad(reason) => tracing::warn!(
                        reason = &**reason,
                        action = "the last known endpoints stay in use",
                        "no consul agent is usable"
                    ),
                    AgentTrust::Unknown => {}
                }
                state.standing = standing;
            }
            let is_awaited = std::mem::replace(&mut state.looked, looks) != looks;
            !is_same || is_awaited
        });
    }

    /// Until the next look: when the pause is over, somebody asks for it, or there is another token.
    async fn rest(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        loop {
            let next = (Instant::now() + TOKEN).min(end);
            match timeout_at(next, self.asked.changed()).await {
                Ok(Ok(())) => return,
                // Nobody is left to ask for anything.
                Ok(Err(_)) => sleep_until(next).await,
                Err(_) => {}
            }
            if Instant::now() >= end || self.tokens.read().is_ok_and(|token| token != self.token) {
                return;
            }
        }
    }
}
