//! When it is acted on what has changed: at once, or together with what follows.

use std::time::Duration;

use tokio::time::Instant;

/// What there is to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A source has changed: what operators say, or who has joined.
    Source,
    /// Clients have come, gone or answered, or what follows from that; or the clock.
    Clients,
}

/// The pace of the reconciler. The first change is acted on at once, and those that come within a window
/// behind it are acted on together when it closes.
///
/// Clients answer whatever they are given, in a wave: that opens a window for clients only. What a source
/// says does not wait for them.
#[derive(Debug)]
pub(super) struct Pacing {
    /// How long a window is open.
    settle: Duration,
    /// When that of sources closes, and that of clients.
    closes: Windows<Option<Instant>>,
    /// What has changed since it was acted.
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

    /// There is something to act on.
    pub(super) fn changed(&mut self, cause: Cause) {
        match cause {
            Cause::Source => self.changed.sources = true,
            Cause::Clients => self.changed.clients = true,
        }
    }

    /// When it is to be acted on; none as long as there is nothing.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let of = |changed: bool, closes: Option<Instant>| changed.then(|| closes.unwrap_or(now));
        let sources = of(self.changed.sources, self.closes.sources);
        let clients = of(self.changed.clients, self.closes.clients);
        sources.into_iter().chain(clients).min()
    }

    /// It is acted on everything.
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

    /// When it is acted on what changes now.
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
            // When it has been quiet for long enough the next is a first one.
            pacing.act(begin + SETTLE);
            let quiet = begin + SETTLE * 3;
            assert_eq!(due(&mut pacing, cause, quiet), Some(quiet));
        }
    }

    #[test]
    fn source_change_does_not_wait_for_debounced_client_answers() {
        let begin = Instant::now();
        let mut pacing = Pacing::new(SETTLE);
        // A wave, of which each part is acted on when the window closes.
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
        // With it everything is acted on; the answers to it, and the next source, are a burst behind it.
        pacing.act(now);
        let later = now + MOMENT;
        assert_eq!(due(&mut pacing, Cause::Clients, later), Some(now + SETTLE));
        assert_eq!(due(&mut pacing, Cause::Source, later), Some(now + SETTLE));
    }
}
