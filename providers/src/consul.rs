//! Consul: the instances of its services are endpoints.
//!
//! One blocking query follows each question of policy (`instances`); one task decides whom they ask and
//! whether the answers can be believed (`warden`); one task puts together what services are to know
//! (`board`). How Consul is asked and believed, and why, is in docs/decisions/0031.
//!
//! It never decides that endpoints are gone because nobody answers: what was known stays, and is stale.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, MeshSpecification, Provider};
use jiff::Timestamp;
use reqwest::Url;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::{EndpointsProvider, PeerClock, ProviderReport};

mod agent_selector;
mod answer;
mod blocking;
mod board;
mod client;
mod error;
mod index;
mod instances;
mod memory;
mod options;
mod preflight;
mod tags;
mod tls;
mod token;
mod turns;
mod well;

pub use error::ConsulError;
pub use options::{ConsulOptions, LocalityKeys};

use agent_selector::{AgentSelector, AgentTrust};
use blocking::Shared;
use board::{Asked, Board};
use client::Clients;
use instances::{Instances, News};
use tags::{Tagged, Tags};
use turns::Turns;
use well::Wellness;

/// News of questions that wait to be taken.
const QUEUE: usize = 1024;
/// Of those, so many are told together.
const BATCH: usize = 256;

/// The Consul provider. All that it runs ends when it is dropped.
#[derive(Debug)]
pub struct Consul {
    specification: watch::Sender<Arc<MeshSpecification>>,
    sightings: watch::Receiver<ProviderReport>,
    peer_clock: PeerClock,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Consul {
    /// Begins to look for somebody to ask. Nothing is asked about services before there is policy to
    /// follow. `clock` says what time it is.
    ///
    /// # Errors
    ///
    /// Where the options contradict each other, or name files that cannot be read. That nobody can be
    /// reached, or the token is missing, is none: that is told as staleness.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(options: ConsulOptions, clock: fn() -> Timestamp) -> Result<Self, ConsulError> {
        if options.agents.is_empty() {
            return Err(ConsulError::NoAgent);
        }
        let agents = options.agents.iter().map(|url| agent(url)).collect::<Result<Vec<_>, _>>()?;
        let shares_connections = agents.iter().all(|agent| agent.scheme() == "https");
        let peer_clock = PeerClock::default();
        let clients = Arc::new(Clients::new(&options, peer_clock.clone())?);
        let turns = Turns::new(&options, shares_connections);
        let options = Arc::new(options);
        let (warden, watching) =
            AgentSelector::new(Arc::clone(&options), agents, Arc::clone(&clients));
        let shared =
            Arc::new(Shared { options, clients, turns, warden, wellness: Wellness::default() });
        let specification = watch::Sender::new(Arc::default());
        let told = watch::Sender::new(ProviderReport::default());
        let sightings = told.subscribe();
        let (sender, news) = mpsc::channel(QUEUE);
        let (tagged, tags) = watch::channel(None);
        shared.warden.need(shared.options.join_by_tag);
        let follows_tags = shared
            .options
            .join_by_tag
            .then(|| Tags::new(&shared))
            .transpose()?
            .map(|tags| AbortOnDropHandle::new(tokio::spawn(tags.follow(tagged))));
        let collector = Collector {
            warden: shared.warden.clone(),
            shared,
            clock,
            specification: specification.subscribe(),
            tags,
            _follows_tags: follows_tags,
            sender,
            news,
            queries: BTreeMap::new(),
            board: Board::default(),
            told,
        };
        let tasks = [tokio::spawn(watching), tokio::spawn(collector.run())];
        Ok(Self { specification, sightings, peer_clock, _tasks: tasks.map(AbortOnDropHandle::new) })
    }
}

impl EndpointsProvider for Consul {
    fn provider(&self) -> Provider {
        Provider::Consul
    }

    fn follow(&self, specification: &Arc<MeshSpecification>) {
        self.specification.send_replace(Arc::clone(specification));
    }

    fn peer_clock(&self) -> Option<PeerClock> {
        Some(self.peer_clock.clone())
    }

    fn sightings(&self) -> watch::Receiver<ProviderReport> {
        self.sightings.clone()
    }
}

/// The task that owns what is known.
struct Collector {
    shared: Arc<Shared>,
    warden: AgentSelector,
    clock: fn() -> Timestamp,
    specification: watch::Receiver<Arc<MeshSpecification>>,
    tags: watch::Receiver<Option<Tagged>>,
    _follows_tags: Option<AbortOnDropHandle<()>>,
    sender: mpsc::Sender<(Arc<ConsulQuery>, News)>,
    news: mpsc::Receiver<(Arc<ConsulQuery>, News)>,
    queries: BTreeMap<Arc<ConsulQuery>, AbortOnDropHandle<()>>,
    board: Board,
    told: watch::Sender<ProviderReport>,
}

impl Collector {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                changed = self.specification.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.ask();
                }
                // Where instances do not join by tags, nobody is left to tell of any.
                Ok(()) = self.tags.changed() => self.ask(),
                _ = self.news.recv_many(&mut batch, BATCH) => {
                    let now = (self.clock)();
                    for (question, news) in batch.drain(..) {
                        self.board.take(&question, news, now);
                    }
                }
                standing = self.warden.news() => {
                    let reason = match standing {
                        AgentTrust::Bad(reason) => Some(reason),
                        AgentTrust::Good(_) | AgentTrust::Unknown => None,
                    };
                    self.board.stale(reason, (self.clock)());
                }
            }
            if let Some(sightings) = self.board.news() {
                self.told.send_replace(sightings);
            }
        }
    }

    /// Asks what the services of policy ask now, and no more than that.
    fn ask(&mut self) {
        let specification = Arc::clone(&self.specification.borrow_and_update());
        let tags = self.tags.borrow_and_update().clone();
        let mut asked = BTreeMap::new();
        for (name, service) in &specification.services {
            let Some(providers) = service.endpoints.providers() else { continue };
            let own = providers.consul.as_ref().map(|query| self.with_defaults(query));
            // A service outside of the mesh is nobody's to join.
            let may_be_joined = service.external.is_none() && self.shared.options.join_by_tag;
            let tags = tags.as_ref().filter(|_| may_be_joined);
            let tagged = tags.and_then(|tags| tags.questions.get(name)).cloned();
            // Once it is known what is tagged, that nothing is for this service is an answer.
            if own.is_some() || tags.is_some() {
                let is_all_tagged =
                    !may_be_joined || tags.is_some_and(|tags| tags.is_authoritative);
                let tagged = tagged.unwrap_or_default();
                asked.insert(name.clone(), Asked { own, tagged, is_all_tagged });
            }
        }
        let is_all = tags.is_some() || !self.shared.options.join_by_tag;
        let questions = self.board.ask(asked, is_all, (self.clock)());
        self.queries.retain(|question, _| questions.contains(question));
        for question in questions {
            if self.queries.contains_key(&question) {
                continue;
            }
            match Instances::new(&self.shared, Arc::clone(&question)) {
                Ok(instances) => {
                    let task = tokio::spawn(instances.follow(self.sender.clone()));
                    self.queries.insert(question, AbortOnDropHandle::new(task));
                }
                Err(error) => {
                    let trouble = News::Trouble(error.to_string());
                    self.board.take(&question, trouble, (self.clock)());
                }
            }
        }
        let of_tags = usize::from(self.shared.options.join_by_tag);
        self.warden.need(self.queries.len() + of_tags > 0);
        self.shared.turns.share(self.queries.len() + of_tags);
    }

    fn with_defaults(&self, query: &ConsulQuery) -> ConsulQuery {
        let options = &self.shared.options;
        let or = |own: &Option<Arc<str>>, default: &Option<Arc<str>>| {
            own.clone().or_else(|| default.clone())
        };
        ConsulQuery {
            datacenter: or(&query.datacenter, &options.datacenter),
            namespace: or(&query.namespace, &options.namespace),
            partition: or(&query.partition, &options.partition),
            ..query.clone()
        }
    }
}

/// Reads the URL of an agent.
fn agent(text: &str) -> Result<Url, ConsulError> {
    let url = Url::parse(text).ok();
    let is_good = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    url.filter(is_good).ok_or_else(|| ConsulError::Agent { url: text.to_owned() })
}
