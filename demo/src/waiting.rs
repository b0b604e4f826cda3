//! Waiting for a condition, instead of for a time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Problem;
use crate::stage::Stage;

/// Tries until it succeeds, for half a minute at most; then the problem tells what was seen last.
/// It ends early when a program that should run has ended.
pub(crate) async fn eventually<T>(
    stage: &Stage,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, Problem>,
) -> Result<T, Problem> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = "nothing".to_owned();
    loop {
        stage.assert_running()?;
        match timeout_at(deadline, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(Problem(seen))) => last = seen,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            let seconds = PATIENCE.as_secs();
            return Err(Problem(format!("waited {seconds} s for {what}; seen last: {last}")));
        }
        sleep(PAUSE).await;
    }
}

/// A problem, unless it is as it should be.
pub(crate) fn ensure(is_right: bool, seen: impl FnOnce() -> String) -> Result<(), Problem> {
    if is_right { Ok(()) } else { Err(Problem(seen())) }
}

/// How many milliseconds have passed.
pub(crate) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);
