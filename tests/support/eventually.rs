//! The one way to wait in a test: probe a state until it is as expected or the deadline passes.
//!
//! It is level-triggered, so it misses nothing that happens between two probes. A test that gives
//! up reports the last state.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Calls `probe` until it returns `Ok`, and returns that value. An `Err` describes what is missing.
///
/// # Panics
///
/// After [`patience`], with `what` and the last `Err`.
pub async fn eventually<T, E: Display>(what: &str, probe: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_within(patience(), what, probe).await
}

/// Like [`eventually`], with a different deadline: for what takes a known time on any machine.
///
/// # Panics
///
/// After `patience`, with `what` and the last `Err`.
pub async fn eventually_within<T, E: Display>(
    patience: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + patience;
    let mut last = "nothing: the first look did not come back".to_owned();
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(state)) => last = state.to_string(),
            Err(_) => {}
        }
        // A probe that never waits is never cut short, so the deadline is checked here as well.
        assert!(Instant::now() < deadline, "waited {patience:?} for {what}; last seen: {last}");
        // The only sleep of the test suites: between two probes.
        sleep(INTERVAL).await;
    }
}

/// The longest time that a test waits: `IRONMESH_TEST_PATIENCE` in seconds, else 30 s.
pub fn patience() -> Duration {
    let seconds = std::env::var("IRONMESH_TEST_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

const INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    #[should_panic(expected = "for the end; last seen: nothing yet")]
    async fn failing_probe_times_out() {
        eventually_within(INTERVAL * 3, "the end", async || Err::<(), _>("nothing yet")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "for the end; last seen: nothing: the first look")]
    async fn hanging_probe_times_out() {
        eventually_within(INTERVAL * 3, "the end", async || pending::<Result<(), String>>().await)
            .await;
    }
}
