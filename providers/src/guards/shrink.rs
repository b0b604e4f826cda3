//! The shrink guard: a set of endpoints that is empty or much smaller at once is doubted.
//!
//! Whoever may not read, or has lost its memory, answers with an empty list and not with an error. So a
//! sudden loss is held back until somebody confirms it, or it has been told for long enough by a provider
//! that vouches for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{Endpoint, EndpointPlace, Health};

/// What is doubted, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShrinkRule {
    /// A set is doubted when it has, at once, less than this share (0 to 1) of the healthy endpoints that
    /// the set before had. With 0 none is.
    pub keep_share: f64,
    /// For how long a doubted set is held back that its provider vouches for.
    pub grace: Duration,
}

impl ShrinkRule {
    /// Whether so many of `good` are lost in `new` that it is doubted. Those that are drained were told to
    /// leave: they are not lost.
    pub(super) fn doubts(&self, good: &[Endpoint], new: &[Endpoint]) -> bool {
        let before: BTreeSet<_> = healthy(good).map(Endpoint::place).collect();
        let is_leaving =
            |one: &&Endpoint| one.health == Health::Draining && before.contains(&one.place());
        let left = healthy(new).count() + new.iter().filter(is_leaving).count();
        !before.is_empty() && self.keep_share > 0.0 && is_less(left, self.keep_share, before.len())
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
            assert_eq!(RULE.doubts(&set(before), &set(after)), is_doubted, "{before} → {after}");
        }
        let never = ShrinkRule { keep_share: 0.0, ..RULE };
        assert!(!never.doubts(&set("1 2"), &set("")));
        let always = ShrinkRule { keep_share: 1.0, ..RULE };
        assert!(always.doubts(&set("1 2 3"), &set("1 2")) && !always.doubts(&set("1"), &set("1")));
    }

    #[test]
    fn while_it_is_doubted_nobody_is_lost_and_who_is_new_is_there() {
        let held = without_loss(&set("1 2 -3 4"), &set("-1 3 ~4 5"));
        assert_eq!(held, set("1 2 3 ~4 5"));
    }
}
