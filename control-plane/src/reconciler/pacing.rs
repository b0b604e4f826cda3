//! Debouncing: whether a change is acted on at once or together with those that follow.

use std::time::Duration;

use tokio::time::Instant;

/// The origin of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A source: policy, endpoints, or the register's membership.
    Source,
    /// The clients, by connecting, disconnecting or answering; or the clock.
    Clients,
}

/// Decides when the reconciler runs. The first change starts a pass at once; changes within a window after it start
/// one pass together when the window closes.
///
/// Clients answer each push in a wave, which opens a window for clients only: a source change does not wait for
/// their answers.
#[derive(Debug)]
pub(super) struct Pacing {
    /// The length of a window.
    settle: Duration,
    /// When the windows of sources and of clients close.
    closes: Windows<Option<Instant>>,
    /// The causes with a change since the last pass.
    changed: Windows<bool>,
}

#[derive(Debug, Default)]
struct Windows<T> {
    sources: T,
    clients: T,
}

impl Pacing {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, closes: Windows::default(), changed: Windows::default() }
    }

    /// Notes a change.
    pub(super) fn changed(&mut self, cause: Cause) {
        match cause {
            Cause::Source => self.changed.sources = true,
            Cause::Clients => self.changed.clients = true,
        }
    }

    /// When the next pass is due; none without a change.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let of = |changed: bool, closes: Option<Instant>| changed.then(|| closes.unwrap_or(now));
        let sources = of(self.changed.sources, self.closes.sources);
        let clients = of(self.changed.clients, self.closes.clients);
        sources.into_iter().chain(clients).min()
    }

    /// Notes that a pass handles all changes so far.
    pub(super) fn act(&mut self, now: Instant) {
        let closes = Some(now + self.settle);
        if self.changed.sources {
            self.closes.sources = closes;
        }
        self.closes.clients = closes;
        self.changed = Windows::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(100);
    const MOMENT: Duration = Duration::from_millis(10);

    /// When a pass is due for a change that happens now.
    fn due(pacing: &mut Pacing, cause: Cause, now: Instant) -> Option<Instant> {
        pacing.changed(cause);
        pacing.due(now).map(|due| due.max(now))
    }

    #[test]
    fn first_change_runs_at_once_and_a_burst_is_debounced() {
        for cause in [Cause::Source, Cause::Clients] {
            let begin = Instant::now();
            let mut pacing = Pacing::new(SETTLE);
            assert_eq!(pacing.due(begin), None, "nothing has changed");
            assert_eq!(due(&mut pacing, cause, begin), Some(begin));
            pacing.act(begin);
            assert_eq!(pacing.due(begin), None);
            for moment in 1..5 {
                let now = begin + MOMENT * moment;
                assert_eq!(due(&mut pacing, cause, now), Some(begin + SETTLE), "{cause:?}");
            }
            // After a quiet window the next change is a first one.
            pacing.act(begin + SETTLE);
            let quiet = begin + SETTLE * 3;
            assert_eq!(due(&mut pacing, cause, quiet), Some(quiet));
        }
    }

    #[test]
    fn source_change_does_not_wait_for_debounced_client_answers() {
        let begin = Instant::now();
        let mut pacing = Pacing::new(SETTLE);
        // A wave, of which each part is handled when the window closes.
        for part in 0..5 {
            let now = begin + SETTLE * part;
            assert_eq!(due(&mut pacing, Cause::Clients, now), Some(now));
            pacing.act(now);
        }
        let now = begin + SETTLE * 4 + MOMENT;
        assert_eq!(
            due(&mut pacing, Cause::Clients, now),
            Some(begin + SETTLE * 5),
            "the next part"
        );
        assert_eq!(due(&mut pacing, Cause::Source, now), Some(now));
        // That pass handles everything; the answers to it, and the next source change, are a burst after it.
        pacing.act(now);
        let later = now + MOMENT;
        assert_eq!(due(&mut pacing, Cause::Clients, later), Some(now + SETTLE));
        assert_eq!(due(&mut pacing, Cause::Source, later), Some(now + SETTLE));
    }
}
