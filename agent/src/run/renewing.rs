//! The renewal loop of the running agent.

use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::text::chain;
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use crate::activity::{AgentPhase, AgentState};
use crate::error::AgentError;
use crate::renew::{RenewOutcome, RenewWhen, renew};
use crate::settings::AgentSettings;
use crate::status::certificate_expiry;

/// The longest sleep: the wall clock may be set, and the folder may be replaced.
const MOST_SLEEP: Duration = Duration::from_secs(60);

/// The waits after failures.
const LEAST_WAIT: Duration = Duration::from_secs(30);
const MOST_WAIT: Duration = Duration::from_secs(600);

/// The longest wait when less than a day of the lifetime is left, or the certificate has expired.
const MOST_URGENT_WAIT: Duration = Duration::from_secs(60);

/// Renews the certificate whenever that is due. Returns when the folder of the proxy is gone.
pub(super) async fn renew_until_removed(settings: &AgentSettings, state: &AgentState) {
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    state.enter(AgentPhase::Enrolled);
    while settings.folder.exists() {
        let now = Timestamp::now();
        let (folder, addresses) = (&settings.folder, &settings.control_plane);
        let renewed = renew(folder, RenewWhen::Due, now, addresses, |error, _| {
            tracing::warn!(reason = error.brief(), "trying again");
        });
        let renewed = renewed.await;
        let wait = match renewed {
            Ok(RenewOutcome::NotDue { due_at, .. }) => {
                // After a failure, an operator may have renewed it, or enrolled the machine again.
                state.enter(AgentPhase::Enrolled);
                state.succeeded();
                state.next_renewal(due_at);
                backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
                let until = due_at.duration_since(now);
                Duration::try_from(until)
                    .unwrap_or_default()
                    .clamp(Duration::from_secs(1), MOST_SLEEP)
            }
            Ok(RenewOutcome::Renewed { name, expires_at, .. }) => {
                state.enter(AgentPhase::Enrolled);
                state.renewed(now);
                tracing::info!(proxy = %name, %expires_at, "the certificate is renewed");
                continue;
            }
            // An operator renews at this moment.
            Err(AgentError::Locked { .. }) => LEAST_WAIT,
            Err(error) => {
                if error.is_revoked() {
                    state.enter(AgentPhase::Revoked);
                }
                state.renewal_failed();
                let text = chain(&error);
                state.failed(&text, now);
                let left = certificate_expiry(folder).map(|expiry| expiry.duration_since(now));
                let is_urgent = left.is_some_and(|left| left < SignedDuration::from_hours(24));
                let most = if is_urgent { MOST_URGENT_WAIT } else { MOST_WAIT };
                let wait = backoff.step().min(most);
                tracing::error!(error = text, retry_in = ?wait, "cannot renew the certificate");
                wait
            }
        };
        sleep_or_removed(wait, settings).await;
    }
}

/// Sleeps, but not past the removal of the folder by more than [`MOST_SLEEP`].
async fn sleep_or_removed(mut wait: Duration, settings: &AgentSettings) {
    while !wait.is_zero() && settings.folder.exists() {
        let part = wait.min(MOST_SLEEP);
        sleep(part).await;
        wait = wait.saturating_sub(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Machine;

    #[tokio::test]
    async fn certificate_that_an_operator_has_renewed_ends_the_failure() {
        let machine = Machine::new();
        let text = format!("folder = {:?}", machine.path());
        let settings = AgentSettings::parse(&text).unwrap();
        let state = AgentState::new(Timestamp::now());
        state.failed("the disk is full", Timestamp::now());
        let cleared = async {
            while state.activity().is_failing {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = renew_until_removed(&settings, &state) => {}
            () = cleared => {}
        }
        assert_eq!(state.activity().errors.len(), 1);
    }
}
