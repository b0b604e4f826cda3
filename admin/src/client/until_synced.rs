//! The wait for a policy revision over several requests, and over restarts of the control plane.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Client, ClientError};
use ironmesh_api::{MAX_WAIT, WaitAnswer, WaitOutcome, WaitRequest};

/// The pause before the next attempt to reach a control plane that restarts.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

impl Client {
    /// Waits until the revision of the request is synced or superseded, or `timeout` is over. Asks a control plane that
    /// restarts meanwhile again. `announce` gets the first answer, unless that ends the wait.
    pub async fn wait_until_synced(
        &self,
        mut request: WaitRequest,
        timeout: Duration,
        announce: impl Fn(&WaitAnswer),
    ) -> Result<WaitAnswer, ClientError> {
        let deadline = Instant::now() + timeout;
        request.timeout_ms = 0;
        // The first answer comes at once, and names the revision: a restart changes it no more.
        let mut has_answered = false;
        loop {
            if has_answered {
                let left = deadline.saturating_duration_since(Instant::now()).min(MAX_WAIT);
                request.timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            }
            let is_over = || Instant::now() >= deadline;
            match self.policy_wait(&request).await {
                Ok(answer) => {
                    let is_decided =
                        matches!(answer.outcome, WaitOutcome::Synced | WaitOutcome::Superseded);
                    if is_decided || is_over() {
                        return Ok(answer);
                    }
                    if !has_answered {
                        announce(&answer);
                    }
                    has_answered = true;
                    // Once it was active, another active revision supersedes it.
                    request.may_become_active = answer.outcome == WaitOutcome::NotActive;
                    if !answer.revision.is_empty() {
                        request.revision = Some(answer.revision);
                    }
                }
                Err(error) if !has_answered || is_over() || !error.is_unreachable() => {
                    return Err(error);
                }
                Err(_) => {
                    // After a restart it may take a moment until this revision is active again.
                    request.may_become_active = true;
                    request.was_active = false;
                    sleep(RECONNECT_PAUSE).await;
                }
            }
        }
    }
}
