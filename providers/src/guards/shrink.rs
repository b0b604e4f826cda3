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

/// How a set has fared lately. A loss in many small steps is a loss: a provider tells of each step when it
/// sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// How many were healthy, and when: only those sizes of which no later one is as large.
    sizes: VecDeque<(Instant, usize)>,
    /// Those that were told to leave, and when: they are not lost.
    leaving: BTreeMap<EndpointPlace, Instant>,
}

impl Recent {
    /// Whether so many are lost in `told` of what was believed within `rule.grace` that it is doubted.
    pub(super) fn doubts(
        &mut self,
        rule: &ShrinkRule,
        good: &[Endpoint],
        told: &[Endpoint],
        now: Instant,
    ) -> bool {
        let is_recent = |at: Instant| now.duration_since(at) <= rule.grace;
        while self.sizes.front().is_some_and(|(at, _)| !is_recent(*at)) {
            self.sizes.pop_front();
        }
        let known: BTreeSet<_> = healthy(good).map(Endpoint::place).collect();
        for one in told.iter().filter(|one| known.contains(&one.place())) {
            match one.health {
                Health::Draining => drop(self.leaving.insert(one.place(), now)),
                Health::Healthy => drop(self.leaving.remove(&one.place())),
                Health::Unhealthy => {}
            }
        }
        self.leaving.retain(|_, at| is_recent(*at));
        let left = healthy(told).count() + self.leaving.len();
        let before = self.before(good);
        before > 0 && rule.keep_share > 0.0 && is_less(left, rule.keep_share, before)
    }

    /// How many there were, of those that are missed now.
    pub(super) fn before(&self, good: &[Endpoint]) -> usize {
        let peak = self.sizes.front().map_or(0, |(_, size)| *size);
        peak.max(healthy(good).count())
    }

    /// So many are believed now.
    pub(super) fn take(&mut self, good: &[Endpoint], now: Instant) {
        let size = healthy(good).count();
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
        (healthy as f64 * (1.0 - self.keep_share)).floor() as usize
    }
}

/// Whether `left` is less than this share of `before`; nothing at all always is.
#[expect(clippy::cast_precision_loss, reason = "sets of endpoints have fewer than 2^52 members")]
fn is_less(left: usize, share: f64, before: usize) -> bool {
    left == 0 || (left as f64) < share * before as f64
}

/// The endpoints that take traffic.
pub(super) fn healthy(endpoints: &[Endpoint]) -> impl Iterator<Item = &Endpoint> {
    endpoints.iter().filter(|one| one.health == Health::Healthy)
}

/// Whether anybody of `good` who took traffic is lost in `new`.
pub(super) fn loses(good: &[Endpoint], new: &[Endpoint]) -> bool {
    let there = new.iter().filter(|one| one.health != Health::Unhealthy);
    let there: BTreeSet<_> = there.map(Endpoint::place).collect();
    healthy(good).any(|one| !there.contains(&one.place()))
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
    fn a_sudden_loss_is_doubted_and_nothing_else() {
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

    fn doubts(rule: ShrinkRule, before: &str, after: &str) -> bool {
        Recent::default().doubts(&rule, &set(before), &set(after), Instant::now())
    }

    /// Tells sets one after the other, a second apart; says at which the first doubt comes.
    fn first_doubt(sets: &[&str], apart: Duration) -> Option<usize> {
        let (mut recent, mut now, mut good) = (Recent::default(), Instant::now(), Vec::new());
        for (number, told) in sets.iter().enumerate() {
            now += apart;
            if recent.doubts(&RULE, &good, &set(told), now) {
                return Some(number);
            }
            good = set(told);
            recent.take(&good, now);
        }
        None
    }

    #[test]
    fn a_loss_in_small_steps_is_a_loss() {
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
    fn while_it_is_doubted_nobody_is_lost_and_who_is_new_is_there() {
        let held = without_loss(&set("1 2 -3 4"), &set("-1 3 ~4 5"));
        assert_eq!(held, set("1 2 3 ~4 5"));
    }
}
