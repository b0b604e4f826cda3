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
    /// The count of proxies that have not ACKed a change of the kind.
    pending: usize,
    /// When the first change that is not over was found.
    pub(super) since: Option<Instant>,
}

impl Default for Durations {
    fn default() -> Self {
        let kinds = Kind::ALL.map(|kind| {
            let histogram = Histogram::new(BOUNDS);
            KindDurations { kind, histogram, pending: 0, since: None }
        });
        Self { kinds }
    }
}

impl Durations {
    /// The durations of a kind of change, in seconds.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        self.kinds.iter().map(|one| (one.kind, &one.histogram))
    }

    /// How many connected proxies have not answered a change of a kind.
    pub(crate) fn pending(&self, kind: Kind) -> usize {
        self.kinds.iter().filter(|one| one.kind == kind).map(|one| one.pending).sum()
    }

    /// Notes that the entry of a proxy is replaced.
    pub(super) fn replace(&mut self, old: Option<&Laggard>, new: Option<&Laggard>, now: Instant) {
        for one in &mut self.kinds {
            // A NACK answers the change, and may last for days.
            let is_pending =
                |laggard: &Laggard| one.kind.of(laggard.measured) > 0 && !laggard.lag.is_nacked();
            match (old.is_some_and(is_pending), new.is_some_and(is_pending)) {
                (false, true) => {
                    one.pending += 1;
                    one.since.get_or_insert(now);
                }
                (true, false) => one.pending = one.pending.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Observes the changes that are over at the end of a pass.
    pub(super) fn end_pass(&mut self, now: Instant) {
        for one in self.kinds.iter_mut().filter(|one| one.pending == 0) {
            if let Some(since) = one.since.take() {
                one.histogram.observe((now - since).as_secs_f64());
            }
        }
    }
}
