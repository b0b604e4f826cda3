//! The pauses before restarts of an Envoy that exits.

use std::time::Duration;

/// The pause after the second exit in a row. The first restart is immediate.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// An Envoy that lived as long is restarted immediately.
const STABLE: Duration = Duration::from_secs(60);

/// The state between restarts.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    exits: u32,
}

impl Backoff {
    /// The pause before the next start, after an Envoy that lived for `life`.
    pub(crate) fn next(&mut self, life: Duration) -> Duration {
        if life >= STABLE {
            self.exits = 0;
        }
        let pause = match self.exits.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST),
        };
        self.exits = self.exits.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_30_s_and_a_stable_life_resets_them() {
        let mut backoff = Backoff::default();
        let mut pauses = |lives: &[u64]| -> Vec<u128> {
            let pause = |life: &u64| backoff.next(Duration::from_secs(*life)).as_millis();
            lives.iter().map(pause).collect()
        };
        let short = [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000];
        assert_eq!(pauses(&[1; 9]), short);
        assert_eq!(pauses(&[60, 1, 59, 61]), [0, 500, 1000, 0]);
    }
}
