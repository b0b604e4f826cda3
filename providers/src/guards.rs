//! What is believed of what providers tell: the last good state stays while a provider is away, a sudden
//! loss is doubted, and who flaps gets no traffic.
//!
//! Level-triggered, without a clock and without IO: the newest sightings and the time go in, what is
//! believed comes out, with what is to be kept on disk and when to look again.

mod flaps;
mod guarded;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{
    Discovered, Endpoint, EndpointPlace, KeptEndpoints, MeshSpecification, Provider, Service,
    ServiceName,
};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::provider::{ProviderReport, ServiceReport};
pub(crate) use flaps::QUIET;
use guarded::{Guarded, How};
pub use shrink::ShrinkRule;
use shrink::healthy;

/// What a provider says of a service: which provider, of which service.
pub type Source = (Provider, ServiceName);

/// What is believed of what providers tell. A copy costs nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardedEndpoints(pub OrdMap<Source, Arc<Vec<Endpoint>>>);

impl GuardedEndpoints {
    /// What was believed of those who are asked when this was discovered.
    pub fn of(discovered: &Discovered) -> Self {
        let believed = discovered.0.iter().flat_map(|(service, endpoints)| {
            Provider::external().filter_map(|provider| {
                let of_it = endpoints.iter().filter(|one| one.provider == provider);
                let of_it: Vec<_> = of_it.cloned().collect();
                (!of_it.is_empty()).then(|| ((provider, service.clone()), Arc::new(of_it)))
            })
        });
        Self(believed.collect())
    }
}

/// A moment, by the clock of the wall, for people, and by one that nobody sets, for waits.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The clock of the wall.
    pub timestamp: Timestamp,
    /// The one that nobody sets.
    pub instant: Instant,
}

/// How what a provider says of one service is taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardStatus {
    /// When it was learned what is believed; at a start, what was kept.
    pub learned_at: Timestamp,
    /// What the provider told last; none where that was before our start.
    pub sighting: Option<Arc<ServiceReport>>,
    /// What is held back, if anything.
    pub held: Option<Held>,
    /// Who gets no traffic because it flaps.
    pub flapping: BTreeSet<EndpointPlace>,
    /// Since when each endpoint is there.
    pub since: OrdMap<EndpointPlace, Timestamp>,
}

/// A set of endpoints that is held back, because it is empty or much smaller at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Since when.
    pub since: Timestamp,
    /// When it will be believed if nothing changes; none as long as its provider does not vouch for it.
    pub until: Option<Timestamp>,
    /// How many healthy endpoints there were.
    pub before: usize,
    /// How many it has.
    pub left: usize,
}

/// Why nothing was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// All that providers tell is believed.
    #[error("nothing is held back of this service")]
    NothingHeld,
    /// Policy asks something else now than what was held back, and there is no answer yet.
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
    /// When somebody is to be looked at again.
    due: BTreeSet<(Instant, Source)>,
    believed: GuardedEndpoints,
    beliefs: OrdMap<Source, Arc<GuardStatus>>,
    unkept: BTreeSet<Source>,
}

impl ProviderGuards {
    /// Begins with what was kept.
    pub fn new(rule: ShrinkRule, kept: impl IntoIterator<Item = KeptEndpoints>) -> Self {
        let mut guards = Self {
            rule,
            specification: Arc::default(),
            seen: BTreeMap::new(),
            guarded: BTreeMap::new(),
            due: BTreeSet::new(),
            believed: GuardedEndpoints::default(),
            beliefs: OrdMap::new(),
            unkept: BTreeSet::new(),
        };
        for KeptEndpoints { provider, service, learned_at, endpoints } in kept {
            let since = endpoints.iter().map(|one| (one.place(), learned_at)).collect();
            let good = Guarded { good: endpoints, learned_at, since, ..Guarded::default() };
            guards.guarded.insert((provider, service), good);
        }
        guards
    }

    /// Takes what is known now, and what is due. It costs as much as has changed.
    pub fn advance(
        &mut self,
        specification: &Arc<MeshSpecification>,
        sightings: impl IntoIterator<Item = (Provider, ProviderReport)>,
        now: Now,
    ) {
        let mut changed: BTreeSet<Source> = BTreeSet::new();
        if !Arc::ptr_eq(&self.specification, specification) {
            // What was kept is of services that may be there no more.
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
                    let asks_no_more = before.is_some_and(|before| asks(before, provider))
                        && !specification.services.get(name).is_some_and(|one| asks(one, provider));
                    if asks_no_more {
                        self.forget(&source);
                    }
                    if self.guarded.contains_key(&source) {
                        changed.insert(source);
                    }
                }
            }
        }
        for (provider, new) in sightings {
            let old = self.seen.entry(provider).or_default();
            let differing = old.services.diff(&new.services).map(|item| match item {
                DiffItem::Add(name, _)
                | DiffItem::Remove(name, _)
                | DiffItem::Update { new: (name, _), .. } => (provider, name.clone()),
            });
            changed.extend(differing);
            // Of the first it may be that nobody tells of it any more, of the second that nobody vouches for
            // what is held back.
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
            self.look(&source, now, false);
        }
    }

    /// Believes at once what is held back of a service, however little it is.
    pub fn accept(&mut self, service: &ServiceName, now: Now) -> Result<(), AcceptError> {
        let of_it = self.guarded.iter().filter(|((_, name), _)| name == service);
        let held: Vec<_> = of_it.filter(|(_, guarded)| guarded.held.is_some()).collect();
        if held.is_empty() {
            return Err(AcceptError::NothingHeld);
        }
        let is_told = |(source, _): &&(&Source, &Guarded)| self.told(source).is_some();
        let told: Vec<_> =
            held.iter().filter(is_told).map(|(source, _)| (*source).clone()).collect();
        if told.is_empty() {
            return Err(AcceptError::NothingReported);
        }
        for source in &told {
            self.look(source, now, true);
        }
        Ok(())
    }

    /// What a provider tells of a service now.
    fn told(&self, (provider, service): &Source) -> Option<&Arc<ServiceReport>> {
        self.seen.get(provider)?.services.get(service)
    }

    /// What is believed now.
    pub fn believed(&self) -> &GuardedEndpoints {
        &self.believed
    }

    /// How what providers say of each service is taken.
    pub fn beliefs(&self) -> &OrdMap<Source, Arc<GuardStatus>> {
        &self.beliefs
    }

    /// What each provider told last.
    pub fn sightings(&self) -> impl Iterator<Item = (Provider, &ProviderReport)> {
        self.seen.iter().map(|(provider, sightings)| (*provider, sightings))
    }

    /// When there is something to do though nothing changes.
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The services that ask a provider, of which it has told nothing since our start.
    pub fn unheard(&self) -> impl Iterator<Item = Source> {
        let services = self.specification.services.values();
        services.flat_map(move |service| {
            let asked = Provider::external().filter(|provider| asks(service, *provider));
            let is_unheard = |provider: &Provider| {
                let seen = self.seen.get(provider);
                !seen.is_some_and(|seen| seen.services.contains_key(&service.name))
            };
            asked.filter(is_unheard).map(|provider| (provider, service.name.clone()))
        })
    }

    /// Whether there is something that is to be kept, or to be kept no more.
    pub fn has_unkept(&self) -> bool {
        !self.unkept.is_empty()
    }

    /// What is to be kept, and what is to be kept no more: all that is news since the last time.
    pub fn take_unkept(&mut self) -> (Vec<KeptEndpoints>, Vec<Source>) {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for source in std::mem::take(&mut self.unkept) {
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

    /// It could not be kept: it is tried again.
    pub fn put_back(&mut self, unkept: impl IntoIterator<Item = Source>) {
        self.unkept.extend(unkept);
    }

    fn forget(&mut self, source: &Source) {
        if let Some(guarded) = self.guarded.remove(source) {
            if let Some(due) = guarded.due {
                self.due.remove(&(due, source.clone()));
            }
            self.believed.0.remove(source);
            self.beliefs.remove(source);
            self.unkept.insert(source.clone());
        }
    }

    /// Judges one provider's endpoints of one service.
    fn look(&mut self, source: &Source, now: Now, is_accepted: bool) {
        let Some(service) = self.specification.services.get(&source.1).cloned() else {
            return self.forget(source);
        };
        let seen = self.seen.get(&source.0);
        let is_complete = seen.is_some_and(|seen| seen.is_complete);
        let is_stale = seen.is_some_and(|seen| seen.stale.is_some());
        let told = self.told(source).cloned();
        let is_new = !self.guarded.contains_key(source);
        // That there is nobody is nothing to begin with if nobody vouches for it: another provider may have
        // known some up to now.
        let is_nothing =
            |told: &Arc<ServiceReport>| !told.is_authoritative && told.endpoints.is_empty();
        if is_new && told.as_ref().is_none_or(is_nothing) {
            return;
        }
        let mut guarded = self.guarded.remove(source).unwrap_or_default();
        // Who joined by itself has left, and nobody tells: that is an answer, too.
        let told = told.or_else(|| {
            let gone = is_complete && !asks(&service, source.0);
            gone.then(|| Arc::new(nobody(guarded.learned_at)))
        });
        let good = Arc::clone(&guarded.good);
        if let Some(told) = told {
            let is_authoritative = told.is_authoritative && told.stale.is_none() && !is_stale;
            let how = How { is_new, is_accepted, service: &service, rule: self.rule };
            guarded.take(&told, is_authoritative, how, now);
        } else if let Some(held) = &mut guarded.held {
            held.confirmed = None;
        }
        if guarded.good.is_empty() && guarded.held.is_none() && !asks(&service, source.0) {
            self.guarded.insert(source.clone(), guarded);
            return self.forget(source);
        }
        if is_new || good != guarded.good {
            self.unkept.insert(source.clone());
        }
        self.publish(source, guarded, now);
    }

    /// Lets be seen what is believed.
    fn publish(&mut self, source: &Source, mut guarded: Guarded, now: Now) {
        let most = self.rule.most_damped(healthy(&guarded.good).count());
        let damped = guarded.flaps.damp(&guarded.good, most, now.instant);
        let endpoints = damped.endpoints.map_or_else(|| Arc::clone(&guarded.good), Arc::new);
        if self.believed.0.get(source).is_none_or(|known| **known != *endpoints) {
            self.believed.0.insert(source.clone(), endpoints);
        }
        let grace = self.rule.grace;
        let held_until = guarded.held.as_ref().and_then(|held| held.confirmed);
        let due = held_until.map(|since| since.instant + grace).into_iter().chain(damped.until);
        let due = due.min();
        if let Some(old) = std::mem::replace(&mut guarded.due, due) {
            self.due.remove(&(old, source.clone()));
        }
        self.due.extend(due.map(|due| (due, source.clone())));
        let told = guarded.told.as_deref();
        let belief = GuardStatus {
            learned_at: guarded.learned_at,
            sighting: guarded.told.clone(),
            held: guarded.held.as_ref().map(|held| Held {
                since: held.since,
                until: held.confirmed.map(|since| since.timestamp + grace),
                before: held.before,
                left: told.map_or(0, |told| healthy(&told.endpoints).count()),
            }),
            flapping: damped.flapping,
            since: guarded.since.clone(),
        };
        if self.beliefs.get(source).is_none_or(|known| **known != belief) {
            self.beliefs.insert(source.clone(), Arc::new(belief));
        }
        self.guarded.insert(source.clone(), guarded);
    }
}

fn asks(service: &Service, provider: Provider) -> bool {
    let asked = service.endpoints.providers();
    asked.is_some_and(|asked| provider.is_external() && asked.ask(provider))
}

/// The answer that there is nobody.
fn nobody(at: Timestamp) -> ServiceReport {
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
