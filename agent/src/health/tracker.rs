//! The state of one application by the outcomes of its probes. Pure: no clock, no IO.

use ironmesh_catalog::{ApplicationState, HealthCheck};

/// The state of an application, damped by the thresholds of its health check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProbeTracker {
    /// Unknown until the first success: an application that starts slowly is not unhealthy.
    pub(super) state: ApplicationState,
    /// Why the last probe failed; none if it succeeded.
    pub(super) last_error: Option<String>,
    /// The outcomes in a row that contradict the state.
    contradicting: u32,
}

impl ProbeTracker {
    /// Notes the outcome of a probe. Returns whether the state has changed.
    pub(super) fn note(&mut self, outcome: Result<(), String>, check: &HealthCheck) -> bool {
        let is_success = outcome.is_ok();
        self.last_error = outcome.err();
        let (next, threshold) = match (self.state, is_success) {
            (ApplicationState::Healthy, true)
            | (ApplicationState::Unhealthy | ApplicationState::Unknown, false) => {
                self.contradicting = 0;
                return false;
            }
            // The first success suffices: callers use an unknown application already.
            (ApplicationState::Unknown, true) => (ApplicationState::Healthy, 1),
            (ApplicationState::Unhealthy, true) => {
                (ApplicationState::Healthy, check.healthy_threshold)
            }
            (ApplicationState::Healthy, false) => {
                (ApplicationState::Unhealthy, check.unhealthy_threshold)
            }
        };
        self.contradicting += 1;
        if self.contradicting < threshold {
            return false;
        }
        (self.state, self.contradicting) = (next, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Probe;

    use super::*;
    use ApplicationState::{Healthy, Unhealthy, Unknown};

    fn check(unhealthy_threshold: u32, healthy_threshold: u32) -> HealthCheck {
        HealthCheck {
            port: 80,
            probe: Probe::Tcp,
            interval: HealthCheck::INTERVAL,
            timeout: HealthCheck::TIMEOUT,
            unhealthy_threshold,
            healthy_threshold,
        }
    }

    /// The states after each outcome: `+` is a success, `-` a failure.
    fn states(outcomes: &str, check: &HealthCheck) -> Vec<ApplicationState> {
        let mut tracker = ProbeTracker::default();
        let outcome = |one| if one == '+' { Ok(()) } else { Err("failed".to_owned()) };
        let mut state = |one| {
            let before = tracker.state;
            let is_changed = tracker.note(outcome(one), check);
            assert_eq!(is_changed, before != tracker.state);
            tracker.state
        };
        outcomes.chars().map(&mut state).collect()
    }

    #[test]
    fn slow_start_is_unknown_until_the_first_success() {
        assert_eq!(states("-----", &check(1, 1)), [Unknown; 5]);
        assert_eq!(states("---+", &check(3, 9)), [Unknown, Unknown, Unknown, Healthy]);
    }

    #[test]
    fn thresholds_count_outcomes_in_a_row() {
        let expected = [Healthy, Healthy, Healthy, Unhealthy, Unhealthy, Healthy];
        assert_eq!(states("+---++", &check(3, 2)), expected);
        assert_eq!(states("+-+-+-+-", &check(2, 1)), [Healthy; 8], "flaps are damped");
        let alternating = states("+--+-+-+-", &check(2, 2));
        assert_eq!(alternating[2..], [Unhealthy; 7], "and do not return it");
    }

    /// Every sequence of outcomes: a state changes only after its threshold of equal outcomes in a row.
    #[test]
    fn state_follows_the_last_outcomes_alone() {
        for bits in 0_u32..1 << 12 {
            let outcomes: String =
                (0..12).map(|bit| if bits >> bit & 1 == 1 { '+' } else { '-' }).collect();
            for (unhealthy, healthy) in [(1, 1), (3, 2), (2, 4)] {
                let states = states(&outcomes, &check(unhealthy, healthy));
                let mut before = Unknown;
                for (at, state) in states.into_iter().enumerate() {
                    let until = &outcomes[..=at];
                    let row = |count: u32, one: &str| until.ends_with(&one.repeat(count as usize));
                    match (before, state) {
                        (Healthy, Unhealthy) => assert!(row(unhealthy, "-"), "{until}"),
                        (Unhealthy, Healthy) => assert!(row(healthy, "+"), "{until}"),
                        (Unknown, Healthy) => assert!(until.ends_with('+'), "{until}"),
                        (before, after) => assert_eq!(before, after, "{until}"),
                    }
                    assert!(state != Healthy || !row(unhealthy, "-"), "{until}");
                    before = state;
                }
            }
        }
    }
}
