//! The shrink guard: a set of endpoints that is empty or much smaller at once is doubted.
//!
//! Whoever may not read, or has lost its memory, answers with an empty list and not with an error. So a
//! sudden loss is held back until somebody confirms it, or it has been told for long enough by a provider
//! that vouches for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ironmesh_catalog::{Endpoint, EndpointPlace, Health};
use tokio::time::Instant;

/// What is doubted, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShrinkRule {
    /// A set is doubted when it has, at once or within the grace, less than this share (0 to 1) of the
    /// healthy endpoints that there were. With 0 none is.
    pub keep_share: f64,
    /// For how long a doubted set is held back that its provider vouches for, and for how long it is
    /// remembered how many there were.
    pub grace: Duration,
}

/// How many endpoints a set had lately. A loss in many small steps is a loss: a provider tells of each step
/// when it sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// How many were healthy, and when they last were: only those sizes of which no later one is as large.
    sizes: VecDeque<(Instant, usize)>,
}

impl Recent {
    /// How many there were within `window` up to now, and `good` has now. So many of them are told to leave
    /// (`leaving`): these are not missed.
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

    /// Up to now there were so many.
    pub(super) fn take(&mut self, size: usize, now: Instant) {
        while self.sizes.back().is_some_and(|(_, smaller)| *smaller <= size) {
            self.sizes.pop_back();
        }
        self.sizes.push_back((now, size));
    }

    /// What was is not compared with any more.
    pub(super) fn forget(&mut self) {
        self.sizes.clear();
    }
}

/// How many of the healthy of `good` are told to leave.
pub(super) fn leaving(good: &[Endpoint], told: &[Endpoint]) -> usize {
    let known: BTreeSet<_> = healthy(good).map(Endpoint::place).collect();
    let draining = told.iter().filter(|one| one.health == Health::Draining);
    draining.filter(|one| known.contains(&one.place())).count()
}

/// Whether somebody of `good` is lost in `told`.
pub(super) fn is_lossy(good: &[Endpoint], told: &[Endpoint]) -> bool {
    let left: BTreeSet<_> =
        told.iter().filter(|one| one.health != Health::Unhealthy).map(Endpoint::place).collect();
    healthy(good).any(|one| !left.contains(&one.place()))
}

impl ShrinkRule {
    /// Whether it is doubted that of `before` so many are `left`.
    pub(super) fn doubts(&self, before: usize, left: usize) -> bool {
        before > 0 && self.keep_share > 0.0 && is_less(left, self.keep_share, before)
    }
}

impl ShrinkRule {
    /// How many of so many healthy endpoints may be kept from traffic because they flap: damping must not
    /// do what is doubted of others.
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

/// Whether `left` is less than this share of `before`; nothing at all always is.
#[expect(clippy::cast_precision_loss, reason = "sets of endpoints have fewer than 2^52 members")]
fn is_less(left: usize, share: f64, before: usize) -> bool {
    left == 0 || (left as f64) < share * before as f64
}

/// `good`, in which those are drained that are told to leave: when they are gone they are not called again.
pub(super) fn with_drained(good: &[Endpoint], told: &[Endpoint]) -> Vec<Endpoint> {
    let draining = told.iter().filter(|one| one.health == Health::Draining);
    let draining: BTreeMap<_, _> = draining.map(|one| (one.place(), one)).collect();
    good.iter().map(|one| draining.get(&one.place()).map_or(one, |told| told)).cloned().collect()
}

/// The endpoints that take traffic.
pub(super) fn healthy(endpoints: &[Endpoint]) -> impl Iterator<Item = &Endpoint> {
    endpoints.iter().filter(|one| one.health == Health::Healthy)
}

/// What is believed while `new` is doubted: nobody of `good` is lost, and who is new is welcome.
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

    /// Endpoints at these last bytes of an address; what follows a `-` is unhealthy, a `~` draining.
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
        for (before, after, is_doubted) in [
            ("1 2 3 4", "1 2", false),
            ("1 2 3 4", "1", true),
            ("1 2 3 4", "1 -2 -3 -4", true),
            ("1 2 3 4", "1 -2", true),
            ("1 2 3", "1 2", false),
            ("1 2 3", "1", true),
            ("1 2", "2", false),
            ("1", "", true),
            ("1", "-1", true),
            // Told to leave, and not lost.
            ("1", "~1", false),
            ("1 2 3 4", "~1 ~2 ~3 ~4", false),
            // Others in their place, as many as before.
            ("1 2 3", "4 5 6", false),
            // Nothing was there to be lost.
            ("", "", false),
            ("-1 -2", "", false),
            ("-1 2", "-1 2", false),
        ] {
            assert_eq!(doubts(RULE, before, after), is_doubted, "{before} → {after}");
        }
        let never = ShrinkRule { keep_share: 0.0, ..RULE };
        assert!(!doubts(never, "1 2", ""));
        let always = ShrinkRule { keep_share: 1.0, ..RULE };
        assert!(doubts(always, "1 2 3", "1 2") && !doubts(always, "1", "1"));
    }

    /// What the guard does with each set that is told: whether it is doubted, as long as none was.
    struct Guard {
        recent: Recent,
        good: Vec<Endpoint>,
        now: Instant,
    }

    impl Guard {
        fn new(good: &str) -> Self {
            Self { recent: Recent::default(), good: set(good), now: Instant::now() }
        }

        fn doubts(&mut self, rule: ShrinkRule, told: &str) -> bool {
            let told = set(told);
            let (size, leaving) = (healthy(&self.good).count(), leaving(&self.good, &told));
            let before = self.recent.before(size, leaving, rule.grace, self.now);
            let is_doubted = rule.doubts(before, healthy(&told).count());
            self.recent.take(size - leaving, self.now);
            self.recent.take(healthy(&told).count(), self.now);
            self.good = told;
            is_doubted
        }
    }

    fn doubts(rule: ShrinkRule, before: &str, after: &str) -> bool {
        Guard::new(before).doubts(rule, after)
    }

    /// Tells sets one after the other; says at which the first doubt comes.
    fn first_doubt(sets: &[&str], apart: Duration) -> Option<usize> {
        let mut guard = Guard::new("");
        sets.iter().position(|told| {
            guard.now += apart;
            guard.doubts(RULE, told)
        })
    }

    #[test]
    fn shrinkage_in_two_steps_after_quiet_is_held_back() {
        let (all, some, few) = ("1 2 3 4 5 6 7 8 9 10", "1 2 3 4 5 6", "1 2 3 4");
        let mut guard = Guard::new(all);
        guard.now += Duration::from_secs(3600);
        assert!(!guard.doubts(RULE, some));
        assert!(guard.doubts(RULE, few));
    }

    #[test]
    fn drained_endpoints_do_not_count_as_shrinkage() {
        let mut guard = Guard::new("1 2 3");
        for told in ["~1 ~2 ~3 4 5 6", "4 5 6"] {
            assert!(!guard.doubts(RULE, told), "{told}");
        }
        assert!(guard.doubts(RULE, ""), "those that came in place of the drained");
        let mut guard = Guard::new("1 2 3");
        for told in ["~1 2 3", "1 2 3"] {
            assert!(!guard.doubts(RULE, told), "{told}");
        }
        assert!(guard.doubts(RULE, ""), "one that was drained and came back");
    }

    #[test]
    fn gradual_shrinkage_within_the_grace_is_held_back() {
        let steps = ["1 2 3 4 5", "1 2 3 4", "1 2 3", "1 2", "1", ""];
        assert_eq!(first_doubt(&steps, Duration::from_secs(1)), Some(3));
        // By and by it is none, but for the last one.
        assert_eq!(first_doubt(&steps, Duration::from_secs(61)), Some(5));
        // Who is drained first is told to leave, and then it may be gone.
        let drained = ["1 2 3", "~1 2 3", "2 3", "~2 3", "3", "~3", ""];
        assert_eq!(first_doubt(&drained, Duration::from_secs(1)), None);
        // A restart of all, one after the other.
        let rolling = ["1 2 3", "2 3", "1 2 3", "1 3", "1 2 3", "1 2", "1 2 3"];
        assert_eq!(first_doubt(&rolling, Duration::from_secs(1)), None);
        // Others in their place, again and again.
        let replaced = ["1 2 3", "4 5 6", "7 8 9", "10 11 12"];
        assert_eq!(first_doubt(&replaced, Duration::from_secs(1)), None);
    }

    #[test]
    fn held_back_set_loses_no_endpoint_and_gains_new_ones() {
        let held = without_loss(&set("1 2 -3 4"), &set("-1 3 ~4 5"));
        assert_eq!(held, set("1 2 3 ~4 5"));
    }
}
