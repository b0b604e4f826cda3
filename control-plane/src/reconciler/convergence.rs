//! Convergence: which connected proxies have not ACKed everything, since when, and why.
//!
//! Each change of policy, endpoints or certificates has a number. A proxy that lags has an entry here with the numbers
//! of the changes that its set received meanwhile; all other connected proxies have ACKed everything. So an ACK costs the
//! entry of its proxy, a change costs the proxies that it touches, and the list of laggards costs its length.
//!
//! It never decides what a proxy is sent, and resources carry none of it (invariant 4).

mod durations;

use imbl::{OrdMap, Vector};
use ironmesh_catalog::{PolicyRevision, ProxyId};
use jiff::Timestamp;
use tokio::time::Instant;

pub(crate) use durations::{Durations, Kind};

/// The maximum number of earlier revisions that a wait reports as superseded; older ones are unknown.
const REMEMBERED_REVISIONS: usize = 256;

/// The numbers of the newest changes, by kind. The first change has number 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generations {
    /// Of policy: of its revision.
    pub(crate) policy: u64,
    /// Of endpoints, and of the proxies that there are.
    pub(crate) endpoints: u64,
    /// Of certificates and trust bundles.
    pub(crate) certificates: u64,
    /// Of the proxies that leave. (Each of these changes is one of endpoints, too.)
    pub(crate) leaves: u64,
}

impl Generations {
    /// The numbers of the kinds that have changed since `before`; 0 for the others.
    fn since(self, before: Self) -> Self {
        let changed = |now: u64, before: u64| if now > before { now } else { 0 };
        Self {
            policy: changed(self.policy, before.policy),
            endpoints: changed(self.endpoints, before.endpoints),
            certificates: changed(self.certificates, before.certificates),
            leaves: changed(self.leaves, before.leaves),
        }
    }

    /// These numbers, and those of `other` for the kinds without one.
    fn or(self, other: Self) -> Self {
        let or = |number: u64, other: u64| if number > 0 { number } else { other };
        Self {
            policy: or(self.policy, other.policy),
            endpoints: or(self.endpoints, other.endpoints),
            certificates: or(self.certificates, other.certificates),
            leaves: or(self.leaves, other.leaves),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            policy: self.policy.max(other.policy),
            endpoints: self.endpoints.max(other.endpoints),
            certificates: self.certificates.max(other.certificates),
            leaves: self.leaves.max(other.leaves),
        }
    }
}

/// Why a connected proxy lags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lag {
    /// It has not ACKed all of its set yet.
    Updating,
    /// It NACKs a resource, or others do so that it is withheld: a fallback is active.
    Nacked,
    /// A part of its set waits for other proxies, up to 15 s.
    Held,
}

impl Lag {
    /// Whether it answers a change, though not by an ACK.
    pub(crate) fn is_nacked(self) -> bool {
        self == Self::Nacked
    }
}

/// What a pass did to the set of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// It differs, or is to differ once other proxies are ready.
    Changed,
    /// The proxy has just connected, with whatever it has.
    Connected,
}

/// A connected proxy that has not ACKed everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Laggard {
    pub(crate) lag: Lag,
    /// Since when it has lagged.
    pub(crate) since: Timestamp,
    /// The newest changes that it has ACKed.
    pub(crate) acked: Generations,
    /// The newest changes that its set may have received since then; 0 for none of the kind.
    pub(crate) pending: Generations,
    /// Those of them that reached it while it was connected: how long they take is measured.
    pub(super) measured: Generations,
    /// The first changes that reached it while it was connected, and that it has not answered; 0 for none of the kind.
    pub(super) first: Generations,
}

impl Laggard {
    /// Whether it may lack this change of a kind, which reached it while it was connected.
    pub(super) fn lacks(&self, kind: Kind, number: u64) -> bool {
        (kind.of(self.first)..=kind.of(self.measured)).contains(&number)
    }
}

/// A proxy that was connected and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Departed {
    pub(crate) since: Timestamp,
    /// The newest changes that it had ACKed.
    pub(crate) acked: Generations,
    /// The newest changes that it had received and not ACKed; 0 for none of the kind.
    pub(super) pending: Generations,
}

impl Departed {
    /// Whether it had received this change of policy, or a later one, and had not ACKed it.
    pub(crate) fn was_lost_while_pending(&self, policy: u64) -> bool {
        self.pending.policy >= policy
    }
}

/// The revision that a wait names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The active revision, by the number of its change.
    Active(u64),
    /// It was active before: this one is now.
    Superseded(PolicyRevision),
    /// It was not active, as far as is remembered.
    Unknown,
}

/// The state of all proxies. A copy shares its structure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Convergence {
    generations: Generations,
    /// Those of the pass before.
    before: Generations,
    /// The latest revisions, the active one last.
    revisions: Vector<PolicyRevision>,
    /// The count of connected proxies.
    connected: usize,
    laggards: OrdMap<ProxyId, Laggard>,
    departed: OrdMap<ProxyId, Departed>,
    durations: Durations,
}

impl Convergence {
    /// The numbers of the newest changes.
    #[cfg(test)]
    pub(crate) fn generations(&self) -> Generations {
        self.generations
    }

    /// The active revision; none before the first.
    pub(crate) fn revision(&self) -> Option<&PolicyRevision> {
        self.revisions.back()
    }

    /// The revision whose change has this number, as far as it is remembered.
    pub(crate) fn revision_of(&self, policy: u64) -> Option<&PolicyRevision> {
        let age = usize::try_from(self.generations.policy.checked_sub(policy)?).ok()?;
        self.revisions.get(self.revisions.len().checked_sub(age + 1)?)
    }

    /// The count of connected proxies.
    pub(crate) fn connected(&self) -> usize {
        self.connected
    }

    /// How long the changes took until now.
    pub(crate) fn durations(&self) -> &Durations {
        &self.durations
    }

    /// All laggards.
    pub(crate) fn laggards(&self) -> &OrdMap<ProxyId, Laggard> {
        &self.laggards
    }

    /// The proxies that were connected and are not, since the control plane has run.
    pub(crate) fn departed(&self) -> &OrdMap<ProxyId, Departed> {
        &self.departed
    }

    /// What a revision is; the beginning of its text suffices.
    pub(crate) fn find(&self, revision: &str) -> Target {
        let is_it = |one: &&PolicyRevision| !revision.is_empty() && one.0.starts_with(revision);
        match (self.revision().filter(is_it), self.revision()) {
            (Some(_), _) => Target::Active(self.generations.policy),
            (None, Some(active)) if self.revisions.iter().any(|one| is_it(&one)) => {
                Target::Superseded(active.clone())
            }
            _ => Target::Unknown,
        }
    }

    /// The connected proxies that have not ACKed a change of policy, the newest or an earlier one: the active revision
    /// contains what they have not ACKed.
    pub(crate) fn pending_policy(&self) -> impl Iterator<Item = (&ProxyId, &Laggard)> {
        self.laggards.iter().filter(|(_, laggard)| laggard.pending.policy > 0)
    }

    /// The connected proxies that this change of leaving proxies touched, or a later one, and that have not ACKed it;
    /// without `leaving`, the proxy that leaves.
    pub(crate) fn pending_leave(
        &self,
        leaving: ProxyId,
        change: u64,
    ) -> impl Iterator<Item = ProxyId> {
        let pending = self
            .laggards
            .iter()
            .filter(move |(id, laggard)| laggard.pending.leaves >= change && **id != leaving);
        pending.map(|(id, _)| *id)
    }

    /// Whether this change of leaving proxies is published, and every connected proxy that it touches has ACKed it.
    pub(crate) fn has_acked_leave(&self, leaving: ProxyId, change: u64) -> bool {
        self.generations.leaves >= change && self.pending_leave(leaving, change).next().is_none()
    }

    /// The disconnected proxies that had received this change of policy, or a later one, and had not ACKed it: it may be
    /// what stopped them.
    pub(crate) fn lost_while_pending(
        &self,
        policy: u64,
    ) -> impl Iterator<Item = (&ProxyId, &Departed)> {
        self.departed.iter().filter(move |(_, departed)| departed.was_lost_while_pending(policy))
    }

    /// Begins a pass whose snapshot has these generations, and this revision of policy, with so many connected proxies.
    /// Returns whether one of them is news.
    pub(crate) fn begin_pass(
        &mut self,
        generations: Generations,
        revision: &PolicyRevision,
        connected: usize,
    ) -> bool {
        let was_connected = std::mem::replace(&mut self.connected, connected);
        if generations.policy > self.generations.policy {
            if self.revisions.len() == REMEMBERED_REVISIONS {
                self.revisions.pop_front();
            }
            self.revisions.push_back(revision.clone());
        }
        self.before = std::mem::replace(&mut self.generations, generations);
        self.before != generations || was_connected != connected
    }

    /// Notes the state of a connected proxy in this pass; no `lag` if it has ACKed everything. Returns whether that is
    /// news.
    pub(crate) fn examine(
        &mut self,
        proxy: ProxyId,
        effect: Effect,
        lag: Option<Lag>,
        now: Timestamp,
    ) -> bool {
        let departed = self.departed.remove(&proxy);
        let known = self.laggards.get(&proxy).cloned();
        let Some(lag) = lag else {
            self.laggards.remove(&proxy);
            self.durations.replace(known.as_ref(), None, Instant::now());
            return known.is_some() || departed.is_some();
        };
        let (generations, before) = (self.generations, self.before);
        let mut laggard = known.clone().unwrap_or_else(|| Laggard {
            lag,
            since: now,
            acked: match (departed, effect) {
                (Some(departed), _) => departed.acked,
                (None, Effect::None) => generations,
                (None, Effect::Changed) => before,
                (None, Effect::Connected) => Generations::default(),
            },
            pending: Generations::default(),
            measured: Generations::default(),
            first: Generations::default(),
        });
        let has_answered = laggard.lag.is_nacked();
        laggard.lag = lag;
        match effect {
            Effect::None => {}
            Effect::Changed => {
                let news = generations.since(before);
                laggard.pending = laggard.pending.max(news);
                laggard.measured = laggard.measured.max(news);
                let first = laggard.first;
                // A NACK has answered the changes before.
                laggard.first = if has_answered { news.or(first) } else { first.or(news) };
            }
            // What has changed while it was away is not known.
            Effect::Connected => laggard.pending = generations,
        }
        let is_news = known.as_ref() != Some(&laggard);
        if is_news {
            self.durations.replace(known.as_ref(), Some(&laggard), Instant::now());
            self.laggards.insert(proxy, laggard);
        }
        is_news
    }

    /// Ends a pass: changes that every proxy has ACKed are over.
    pub(crate) fn end_pass(&mut self) {
        self.durations.end_pass(Instant::now());
    }

    /// Notes that a proxy has disconnected: whether a pass had served it since it connected, and whether it had ACKed all
    /// that was published to it.
    pub(super) fn depart(
        &mut self,
        proxy: ProxyId,
        was_served: bool,
        was_synced: bool,
        now: Timestamp,
    ) {
        let laggard = self.laggards.remove(&proxy);
        self.durations.replace(laggard.as_ref(), None, Instant::now());
        let none = Generations::default();
        let (acked, pending) = match laggard {
            // Its last ACKs and its departure came between two passes.
            Some(Laggard { lag: Lag::Updating, .. }) if was_synced => (self.generations, none),
            Some(Laggard { acked, pending, .. }) => (acked, pending),
            None if was_served => (self.generations, none),
            // It came and went between two passes, and received nothing.
            None if self.departed.contains_key(&proxy) => return,
            None => (none, none),
        };
        self.departed.insert(proxy, Departed { since: now, acked, pending });
    }

    /// Forgets the disconnected proxies that are not in use any more.
    pub(super) fn retain_departed(&mut self, is_in_use: impl Fn(ProxyId) -> bool) {
        let unused = self.departed.keys().filter(|proxy| !is_in_use(**proxy));
        for proxy in unused.copied().collect::<Vec<_>>() {
            self.departed.remove(&proxy);
        }
    }
}

#[cfg(test)]
mod tests;
