//! How long a change takes, from the pass that finds it until every connected proxy that it touches has ACKed or NACKed
//! it.
//!
//! Changes of one kind that overlap count as one, from the first of them to the last answer. Proxies that disconnect
//! meanwhile do not count, nor does what a proxy receives because it connects.

use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::{Generations, Laggard};

/// The upper bounds of the histogram, in seconds.
const BOUNDS: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// So many pairs of changes have memory from the start.
const USUAL_PAIRS: usize = 16;

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Policy,
    Endpoints,
    Certificates,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Policy, Self::Endpoints, Self::Certificates];

    /// The value of the label of metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Endpoints => "endpoints",
            Self::Certificates => "certificates",
        }
    }

    /// The number of the newest change of this kind.
    pub(crate) fn of(self, generations: Generations) -> u64 {
        match self {
            Self::Policy => generations.policy,
            Self::Endpoints => generations.endpoints,
            Self::Certificates => generations.certificates,
        }
    }
}

/// The durations of the changes of each kind, and the changes that are not over. Copies share the durations.
#[derive(Debug, Clone)]
pub(crate) struct Durations {
    pub(super) kinds: [KindDurations; 3],
}

#[derive(Debug, Clone)]
pub(super) struct KindDurations {
    pub(super) kind: Kind,
    histogram: Histogram,
    /// The first and the last change of the kind that a proxy has not answered, with the count of such proxies. Few pairs,
    /// because a change touches many proxies, in their order, without an allocation for each change.
    pending: Vec<((u64, u64), usize)>,
    /// When the first change that is not over was found.
    pub(super) since: Option<Instant>,
}

impl Default for Durations {
    fn default() -> Self {
        let kinds = Kind::ALL.map(|kind| {
            let histogram = Histogram::new(BOUNDS);
            KindDurations { kind, histogram, pending: Vec::with_capacity(USUAL_PAIRS), since: None }
        });
        Self { kinds }
    }
}

impl Durations {
    /// The durations of a kind of change, in seconds.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        self.kinds.iter().map(|one| (one.kind, &one.histogram))
    }

    /// Whether a connected proxy has not answered this change of a kind. Of a proxy that has not answered several, those
    /// between the first and the last count too: which of them touched it is not kept.
    pub(crate) fn is_pending(&self, kind: Kind, number: u64) -> bool {
        let mut pending =
            self.kinds.iter().filter(|one| one.kind == kind).flat_map(|one| &one.pending);
        pending.any(|((first, last), _)| (*first..=*last).contains(&number))
    }

    /// Notes that the entry of a proxy is replaced.
    pub(super) fn replace(&mut self, old: Option<&Laggard>, new: Option<&Laggard>, now: Instant) {
        for one in &mut self.kinds {
            // A NACK answers the change, and may last for days.
            let pending = |laggard: &Laggard| {
                let (first, last) = (one.kind.of(laggard.first), one.kind.of(laggard.measured));
                (last > 0 && !laggard.lag.is_nacked()).then_some((first, last))
            };
            let (old, new) = (old.and_then(pending), new.and_then(pending));
            if old == new {
                continue;
            }
            if let Some(changes) = old {
                one.remove(changes);
            }
            if let Some(changes) = new {
                one.add(changes);
                one.since.get_or_insert(now);
            }
        }
    }

    /// Observes the changes that are over at the end of a pass.
    pub(super) fn end_pass(&mut self, now: Instant) {
        for one in self.kinds.iter_mut().filter(|one| one.pending.is_empty()) {
            if let Some(since) = one.since.take() {
                one.histogram.observe((now - since).as_secs_f64());
            }
        }
    }
}

impl KindDurations {
    /// Counts a proxy that has not answered these changes.
    fn add(&mut self, changes: (u64, u64)) {
        match self.find(changes) {
            Ok(index) => {
                if let Some((_, count)) = self.pending.get_mut(index) {
                    *count += 1;
                }
            }
            Err(index) => self.pending.insert(index, (changes, 1)),
        }
    }

    /// Counts one proxy less that has not answered these changes.
    fn remove(&mut self, changes: (u64, u64)) {
        let Ok(index) = self.find(changes) else { return };
        match self.pending.get_mut(index) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => {
                self.pending.remove(index);
            }
        }
    }

    fn find(&self, changes: (u64, u64)) -> Result<usize, usize> {
        self.pending.binary_search_by_key(&changes, |(changes, _)| *changes)
    }
}
