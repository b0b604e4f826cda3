//! The shrink guard: it holds back a set of endpoints that is empty or suddenly much smaller.
//!
//! A source without the right to read, or without its memory, answers with an empty list and not
//! with an error. The guard therefore holds back a sudden loss until an operator accepts it, or
//! until an authoritative provider has reported it for the grace period.
//!
//! This module only compares sets. It never keeps the state of a hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ironmesh_catalog::{Endpoint, EndpointPlace, Health};
use tokio::time::Instant;

/// The size of a loss that is held back, and the time for which it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShrinkRule {
    /// The share (0 to 1) of healthy endpoints that a set must keep, at once or within the grace
    /// period. With 0 the guard holds back nothing.
    pub keep_share: f64,
    /// The time for which an authoritative loss is held back, and for which earlier sizes count.
    pub grace: Duration,
}

/// The recent sizes of a set. They make a loss in many small steps visible: a provider reports each
/// step separately.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// The number of healthy endpoints and the last time it held: only sizes that no later one
    /// reaches.
    sizes: VecDeque<(Instant, usize)>,
}

impl Recent {
    /// Returns the largest size within `window` up to now, including the size `good` now. The
    /// `leaving` endpoints drain, and do not count.
    pub(super) fn before(
        &mut self,
        good: usize,
        leaving: usize,
        window: Duration,
        now: Instant,
    ) -> usize {
        while self.sizes.front().is_some_and(|(at, _)| now.duration_since(*at) > window) {
            self.sizes.pop_front();
        }
        for (_, size) in &mut self.sizes {
            *size = size.saturating_sub(leaving);
        }
        let peak = self.sizes.front().map_or(0, |(_, size)| *size);
        peak.max(good.saturating_sub(leaving))
    }

    /// Records the size that the set had until now.
    pub(super) fn take(&mut self, size: usize, now: Instant) {
        while self.sizes.back().is_some_and(|(_, smaller)| *smaller <= size) {
            self.sizes.pop_back();
        }
        self.sizes.push_back((now, size));
    }

    /// Forgets all sizes.
    pub(super) fn forget(&mut self) {
        self.sizes.clear();
    }
}

/// Counts the healthy endpoints of `good` that drain in `report`.
pub(super) fn leaving(good: &[Endpoint], report: &[Endpoint]) -> usize {
    let known: BTreeSet<_> = healthy(good).map(Endpoint::place).collect();
    let draining = report.iter().filter(|one| one.health == Health::Draining);
    draining.filter(|one| known.contains(&one.place())).count()
}

/// Whether a healthy endpoint of `good` is missing or unhealthy in `report`.
pub(super) fn is_lossy(good: &[Endpoint], report: &[Endpoint]) -> bool {
    let left: BTreeSet<_> =
        report.iter().filter(|one| one.health != Health::Unhealthy).map(Endpoint::place).collect();
    healthy(good).any(|one| !left.contains(&one.place()))
}

impl ShrinkRule {
    /// Whether the guard holds back a set of `left` after one of `before`.
    pub(super) fn holds_back(&self, before: usize, left: usize) -> bool {
        before > 0 && self.keep_share > 0.0 && is_less(left, self.keep_share, before)
    }
}

impl ShrinkRule {
    /// The largest number of healthy endpoints that damping may take from traffic: damping must not
    /// cause a loss that the guard would hold back.
    #[expect(clippy::cast_precision_loss, reason = "as in `is_less`")]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count"
    )]
    pub(super) fn most_damped(&self, healthy: usize) -> usize {
        let most = (healthy as f64 * (1.0 - self.keep_share)).floor() as usize;
        most.min(healthy.saturating_sub(1))
    }
}

/// Whether `left` is less than this share of `before`; an empty set always is.
#[expect(clippy::cast_precision_loss, reason = "sets of endpoints have fewer than 2^52 members")]
fn is_less(left: usize, share: f64, before: usize) -> bool {
    left == 0 || (left as f64) < share * before as f64
}

/// Returns `good` with the endpoints that drain in `report`: when they are gone, callers do not use
/// them again.
pub(super) fn with_drained(good: &[Endpoint], report: &[Endpoint]) -> Vec<Endpoint> {
    let draining = report.iter().filter(|one| one.health == Health::Draining);
    let draining: BTreeMap<_, _> = draining.map(|one| (one.place(), one)).collect();
    good.iter()
        .map(|one| draining.get(&one.place()).map_or(one, |report| report))
        .cloned()
        .collect()
}

/// The endpoints that take traffic.
pub(super) fn healthy(endpoints: &[Endpoint]) -> impl Iterator<Item = &Endpoint> {
    endpoints.iter().filter(|one| one.health == Health::Healthy)
}

/// Returns the set to use while `new` is held back: no endpoint of `good` is lost, and new ones are
/// added.
pub(super) fn without_loss(good: &[Endpoint], new: &[Endpoint]) -> Vec<Endpoint> {
    let mut all: BTreeMap<EndpointPlace, &Endpoint> =
        good.iter().map(|one| (one.place(), one)).collect();
    for one in new {
        let is_loss =
            |known: &&Endpoint| known.health == Health::Healthy && one.health == Health::Unhealthy;
        if !all.get(&one.place()).is_some_and(is_loss) {
            all.insert(one.place(), one);
        }
    }
    all.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Provider;

    use super::*;

    const RULE: ShrinkRule = ShrinkRule { keep_share: 0.5, grace: Duration::from_secs(60) };

    /// Endpoints with these last bytes of an address; the prefix `-` marks an unhealthy one, `~` a
    /// draining one.
    fn set(text: &str) -> Vec<Endpoint> {
        let one = |word: &str| {
            let health = match word.as_bytes()[0] {
                b'-' => Health::Unhealthy,
                b'~' => Health::Draining,
                _ => Health::Healthy,
            };
            let last: u8 = word.trim_start_matches(['-', '~']).parse().unwrap();
            Endpoint { health, ..Endpoint::new(Provider::Consul, [10, 0, 0, last].into()) }
        };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn only_sudden_shrinkage_is_held_back() {
        for (before, after, is_held_back) in [
            ("1 2 3 4", "1 2", false),
            ("1 2 3 4", "1", true),
            ("1 2 3 4", "1 -2 -3 -4", true),
            ("1 2 3 4", "1 -2", true),
            ("1 2 3", "1 2", false),
            ("1 2 3", "1", true),
            ("1 2", "2", false),
            ("1", "", true),
            ("1", "-1", true),
            // Draining endpoints are not lost.
            ("1", "~1", false),
            ("1 2 3 4", "~1 ~2 ~3 ~4", false),
            // Replaced endpoints, as many as before.
            ("1 2 3", "4 5 6", false),
            // There was nothing to lose.
            ("", "", false),
            ("-1 -2", "", false),
            ("-1 2", "-1 2", false),
        ] {
            assert_eq!(holds_back(RULE, before, after), is_held_back, "{before} → {after}");
        }
        let never = ShrinkRule { keep_share: 0.0, ..RULE };
        assert!(!holds_back(never, "1 2", ""));
        let always = ShrinkRule { keep_share: 1.0, ..RULE };
        assert!(holds_back(always, "1 2 3", "1 2") && !holds_back(always, "1", "1"));
    }

    /// Counts sizes as the guard does, and tracks whether it holds back a report.
    struct Guard {
        recent: Recent,
        good: Vec<Endpoint>,
        now: Instant,
    }

    impl Guard {
        fn new(good: &str) -> Self {
            Self { recent: Recent::default(), good: set(good), now: Instant::now() }
        }

        fn holds_back(&mut self, rule: ShrinkRule, report: &str) -> bool {
            let report = set(report);
            let (size, leaving) = (healthy(&self.good).count(), leaving(&self.good, &report));
            let before = self.recent.before(size, leaving, rule.grace, self.now);
            let is_held_back = rule.holds_back(before, healthy(&report).count());
            self.recent.take(size - leaving, self.now);
            self.recent.take(healthy(&report).count(), self.now);
            self.good = report;
            is_held_back
        }
    }

    fn holds_back(rule: ShrinkRule, before: &str, after: &str) -> bool {
        Guard::new(before).holds_back(rule, after)
    }

    /// Reports the sets one by one, and returns the index of the first that is held back.
    fn first_doubt(sets: &[&str], apart: Duration) -> Option<usize> {
        let mut guard = Guard::new("");
        sets.iter().position(|report| {
            guard.now += apart;
            guard.holds_back(RULE, report)
        })
    }

    #[test]
    fn shrinkage_in_two_steps_after_quiet_is_held_back() {
        let (all, some, few) = ("1 2 3 4 5 6 7 8 9 10", "1 2 3 4 5 6", "1 2 3 4");
        let mut guard = Guard::new(all);
        guard.now += Duration::from_secs(3600);
        assert!(!guard.holds_back(RULE, some));
        assert!(guard.holds_back(RULE, few));
    }

    #[test]
    fn drained_endpoints_do_not_count_as_shrinkage() {
        let mut guard = Guard::new("1 2 3");
        for report in ["~1 ~2 ~3 4 5 6", "4 5 6"] {
            assert!(!guard.holds_back(RULE, report), "{report}");
        }
        assert!(guard.holds_back(RULE, ""), "those that came in place of the drained");
        let mut guard = Guard::new("1 2 3");
        for report in ["~1 2 3", "1 2 3"] {
            assert!(!guard.holds_back(RULE, report), "{report}");
        }
        assert!(guard.holds_back(RULE, ""), "one that was drained and came back");
    }

    #[test]
    fn gradual_shrinkage_within_the_grace_is_held_back() {
        let steps = ["1 2 3 4 5", "1 2 3 4", "1 2 3", "1 2", "1", ""];
        assert_eq!(first_doubt(&steps, Duration::from_secs(1)), Some(3));
        // Slow shrinkage is not held back, except for the last endpoint.
        assert_eq!(first_doubt(&steps, Duration::from_secs(61)), Some(5));
        // A drained endpoint may disappear.
        let drained = ["1 2 3", "~1 2 3", "2 3", "~2 3", "3", "~3", ""];
        assert_eq!(first_doubt(&drained, Duration::from_secs(1)), None);
        // A rolling restart.
        let rolling = ["1 2 3", "2 3", "1 2 3", "1 3", "1 2 3", "1 2", "1 2 3"];
        assert_eq!(first_doubt(&rolling, Duration::from_secs(1)), None);
        // Repeated replacement.
        let replaced = ["1 2 3", "4 5 6", "7 8 9", "10 11 12"];
        assert_eq!(first_doubt(&replaced, Duration::from_secs(1)), None);
    }

    #[test]
    fn held_back_set_loses_no_endpoint_and_gains_new_ones() {
        let held = without_loss(&set("1 2 -3 4"), &set("-1 3 ~4 5"));
        assert_eq!(held, set("1 2 3 ~4 5"));
    }
}
