//! Flap damping: an endpoint that repeatedly appears and disappears, or changes its health, gets no
//! traffic until it has been quiet for a while.
//!
//! It counts changes per endpoint. It never removes an endpoint from the set.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ironmesh_catalog::{Endpoint, EndpointPlace, Health};
use tokio::time::Instant;

use super::shrink::healthy;

/// The number of changes within [`WINDOW`] that counts as flapping: three losses and three returns.
const CHANGES: usize = 6;

/// The time within which changes count.
const WINDOW: Duration = Duration::from_secs(60);

/// The time without a change after which a flapping endpoint gets traffic again.
pub(crate) const QUIET: Duration = Duration::from_secs(30);

/// The recent changes of health of one service's endpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Flaps(BTreeMap<EndpointPlace, Flap>);

#[derive(Debug, Clone, Default)]
struct Flap {
    /// The times of the latest changes, the newest last; [`CHANGES`] of them at most.
    changes: VecDeque<Instant>,
    is_flapping: bool,
}

/// The result of damping a set.
#[derive(Debug, Default)]
pub(super) struct Damped {
    /// The set in which flapping endpoints are unhealthy; `None` if no endpoint flaps.
    pub(super) endpoints: Option<Vec<Endpoint>>,
    /// The endpoints that get no traffic because they flap.
    pub(super) flapping: BTreeSet<EndpointPlace>,
    /// The time of the next look.
    pub(super) until: Option<Instant>,
}

impl Flaps {
    /// Records the differences between two reports.
    pub(super) fn note(&mut self, before: &[Endpoint], after: &[Endpoint], now: Instant) {
        let places = |set| healthy(set).map(Endpoint::place).collect::<BTreeSet<_>>();
        for place in places(before).symmetric_difference(&places(after)) {
            let flap = self.0.entry(*place).or_default();
            if flap.changes.len() == CHANGES {
                flap.changes.pop_front();
            }
            flap.changes.push_back(now);
            let first = flap.changes.front().filter(|_| flap.changes.len() == CHANGES);
            flap.is_flapping |= first.is_some_and(|first| now.duration_since(*first) <= WINDOW);
        }
    }

    /// Marks flapping endpoints as unhealthy: at most `most` of them, those with the latest changes
    /// first.
    pub(super) fn damp(&mut self, endpoints: &[Endpoint], most: usize, now: Instant) -> Damped {
        self.0.retain(|_, flap| {
            let quiet = flap.changes.back().map_or(QUIET, |last| now.duration_since(*last));
            flap.is_flapping &= quiet < QUIET;
            flap.is_flapping || quiet < WINDOW
        });
        let mut flapping: Vec<_> = self.0.iter().filter(|(_, flap)| flap.is_flapping).collect();
        flapping.sort_by_key(|(place, flap)| (Reverse(flap.changes.back()), **place));
        let places: BTreeSet<_> = healthy(endpoints).map(Endpoint::place).collect();
        flapping.retain(|(place, _)| places.contains(place));
        flapping.truncate(most);
        let until = flapping.iter().filter_map(|(_, flap)| Some(*flap.changes.back()? + QUIET));
        let until = until.min();
        let flapping: BTreeSet<_> = flapping.into_iter().map(|(place, _)| *place).collect();
        let damped = |one: &Endpoint| {
            let is_damped = flapping.contains(&one.place());
            let health = if is_damped { Health::Unhealthy } else { one.health };
            Endpoint { health, ..one.clone() }
        };
        let endpoints = (!flapping.is_empty()).then(|| endpoints.iter().map(damped).collect());
        Damped { endpoints, flapping, until }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Provider;

    use super::*;

    fn set(last: impl IntoIterator<Item = u8>) -> Vec<Endpoint> {
        let one = |last| Endpoint::new(Provider::Consul, [10, 0, 0, last].into());
        last.into_iter().map(one).collect()
    }

    /// Removes and restores endpoint 1 of three `times` times, with a second between changes.
    fn flap(flaps: &mut Flaps, times: u32, mut now: Instant) -> Instant {
        for _ in 0..times {
            now += Duration::from_secs(1);
            flaps.note(&set([1, 2, 3]), &set([2, 3]), now);
            now += Duration::from_secs(1);
            flaps.note(&set([2, 3]), &set([1, 2, 3]), now);
        }
        now
    }

    #[test]
    fn flapping_endpoint_gets_no_traffic_until_quiet() {
        let mut flaps = Flaps::default();
        let now = flap(&mut flaps, 2, Instant::now());
        let all = set([1, 2, 3]);
        assert_eq!(flaps.damp(&all, 1, now).endpoints, None);
        let now = flap(&mut flaps, 1, now);
        let damped = flaps.damp(&all, 1, now);
        assert_eq!(damped.flapping.iter().copied().collect::<Vec<_>>(), [all[0].place()]);
        assert_eq!(damped.until, Some(now + QUIET));
        let health: Vec<_> = damped.endpoints.unwrap().iter().map(|one| one.health).collect();
        assert_eq!(health, [Health::Unhealthy, Health::Healthy, Health::Healthy]);
        assert_eq!(flaps.damp(&all, 1, now + QUIET).endpoints, None);
    }

    #[test]
    fn slow_changes_do_not_count_as_flapping() {
        let mut flaps = Flaps::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            now = flap(&mut flaps, 1, now) + WINDOW / 2;
        }
        assert!(flaps.damp(&set([1, 2, 3]), 1, now).flapping.is_empty());
        flaps.damp(&[], 1, now + WINDOW);
        assert!(flaps.0.is_empty());
    }

    #[test]
    fn damping_stays_within_the_allowed_number() {
        let mut flaps = Flaps::default();
        let now = flap(&mut flaps, 3, Instant::now());
        assert_eq!(flaps.damp(&set([1]), 0, now).endpoints, None);
    }
}
