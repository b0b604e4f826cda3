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
#[derive(Debug, Default)]
pub(super) struct Debounce {
    /// The length of a window.
    window: Duration,
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

impl Debounce {
    /// Sets the length of the windows that open from now on.
    pub(super) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// Notes a change.
    pub(super) fn note(&mut self, cause: Cause) {
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
    pub(super) fn start_pass(&mut self, now: Instant) {
        let closes = Some(now + self.window);
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

    const WINDOW: Duration = Duration::from_millis(100);
    const MOMENT: Duration = Duration::from_millis(10);

    fn debounce() -> Debounce {
        Debounce { window: WINDOW, ..Debounce::default() }
    }

    /// When a pass is due for a change that happens now.
    fn due(debounce: &mut Debounce, cause: Cause, now: Instant) -> Option<Instant> {
        debounce.note(cause);
        debounce.due(now).map(|due| due.max(now))
    }

    #[test]
    fn first_change_runs_at_once_and_a_burst_is_debounced() {
        for cause in [Cause::Source, Cause::Clients] {
            let begin = Instant::now();
            let mut debounce = debounce();
            assert_eq!(debounce.due(begin), None, "nothing has changed");
            assert_eq!(due(&mut debounce, cause, begin), Some(begin));
            debounce.start_pass(begin);
            assert_eq!(debounce.due(begin), None);
            for moment in 1..5 {
                let now = begin + MOMENT * moment;
                assert_eq!(due(&mut debounce, cause, now), Some(begin + WINDOW), "{cause:?}");
            }
            // After a quiet window the next change is a first one.
            debounce.start_pass(begin + WINDOW);
            let quiet = begin + WINDOW * 3;
            assert_eq!(due(&mut debounce, cause, quiet), Some(quiet));
        }
    }

    #[test]
    fn source_change_does_not_wait_for_debounced_client_answers() {
        let begin = Instant::now();
        let mut debounce = debounce();
        // A wave, of which each part is handled when the window closes.
        for part in 0..5 {
            let now = begin + WINDOW * part;
            assert_eq!(due(&mut debounce, Cause::Clients, now), Some(now));
            debounce.start_pass(now);
        }
        let now = begin + WINDOW * 4 + MOMENT;
        assert_eq!(
            due(&mut debounce, Cause::Clients, now),
            Some(begin + WINDOW * 5),
            "the next part"
        );
        assert_eq!(due(&mut debounce, Cause::Source, now), Some(now));
        // That pass handles everything; the answers to it, and the next source change, are a burst after it.
        debounce.start_pass(now);
        let later = now + MOMENT;
        assert_eq!(due(&mut debounce, Cause::Clients, later), Some(now + WINDOW));
        assert_eq!(due(&mut debounce, Cause::Source, later), Some(now + WINDOW));
    }
}
