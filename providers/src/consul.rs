//! The Consul provider: the instances of Consul services are endpoints.
//!
//! Each query of policy has a blocking query (`instances`). One task selects the agent, and decides
//! whether its answers are usable (`agent_selector`). One task builds the report from the answers
//! (`report_builder`). docs/decisions/0031 has the rules and the reasons.
//!
//! It never removes endpoints because Consul does not answer: the last known ones stay, and are
//! stale.

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
mod client;
mod error;
mod index;
mod instances;
mod memory;
mod options;
mod preflight;
mod query_health;
mod query_slots;
mod report_builder;
mod tags;
mod tls;
mod token;

pub use error::ConsulError;
pub use options::{ConsulOptions, LocalityKeys};

use agent_selector::{AgentSelector, AgentStatus};
use blocking::Shared;
use client::Clients;
use instances::{Instances, QueryUpdate};
use query_health::HealthyQueries;
use query_slots::QuerySlots;
use report_builder::{ReportBuilder, ServiceQueries};
use tags::{Tagged, Tags};

/// The capacity of the queue of query results.
const QUEUE: usize = 1024;
/// The number of results that are applied together.
const BATCH: usize = 256;

/// The Consul provider. Its tasks end when it is dropped.
#[derive(Debug)]
pub struct Consul {
    specification: watch::Sender<Arc<MeshSpecification>>,
    reports: watch::Receiver<ProviderReport>,
    peer_clock: PeerClock,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Consul {
    /// Starts the provider. It selects an agent, and sends no query before it follows a
    /// specification. `clock` returns the current time.
    ///
    /// # Errors
    ///
    /// If the options contradict each other, or name files that cannot be read. An unreachable
    /// agent or a missing token is no error: the report is stale then.
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
        let slots = QuerySlots::new(&options, shares_connections);
        let options = Arc::new(options);
        let (selector, watching) =
            AgentSelector::new(Arc::clone(&options), agents, Arc::clone(&clients));
        let shared = Arc::new(Shared {
            options,
            clients,
            slots,
            selector,
            healthy_queries: HealthyQueries::default(),
        });
        let specification = watch::Sender::new(Arc::default());
        let report = watch::Sender::new(ProviderReport::default());
        let reports = report.subscribe();
        let (sender, news) = mpsc::channel(QUEUE);
        let (tagged, tags) = watch::channel(None);
        shared.selector.need(shared.options.join_by_tag);
        let follows_tags = shared
            .options
            .join_by_tag
            .then(|| Tags::new(&shared))
            .transpose()?
            .map(|tags| AbortOnDropHandle::new(tokio::spawn(tags.follow(tagged))));
        let collector = Collector {
            selector: shared.selector.clone(),
            shared,
            clock,
            specification: specification.subscribe(),
            tags,
            _follows_tags: follows_tags,
            sender,
            news,
            queries: BTreeMap::new(),
            builder: ReportBuilder::default(),
            report,
        };
        let tasks = [tokio::spawn(watching), tokio::spawn(collector.run())];
        Ok(Self { specification, reports, peer_clock, _tasks: tasks.map(AbortOnDropHandle::new) })
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

    fn reports(&self) -> watch::Receiver<ProviderReport> {
        self.reports.clone()
    }
}

/// The task that owns the report.
struct Collector {
    shared: Arc<Shared>,
    selector: AgentSelector,
    clock: fn() -> Timestamp,
    specification: watch::Receiver<Arc<MeshSpecification>>,
    tags: watch::Receiver<Option<Tagged>>,
    _follows_tags: Option<AbortOnDropHandle<()>>,
    sender: mpsc::Sender<(Arc<ConsulQuery>, QueryUpdate)>,
    news: mpsc::Receiver<(Arc<ConsulQuery>, QueryUpdate)>,
    queries: BTreeMap<Arc<ConsulQuery>, AbortOnDropHandle<()>>,
    builder: ReportBuilder,
    report: watch::Sender<ProviderReport>,
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
                    self.update_queries();
                }
                // Without registration by tags, the sender of tags is gone.
                Ok(()) = self.tags.changed() => self.update_queries(),
                _ = self.news.recv_many(&mut batch, BATCH) => {
                    let now = (self.clock)();
                    for (query, news) in batch.drain(..) {
                        self.builder.take(&query, news, now);
                    }
                }
                status = self.selector.news() => {
                    let reason = match status {
                        AgentStatus::Unusable(reason) => Some(reason),
                        AgentStatus::Usable(_) | AgentStatus::Unknown => None,
                    };
                    self.builder.stale(reason, (self.clock)());
                }
            }
            if let Some(report) = self.builder.news() {
                self.report.send_replace(report);
            }
        }
    }

    /// Starts the queries that the specification needs now, and ends the others.
    fn update_queries(&mut self) {
        let specification = Arc::clone(&self.specification.borrow_and_update());
        let tags = self.tags.borrow_and_update().clone();
        let mut by_service = BTreeMap::new();
        for (name, service) in &specification.services {
            let Some(providers) = service.endpoints.providers() else { continue };
            let own = providers.consul.as_ref().map(|query| self.with_defaults(query));
            // Instances cannot register for a service outside of the mesh.
            let may_be_tagged = service.external.is_none() && self.shared.options.join_by_tag;
            let tags = tags.as_ref().filter(|_| may_be_tagged);
            let tagged = tags.and_then(|tags| tags.queries.get(name)).cloned();
            // Once the tags are known, a service without a tagged instance has an answer, too.
            if own.is_some() || tags.is_some() {
                let is_all_tagged =
                    !may_be_tagged || tags.is_some_and(|tags| tags.is_authoritative);
                let tagged = tagged.unwrap_or_default();
                by_service.insert(name.clone(), ServiceQueries { own, tagged, is_all_tagged });
            }
        }
        let is_all = tags.is_some() || !self.shared.options.join_by_tag;
        let queries = self.builder.set_queries(by_service, is_all, (self.clock)());
        self.queries.retain(|query, _| queries.contains(query));
        for query in queries {
            if self.queries.contains_key(&query) {
                continue;
            }
            match Instances::new(&self.shared, Arc::clone(&query)) {
                Ok(instances) => {
                    let task = tokio::spawn(instances.follow(self.sender.clone()));
                    self.queries.insert(query, AbortOnDropHandle::new(task));
                }
                Err(error) => {
                    let trouble = QueryUpdate::Trouble(error.to_string());
                    self.builder.take(&query, trouble, (self.clock)());
                }
            }
        }
        let of_tags = usize::from(self.shared.options.join_by_tag);
        self.selector.need(self.queries.len() + of_tags > 0);
        self.shared.slots.share(self.queries.len() + of_tags);
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

/// Parses the URL of an agent.
fn agent(text: &str) -> Result<Url, ConsulError> {
    let url = Url::parse(text).ok();
    let is_good = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    url.filter(is_good).ok_or_else(|| ConsulError::Agent { url: text.to_owned() })
}
