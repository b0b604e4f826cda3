//! Backoff: waits between attempts, with jitter.
//!
//! The jitter of [`Backoff::step`] and [`shortened`] takes up to a half off a wait: clients that fail together do not
//! retry together, and none waits for less than half. The jitter of [`spread`] adds up to an eighth: periodic requests
//! spread in time, and are never more frequent than configured. The random numbers need no seed: no output
//! follows from them.

use std::time::Duration;

/// Waits that double with each attempt up to a limit. Each is shortened at random by up to a half,
/// so that clients that start together do not retry together.
#[derive(Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff from `least` up to `most`.
    pub fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// Returns the wait before the next attempt.
    pub fn step(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.most);
        shortened(wait)
    }

    /// Whether the wait has reached its limit.
    pub fn is_longest(&self) -> bool {
        self.next >= self.most
    }

    /// Resets the wait to the shortest, after a success.
    pub fn reset(&mut self) {
        self.next = self.least;
    }
}

/// Returns the wait plus up to an eighth of it. Periodic requests spread in time, and are never
/// more frequent than `wait` allows.
pub fn spread(wait: Duration) -> Duration {
    wait + wait.saturating_sub(shortened(wait)) / 4
}

/// Returns a random wait between a half of it and all of it.
pub fn shortened(wait: Duration) -> Duration {
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
