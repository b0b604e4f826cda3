//! The provider guards: they keep the last known good endpoints while a provider is away, hold back
//! a sudden loss, and damp flapping.
//!
//! This module is level-triggered. Its input is the newest reports and the time; its output is the
//! endpoints to use, the state to save, and the time of the next look. It never reads a clock and
//! does no IO.

mod flaps;
mod guarded;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{
    Discovered, Endpoint, EndpointAcceptance, EndpointPlace, KeptEndpoints, MeshSpecification,
    Provider, Service, ServiceName,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::provider::{ProviderReport, ServiceReport};
pub(crate) use flaps::QUIET;
use guarded::{Guarded, ReportContext};
pub use shrink::ShrinkRule;
use shrink::healthy;

/// How much later than at the control plane of the operator a provider may report the removal that
/// was accepted. Saved endpoints of a control plane that was stopped may be compared later.
const REPORT_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// One provider's endpoints of one service: the key of the guards.
pub type Source = (Provider, ServiceName);

/// The endpoints that passed the guards. A clone is cheap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardedEndpoints(pub OrdMap<Source, Arc<Vec<Endpoint>>>);

impl GuardedEndpoints {
    /// Restores the guarded endpoints from a discovery result.
    pub fn of(discovered: &Discovered) -> Self {
        let guarded = discovered.0.iter().flat_map(|(service, endpoints)| {
            Provider::external().filter_map(|provider| {
                let of_it = endpoints.iter().filter(|one| one.provider == provider);
                let of_it: Vec<_> = of_it.cloned().collect();
                (!of_it.is_empty()).then(|| ((provider, service.clone()), Arc::new(of_it)))
            })
        });
        Self(guarded.collect())
    }
}

/// The current time, as a wall-clock time for people and as a monotonic time for waits.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The wall-clock time.
    pub timestamp: Timestamp,
    /// The monotonic time.
    pub instant: Instant,
}

/// What the guard does with one provider's report of one service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardStatus {
    /// The time at which the provider learned of the endpoints in use; after a start, of the saved
    /// ones.
    pub learned_at: Timestamp,
    /// The latest report of the provider; `None` if it has not reported since the start.
    pub report: Option<Arc<ServiceReport>>,
    /// The removal that is held back, if any.
    pub held: Option<PendingShrink>,
    /// The endpoints that get no traffic because they flap.
    pub flapping: BTreeSet<EndpointPlace>,
    /// The time at which each endpoint appeared.
    pub since: OrdMap<EndpointPlace, Timestamp>,
}

/// A held-back removal: the new set is empty, or suddenly much smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingShrink {
    /// The time of the report that is held back.
    pub since: Timestamp,
    /// The time at which the removal takes effect if nothing changes; `None` while the provider is
    /// not authoritative.
    pub until: Option<Timestamp>,
    /// The number of healthy endpoints before.
    pub before: usize,
    /// The number of healthy endpoints in the report.
    pub left: usize,
}

/// The reason why nothing was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// No removal of the service is held back.
    #[error("nothing is held back of this service")]
    NothingHeld,
    /// The query in policy has changed since the removal, and has no answer yet.
    #[error(
        "no provider reports this service now, so there is nothing to accept: wait until one does, or see `ironmesh endpoints` for the reason"
    )]
    NothingReported,
}

/// The guards of all providers and services.
#[derive(Debug)]
pub struct ProviderGuards {
    rule: ShrinkRule,
    specification: Arc<MeshSpecification>,
    seen: BTreeMap<Provider, ProviderReport>,
    guarded: BTreeMap<Source, Guarded>,
    /// The times at which sources need a new look.
    due: BTreeSet<(Instant, Source)>,
    endpoints: GuardedEndpoints,
    statuses: OrdMap<Source, Arc<GuardStatus>>,
    unsaved: BTreeSet<Source>,
    /// The removals that operators have accepted, at any control plane.
    accepted: BTreeMap<ServiceName, EndpointAcceptance>,
}

impl ProviderGuards {
    /// Creates the guards with the saved endpoints.
    pub fn new(rule: ShrinkRule, kept: impl IntoIterator<Item = KeptEndpoints>) -> Self {
        let mut guards = Self {
            rule,
            specification: Arc::default(),
            seen: BTreeMap::new(),
            guarded: BTreeMap::new(),
            due: BTreeSet::new(),
            endpoints: GuardedEndpoints::default(),
            statuses: OrdMap::new(),
            unsaved: BTreeSet::new(),
            accepted: BTreeMap::new(),
        };
        for KeptEndpoints { provider, service, learned_at, endpoints } in kept {
            let since = endpoints.iter().map(|one| (one.place(), learned_at)).collect();
            let good = Guarded { good: endpoints, learned_at, since, ..Guarded::default() };
            guards.guarded.insert((provider, service), good);
        }
        guards
    }

    /// Takes the newest reports, and acts on due timers. The cost grows with the changes.
    pub fn advance(
        &mut self,
        specification: &Arc<MeshSpecification>,
        reports: impl IntoIterator<Item = (Provider, ProviderReport)>,
        now: Now,
    ) {
        let mut changed: BTreeSet<Source> = BTreeSet::new();
        if !Arc::ptr_eq(&self.specification, specification) {
            // Saved endpoints may belong to services that no longer exist.
            if self.specification.services.is_empty() {
                changed.extend(self.guarded.keys().cloned());
            }
            let before = std::mem::replace(&mut self.specification, Arc::clone(specification));
            for item in before.services.diff(&specification.services) {
                let (name, before) = match item {
                    DiffItem::Add(name, _) => (name, None),
                    DiffItem::Remove(name, before)
                    | DiffItem::Update { old: (name, before), .. } => (name, Some(before)),
                };
                for provider in Provider::external() {
                    let source = (provider, name.clone());
                    let asks_no_more = before
                        .is_some_and(|before| queries_provider(before, provider))
                        && !specification
                            .services
                            .get(name)
                            .is_some_and(|one| queries_provider(one, provider));
                    if asks_no_more {
                        self.forget(&source);
                    }
                    if self.guarded.contains_key(&source) {
                        changed.insert(source);
                    }
                }
            }
        }
        for (provider, new) in reports {
            let old = self.seen.entry(provider).or_default();
            let differing = old.services.diff(&new.services).map(|item| match item {
                DiffItem::Add(name, _)
                | DiffItem::Remove(name, _)
                | DiffItem::Update { new: (name, _), .. } => (provider, name.clone()),
            });
            changed.extend(differing);
            // A complete report may lack a service whose instances have left. A provider that
            // became stale or recovered changes its authority for held-back removals.
            let is_complete = new.is_complete && !old.is_complete;
            if is_complete || new.stale.is_some() != old.stale.is_some() {
                let of_it = self.guarded.iter().filter(|((of, _), _)| *of == provider);
                let concerned = of_it.filter(|(_, one)| is_complete || one.held.is_some());
                changed.extend(concerned.map(|(source, _)| source.clone()));
            }
            *old = new;
        }
        let due = self.due.iter().take_while(|(due, _)| *due <= now.instant);
        changed.extend(due.map(|(_, source)| source.clone()));
        for source in changed {
            self.evaluate(&source, now, false);
        }
    }

    /// Accepts a held-back removal of a service at once, however little is left. Returns it, for
    /// other control planes.
    pub fn accept(
        &mut self,
        service: &ServiceName,
        now: Now,
    ) -> Result<EndpointAcceptance, AcceptError> {
        let of_it = self.guarded.iter().filter(|((_, name), _)| name == service);
        let held: Vec<_> = of_it.filter(|(_, guarded)| guarded.held.is_some()).collect();
        if held.is_empty() {
            return Err(AcceptError::NothingHeld);
        }
        let left = |(source, _): &(&Source, &Guarded)| {
            let report = self.report(source)?;
            Some(((*source).clone(), healthy(&report.endpoints).count()))
        };
        let reported: BTreeMap<Source, usize> = held.iter().filter_map(left).collect();
        if reported.is_empty() {
            return Err(AcceptError::NothingReported);
        }
        for source in reported.keys() {
            self.evaluate(source, now, true);
        }
        let left = reported.into_iter().map(|((provider, _), left)| (provider, left)).collect();
        Ok(EndpointAcceptance { at: now.timestamp, left })
    }

    /// Replaces the removals that operators have accepted, at any control plane, and acts on new
    /// ones.
    pub fn follow_accepted(
        &mut self,
        accepted: BTreeMap<ServiceName, EndpointAcceptance>,
        now: Now,
    ) {
        let before = std::mem::replace(&mut self.accepted, accepted);
        let is_new = |name: &ServiceName| before.get(name) != self.accepted.get(name);
        let held = self.guarded.iter().filter(|(_, guarded)| guarded.held.is_some());
        let concerned = held.filter(|((_, name), _)| is_new(name));
        for source in concerned.map(|(source, _)| source.clone()).collect::<Vec<_>>() {
            self.evaluate(&source, now, false);
        }
    }

    /// Whether an operator has accepted a removal that leaves no more than this report, after the
    /// endpoints in use were learned. Later endpoints are not part of what was accepted, nor is a
    /// later removal of the same ones.
    fn is_accepted(
        &self,
        (provider, service): &Source,
        guarded: &Guarded,
        report: &ServiceReport,
        now: Now,
    ) -> bool {
        self.accepted.get(service).is_some_and(|accepted| {
            let left = accepted.left.get(provider);
            let held = guarded.held.as_ref();
            // A provider may not report unchanged endpoints again, so the time at which they were
            // learned does not tell which removal was accepted.
            let is_it = now.timestamp.duration_since(accepted.at) < REPORT_DELAY
                || held.is_some_and(|held| held.since <= accepted.at || held.is_of_saved)
                || guarded.report.is_none();
            is_it
                && guarded.learned_at < accepted.at
                && left.is_some_and(|left| healthy(&report.endpoints).count() >= *left)
        })
    }

    /// The latest report of a service.
    fn report(&self, (provider, service): &Source) -> Option<&Arc<ServiceReport>> {
        self.seen.get(provider)?.services.get(service)
    }

    /// The endpoints that passed the guards.
    pub fn endpoints(&self) -> &GuardedEndpoints {
        &self.endpoints
    }

    /// The guard status of each provider and service.
    pub fn statuses(&self) -> &OrdMap<Source, Arc<GuardStatus>> {
        &self.statuses
    }

    /// The latest report of each provider.
    pub fn reports(&self) -> impl Iterator<Item = (Provider, &ProviderReport)> {
        self.seen.iter().map(|(provider, report)| (*provider, report))
    }

    /// The time of the next look if nothing changes.
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The services that query a provider which has not reported them since the start.
    pub fn unreported(&self) -> impl Iterator<Item = Source> {
        let services = self.specification.services.values();
        services.flat_map(move |service| {
            let providers =
                Provider::external().filter(|provider| queries_provider(service, *provider));
            let is_unreported = |provider: &Provider| {
                let seen = self.seen.get(provider);
                !seen.is_some_and(|seen| seen.services.contains_key(&service.name))
            };
            providers.filter(is_unreported).map(|provider| (provider, service.name.clone()))
        })
    }

    /// Whether endpoints must be saved, or their saved copy removed.
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Returns the endpoints to save and the sources to remove, since the last call.
    pub fn take_unsaved(&mut self) -> (Vec<KeptEndpoints>, Vec<Source>) {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for source in std::mem::take(&mut self.unsaved) {
            match self.guarded.get(&source) {
                Some(Guarded { good, learned_at, .. }) => kept.push(KeptEndpoints {
                    provider: source.0,
                    service: source.1,
                    learned_at: *learned_at,
                    endpoints: Arc::clone(good),
                }),
                None => gone.push(source),
            }
        }
        (kept, gone)
    }

    /// Marks sources as unsaved again, because saving failed.
    pub fn put_back(&mut self, unsaved: impl IntoIterator<Item = Source>) {
        self.unsaved.extend(unsaved);
    }

    fn forget(&mut self, source: &Source) {
        if let Some(guarded) = self.guarded.remove(source) {
            if let Some(due) = guarded.due {
                self.due.remove(&(due, source.clone()));
            }
            self.endpoints.0.remove(source);
            self.statuses.remove(source);
            self.unsaved.insert(source.clone());
        }
    }

    /// Decides about one provider's endpoints of one service.
    fn evaluate(&mut self, source: &Source, now: Now, is_accepted: bool) {
        let Some(service) = self.specification.services.get(&source.1).cloned() else {
            return self.forget(source);
        };
        let seen = self.seen.get(&source.0);
        let is_complete = seen.is_some_and(|seen| seen.is_complete);
        let is_stale = seen.is_some_and(|seen| seen.stale.is_some());
        let report = self.report(source).cloned();
        let is_new = !self.guarded.contains_key(source);
        // An empty report that is not authoritative is no basis to start from: another provider may
        // have reported endpoints before.
        let is_nothing =
            |report: &Arc<ServiceReport>| !report.is_authoritative && report.endpoints.is_empty();
        if is_new && report.as_ref().is_none_or(is_nothing) {
            return;
        }
        let mut guarded = self.guarded.remove(source).unwrap_or_default();
        // If the last self-registered instance has left, the service is missing in the report; that
        // is an answer, too.
        let report = report.or_else(|| {
            let gone = is_complete && !queries_provider(&service, source.0);
            gone.then(|| Arc::new(no_endpoints(guarded.learned_at)))
        });
        let good = Arc::clone(&guarded.good);
        if let Some(report) = report {
            let is_authoritative = report.is_authoritative && report.stale.is_none() && !is_stale;
            let is_accepted = is_accepted || self.is_accepted(source, &guarded, &report, now);
            let context = ReportContext { is_new, is_accepted, service: &service, rule: self.rule };
            guarded.take(&report, is_authoritative, context, now);
        } else if let Some(held) = &mut guarded.held {
            held.confirmed = None;
        }
        if guarded.good.is_empty()
            && guarded.held.is_none()
            && !queries_provider(&service, source.0)
        {
            self.guarded.insert(source.clone(), guarded);
            return self.forget(source);
        }
        if is_new || good != guarded.good {
            self.unsaved.insert(source.clone());
        }
        self.publish(source, guarded, now);
    }

    /// Publishes the decision: endpoints, status and timer.
    fn publish(&mut self, source: &Source, mut guarded: Guarded, now: Now) {
        let most = self.rule.most_damped(healthy(&guarded.good).count());
        let damped = guarded.flaps.damp(&guarded.good, most, now.instant);
        let endpoints = damped.endpoints.map_or_else(|| Arc::clone(&guarded.good), Arc::new);
        if self.endpoints.0.get(source).is_none_or(|known| **known != *endpoints) {
            self.endpoints.0.insert(source.clone(), endpoints);
        }
        let grace = self.rule.grace;
        let held_until = guarded.held.as_ref().and_then(|held| held.confirmed);
        let due = held_until.map(|since| since.instant + grace).into_iter().chain(damped.until);
        let due = due.min();
        if let Some(old) = std::mem::replace(&mut guarded.due, due) {
            self.due.remove(&(old, source.clone()));
        }
        self.due.extend(due.map(|due| (due, source.clone())));
        let report = guarded.report.as_deref();
        let status = GuardStatus {
            learned_at: guarded.learned_at,
            report: guarded.report.clone(),
            held: guarded.held.as_ref().map(|held| PendingShrink {
                since: held.since,
                until: held.confirmed.map(|since| since.timestamp + grace),
                before: held.before,
                left: report.map_or(0, |report| healthy(&report.endpoints).count()),
            }),
            flapping: damped.flapping,
            since: guarded.since.clone(),
        };
        if self.statuses.get(source).is_none_or(|known| **known != status) {
            self.statuses.insert(source.clone(), Arc::new(status));
        }
        self.guarded.insert(source.clone(), guarded);
    }
}

fn queries_provider(service: &Service, provider: Provider) -> bool {
    let providers = service.endpoints.providers();
    providers.is_some_and(|providers| provider.is_external() && providers.include(provider))
}

/// The report that a service has no endpoints.
fn no_endpoints(at: Timestamp) -> ServiceReport {
    ServiceReport {
        endpoints: Arc::default(),
        index: 0,
        learned_at: at,
        is_authoritative: true,
        problems: Arc::default(),
        stale: None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
