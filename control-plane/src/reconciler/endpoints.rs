//! The endpoints providers in the reconciler: which to query, their guarded endpoints, whether the first answers
//! suffice to become ready, and what to store. It neither decides what a guard accepts nor parses an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use ironmesh_admin::ApiError;
use ironmesh_catalog::{
    Discovered, EndpointAcceptance, Finding, MeshSpecification, Provider, Records, ServiceName,
    StoreError,
};
use ironmesh_providers::{
    AcceptError, ClockDifference, Conflict, Discovery, EndpointsProvider, GuardStatus, Now,
    ProviderGuards, ProviderReport, ShrinkRule, Source, Stale, findings,
};
use ironmesh_store::{MeshState, Store};
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Reconciler;
use ironmesh_catalog::text::chain;

/// The interval of writes to the store: a disk is slow, and endpoints may come and go.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// How endpoints are discovered and guarded.
#[derive(Debug)]
pub(crate) struct EndpointsOptions {
    /// The providers to query.
    pub(crate) providers: Vec<Arc<dyn EndpointsProvider>>,
    /// The rule by which a loss of endpoints is held back.
    pub(crate) rule: ShrinkRule,
    /// How long a start waits for providers of which endpoints are stored.
    pub(crate) sync_timeout: Duration,
    /// The providers for which a start does not wait.
    pub(crate) without: BTreeSet<Provider>,
    /// Whether providers may report loopback and link-local addresses.
    pub(crate) allows_local_addresses: bool,
}

impl Default for EndpointsOptions {
    /// No providers.
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            rule: ShrinkRule { keep_share: 0.5, grace: Duration::from_secs(60) },
            sync_timeout: Duration::from_secs(5),
            without: BTreeSet::new(),
            allows_local_addresses: false,
        }
    }
}

/// The published state of the endpoints providers and of their guards.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointsView {
    /// The state of each provider.
    pub(crate) providers: BTreeMap<Provider, ProviderState>,
    pub(crate) guards: OrdMap<Source, Arc<GuardStatus>>,
    pub(crate) conflicts: OrdMap<ServiceName, Arc<[Conflict]>>,
    /// What delays readiness, one entry per provider.
    pub(crate) waiting_for: Vec<String>,
}

/// The state of one endpoints provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProviderState {
    /// Whether it has answered every query.
    pub(crate) is_complete: bool,
    /// Since when and why it has no usable source.
    pub(crate) stale: Option<Stale>,
    /// Since when and why services have no report, of those that never had one.
    pub(crate) troubles: OrdMap<ServiceName, Stale>,
}

/// The reconciler's connection to the endpoints providers.
#[derive(Debug)]
pub(super) struct Endpoints {
    store: Arc<Store>,
    /// The state that all control planes share.
    shared: Arc<MeshState>,
    providers: Vec<(Arc<dyn EndpointsProvider>, watch::Receiver<ProviderReport>)>,
    guards: ProviderGuards,
    discovery: Discovery,
    followed: Option<Arc<MeshSpecification>>,
    /// The providers of which endpoints were stored.
    stored_providers: BTreeSet<Provider>,
    /// The end of the time in which a start waits for providers with stored endpoints.
    sync_deadline: Instant,
    /// Whether that time is over.
    is_late: bool,
    is_synced: bool,
    without: BTreeSet<Provider>,
    /// When endpoints were stored last.
    stored_at: Option<Instant>,
    published: EndpointsView,
    /// Wakes the reconciler when a provider has news.
    news: Arc<Notify>,
    _listening: JoinSet<()>,
}

impl Endpoints {
    /// Subscribes to the providers, and starts from the stored endpoints.
    pub(super) fn new(
        store: Arc<Store>,
        shared: Arc<MeshState>,
        options: EndpointsOptions,
    ) -> Result<Self, StoreError> {
        let news = Arc::<Notify>::default();
        let mut listening = JoinSet::new();
        let attach = |provider: Arc<dyn EndpointsProvider>| {
            let reports = provider.reports();
            let (mut receiver, news) = (reports.clone(), Arc::clone(&news));
            listening.spawn(async move {
                while receiver.changed().await.is_ok() {
                    news.notify_one();
                }
            });
            (provider, reports)
        };
        let providers = options.providers.into_iter().map(attach).collect();
        let (kept, unreadable) = store.kept_endpoints()?;
        for what in unreadable {
            // The record may be of a newer version. The provider is queried again.
            tracing::warn!(what, "stored endpoints cannot be read and are ignored");
        }
        Ok(Self {
            stored_providers: kept.iter().map(|one| one.provider).collect(),
            guards: ProviderGuards::new(options.rule, kept),
            store,
            shared,
            providers,
            discovery: Discovery::new(options.allows_local_addresses),
            followed: None,
            sync_deadline: Instant::now() + options.sync_timeout,
            is_late: false,
            is_synced: false,
            without: options.without,
            stored_at: None,
            published: EndpointsView::default(),
            news,
            _listening: listening,
        })
    }

    /// The notification of news from any provider.
    pub(super) fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.news)
    }

    /// The endpoints of all services, as of now. The cost follows the changes.
    pub(super) fn discover(
        &mut self,
        specification: &Arc<MeshSpecification>,
        records: &Records,
        now: Now,
    ) -> Discovered {
        if !self.followed.as_ref().is_some_and(|old| Arc::ptr_eq(old, specification)) {
            for (provider, _) in &self.providers {
                provider.follow(specification);
            }
            self.followed = Some(Arc::clone(specification));
        }
        let reports = self
            .providers
            .iter_mut()
            .map(|(provider, reports)| (provider.provider(), reports.borrow_and_update().clone()));
        let reports: Vec<_> = reports.collect();
        self.guards.advance(specification, reports, now);
        self.discovery.discover(specification, records, self.guards.endpoints())
    }

    /// Accepts the endpoint removal that is held back for a service.
    pub(super) fn accept(
        &mut self,
        service: &ServiceName,
        now: Now,
    ) -> Result<EndpointAcceptance, AcceptError> {
        self.guards.accept(service, now)
    }

    /// Reads again which removals operators have accepted, at any control plane.
    pub(super) fn reread_accepted(&mut self, now: Now) {
        match self.shared.accepted_removals() {
            Ok((accepted, unreadable)) => {
                if !unreadable.is_empty() {
                    tracing::warn!(
                        services = unreadable.join(", "),
                        reason = "a newer version may have stored them",
                        action = "their removals are held back here",
                        "unreadable acceptances of endpoint removals"
                    );
                }
                self.guards.follow_accepted(accepted, now);
            }
            // The earlier ones hold. These are read again at the next acceptance, or with a new watch; until then, their
            // removals are held back here.
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "cannot read the accepted endpoint removals"
                );
            }
        }
    }

    /// Whether there are enough reports to serve: each provider has reported every service that queries it, or its
    /// time is over and stored endpoints replace the report. Once true, this stays true.
    pub(super) fn are_synced(&mut self, now: Instant) -> bool {
        self.is_late = now >= self.sync_deadline;
        self.is_synced = self.is_synced || self.missing().is_empty();
        self.is_synced
    }

    /// The services without a report that readiness still waits for. A service whose query is rejected delays
    /// readiness no longer than others: it must not keep the rest from being served.
    fn missing(&self) -> BTreeMap<Provider, Vec<ServiceName>> {
        let mut unreported: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (provider, service) in self.guards.unreported() {
            unreported.entry(provider).or_default().push(service);
        }
        for (provider, _) in self.guards.reports().filter(|(_, one)| !one.has_discovered_services) {
            // Instances of any service may be discovered by tag.
            unreported.entry(provider).or_default();
        }
        unreported.retain(|provider, _| !self.without.contains(provider));
        if self.is_late {
            unreported.retain(|provider, services| {
                !self.stored_providers.contains(provider)
                    && !self.are_queries_rejected(*provider, services)
            });
        }
        unreported
    }

    /// Whether a provider that reports most services rejects the queries of these: then the queries are at fault, not
    /// the provider.
    fn are_queries_rejected(&self, provider: Provider, services: &[ServiceName]) -> bool {
        self.guards.reports().any(|(of, report)| {
            of == provider
                && report.has_discovered_services
                && report.stale.is_none()
                && report.services.len() >= services.len()
                && services.iter().all(|service| report.troubles.contains_key(service))
        })
    }

    /// When the next pass is due although no provider reports anything.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let is_waiting = !self.is_synced && Instant::now() < self.sync_deadline;
        let sync = is_waiting.then_some(self.sync_deadline);
        let keep = self.guards.has_unsaved().then(|| self.stored_at.map(|at| at + STORE_INTERVAL));
        [sync, keep.flatten(), self.guards.deadline()].into_iter().flatten().min()
    }

    /// The difference of the wall clock from those of providers, as far as their answers show it.
    pub(super) fn clock_differences(&self, now: Now) -> BTreeMap<Provider, ClockDifference> {
        let difference = |provider: &Arc<dyn EndpointsProvider>| {
            let difference = provider.peer_clock()?.difference(now.timestamp, now.instant)?;
            Some((provider.provider(), difference))
        };
        self.providers.iter().filter_map(|(provider, _)| difference(provider)).collect()
    }

    /// Stores changed endpoints, at most once per [`STORE_INTERVAL`].
    pub(super) fn store_changes(&mut self, now: Instant) {
        let is_early = self.stored_at.is_some_and(|at| now < at + STORE_INTERVAL);
        if !is_early && self.guards.has_unsaved() {
            self.stored_at = Some(now);
            self.store_unsaved();
        }
    }

    /// Stores changed endpoints now.
    pub(super) fn store_unsaved(&mut self) {
        let (kept, gone) = self.guards.take_unsaved();
        if let Err(error) = self.store.keep_endpoints(&kept, &gone) {
            tracing::error!(error = chain(&error), "cannot store the discovered endpoints");
            let kept = kept.into_iter().map(|one| (one.provider, one.service));
            self.guards.put_back(kept.chain(gone));
        }
    }

    /// The findings about the reports of providers.
    pub(super) fn findings(&self) -> Vec<Finding> {
        findings(&self.guards, self.discovery.conflicts())
    }

    /// The state of providers and guards, if it differs from the one published last.
    pub(super) fn take_news(&mut self) -> Option<EndpointsView> {
        let (view, published) = (self.view(), &self.published);
        let is_same = view.guards.ptr_eq(&published.guards)
            && view.conflicts.ptr_eq(&published.conflicts)
            && (&view.providers, &view.waiting_for)
                == (&published.providers, &published.waiting_for);
        (!is_same).then(|| {
            self.published = view.clone();
            view
        })
    }

    fn view(&self) -> EndpointsView {
        let state = |(provider, report): (Provider, &ProviderReport)| {
            let state = ProviderState {
                is_complete: report.is_complete,
                stale: report.stale.clone(),
                troubles: report.troubles.clone(),
            };
            (provider, state)
        };
        EndpointsView {
            providers: self.guards.reports().map(state).collect(),
            guards: self.guards.statuses().clone(),
            conflicts: self.discovery.conflicts().clone(),
            waiting_for: if self.is_synced { Vec::new() } else { self.waiting_for() },
        }
    }

    fn waiting_for(&self) -> Vec<String> {
        let words = |(provider, services): (Provider, Vec<ServiceName>)| {
            let mut names: Vec<_> = services.iter().take(3).map(ToString::to_string).collect();
            if names.is_empty() {
                names.push("services that are discovered by tag".to_owned());
            }
            if services.len() > names.len() {
                names.push(format!("{} others", services.len() - names.len()));
            }
            let of_it = self.guards.reports().find(|(of, _)| *of == provider);
            let of_services = |report: &ProviderReport| {
                services.iter().find_map(|name| report.troubles.get(name).cloned())
            };
            let stale =
                of_it.and_then(|(_, report)| report.stale.clone().or_else(|| of_services(report)));
            let why = stale.map(|stale| format!(": {}", stale.reason)).unwrap_or_default();
            format!(
                "the endpoints of {} from {provider}{why} (`ironmesh serve --without {provider}` does not wait)",
                names.join(", ")
            )
        };
        self.missing().into_iter().map(words).collect()
    }
}

/// A request to accept the endpoint removal that is held back for a service.
#[derive(Debug)]
pub(crate) struct Acceptance {
    pub(super) service: ServiceName,
    pub(super) answer: oneshot::Sender<Result<EndpointAcceptance, AcceptError>>,
}

/// The sending side of requests to accept endpoint removals.
#[derive(Debug, Clone)]
pub(crate) struct Acceptances {
    pub(super) requests: mpsc::Sender<Acceptance>,
    /// The state that all control planes share.
    pub(super) shared: Arc<MeshState>,
}

impl Acceptances {
    /// Accepts the removal of a service's endpoints here, and waits until that is done; then stores it for all control
    /// planes. Blocks.
    pub(crate) fn accept(&self, service: &ServiceName) -> Result<(), ApiError> {
        let ended = || ApiError::Internal("the control plane is stopping".to_owned());
        let (answer, answered) = oneshot::channel();
        let acceptance = Acceptance { service: service.clone(), answer };
        self.requests.blocking_send(acceptance).map_err(|_| ended())?;
        let done = answered.blocking_recv().map_err(|_| ended())?;
        let accepted = done.map_err(|error| ApiError::BadRequest(error.to_string()))?;
        self.shared.put_accepted_removal(service, &accepted).map_err(|error| {
            ApiError::Internal(format!(
                "the removal is accepted at this control plane alone: {}; where there are others, repeat the command at \
                 each of them",
                chain(&error)
            ))
        })
    }
}

impl Reconciler {
    /// Carries out a request to accept an endpoint removal, and replies.
    pub(super) fn accept(&mut self, acceptance: Acceptance) {
        let done = self.endpoints.accept(&acceptance.service, current_time(Timestamp::now()));
        // The client may be gone; the request is carried out all the same.
        let _ = acceptance.answer.send(done);
    }
}

/// The current time by both clocks.
pub(super) fn current_time(timestamp: Timestamp) -> Now {
    Now { timestamp, instant: Instant::now() }
}
