//! Waiting for conditions instead of fixed times.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Problem;
use crate::stage::Stage;

/// Repeats `probe` until it succeeds, for at most half a minute. The problem then names the last observation.
///
/// Fails early if a program has ended unexpectedly.
pub(crate) async fn eventually<T>(
    stage: &Stage,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, Problem>,
) -> Result<T, Problem> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = "nothing".to_owned();
    loop {
        stage.assert_running()?;
        match timeout_at(deadline, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(Problem(seen))) => last = seen,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            let seconds = TIMEOUT.as_secs();
            return Err(Problem(format!("waited {seconds} s for {what}; seen last: {last}")));
        }
        sleep(PAUSE).await;
    }
}

/// Fails unless the condition holds.
pub(crate) fn ensure(condition: bool, seen: impl FnOnce() -> String) -> Result<(), Problem> {
    if condition { Ok(()) } else { Err(Problem(seen())) }
}

/// The milliseconds since a time.
pub(crate) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

const TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);
