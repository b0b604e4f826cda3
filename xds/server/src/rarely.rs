//! Words about what a stranger can make happen as often as it likes: so that it cannot fill the log,
//! they are said once in a while, with how often they were kept back.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long nothing more is said.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Rarely(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said_at: Option<Instant>,
    kept_back: u64,
}

impl Rarely {
    /// Whether it is to be said now; if so, how often it was kept back since the last time.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.said_at.is_some_and(|said_at| now < said_at + PAUSE) {
            state.kept_back += 1;
            return None;
        }
        state.said_at = Some(now);
        Some(std::mem::take(&mut state.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_masses_is_said_once_a_second_with_its_number() {
        let rarely = Rarely::default();
        assert_eq!([rarely.now(), rarely.now(), rarely.now()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([rarely.now(), rarely.now()], [Some(2), None]);
    }
}
