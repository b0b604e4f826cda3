//! How long to wait before the next attempt.

use std::time::Duration;

/// Waits that double from one attempt to the next, up to a bound. Each is shortened by chance by up to
/// a half, so that many who begin together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// How long to wait now.
    pub(crate) fn step(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.most);
        shortened(wait)
    }

    /// Whether waits grow no more.
    pub(crate) fn is_longest(&self) -> bool {
        self.next >= self.most
    }

    /// All is well: the next wait is the shortest again.
    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }
}

/// It, or up to an eighth more: those who ask in turn again and again spread, and ask no more often than so.
pub(crate) fn spread(wait: Duration) -> Duration {
    wait + wait.saturating_sub(shortened(wait)) / 4
}

/// Between a half of it and all of it.
pub(crate) fn shortened(wait: Duration) -> Duration {
    wait.saturating_sub(wait * fastrand::u32(..512) / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_resets() {
        let [least, most] = [100, 2000].map(Duration::from_millis);
        let mut backoff = Backoff::new(least, most);
        for millis in [100, 200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(backoff.is_longest(), millis == 2000);
            let [low, high] = [millis / 2, millis].map(Duration::from_millis);
            let wait = backoff.step();
            assert!((low..=high).contains(&wait), "{wait:?} of {high:?}");
        }
        backoff.reset();
        assert!(backoff.step() <= least);
    }

    #[test]
    fn waits_differ_from_each_other() {
        let waits: Vec<_> = (0..100).map(|_| shortened(Duration::from_secs(8))).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }

    #[test]
    fn jitter_never_shortens_the_wait() {
        for _ in 0..100 {
            let wait = spread(Duration::from_secs(8));
            assert!((8..=9).contains(&wait.as_secs()), "{wait:?}");
        }
    }
}
