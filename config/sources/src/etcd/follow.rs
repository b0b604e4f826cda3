//! Following the current policy: it is read, and read again whenever there may be another.
//!
//! Level-triggered: a watch only says when to look, and without a word one looks every 30 s. So nothing is
//! missed by a watch that was lost or compacted, by a right that was taken away since it began, or by an
//! etcd that was restored and has gone back.

use std::time::Duration;

use ironmesh_etcd::{EtcdError, KeyValue, Session, SessionError, Watch};
use tokio::time::{Instant, sleep_until};

use super::error::{DamagedPush, ReadError};
use super::layout::Layout;
use super::read::{documents, manifest};
use super::{EtcdPolicy, PolicyError, Pushed};

/// After which one looks again in any case.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// How long to wait after the first failure, and then twice as long each time, up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Follows the current policy.
pub struct EtcdFollower {
    policy: EtcdPolicy,
    session: Option<Session>,
    watch: Option<Watch>,
    /// The pointer that was told last; none where it is to be told again.
    reported: Option<KeyValue>,
    /// Whether there is a reason to look that has not been followed yet.
    is_due: bool,
    /// When one looks without a reason.
    next_poll: Instant,
    /// When one looks at the earliest.
    not_before: Instant,
    /// How often in a row it was not possible.
    failures: u32,
}

impl std::fmt::Debug for EtcdFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdFollower").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl EtcdFollower {
    pub(super) fn new(policy: EtcdPolicy) -> Self {
        let now = Instant::now();
        Self {
            policy,
            session: None,
            watch: None,
            reported: None,
            is_due: true,
            next_poll: now,
            not_before: now,
            failures: 0,
        }
    }

    /// Where the policy is, for people.
    pub fn name(&self) -> String {
        self.policy.name()
    }

    /// The current policy, whenever it may be another than the last that was told; or why it cannot be had,
    /// for each time that it was tried. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Result<Pushed, PolicyError> {
        loop {
            self.wait().await;
            let outcome = self.poll().await;
            self.is_due = false;
            self.next_poll = Instant::now() + RENEW_INTERVAL;
            match outcome {
                Ok(None) => {}
                Ok(Some(pushed)) => return Ok(pushed),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a reason to look.
    async fn wait(&mut self) {
        if !self.is_due {
            match &mut self.watch {
                None => {}
                Some(watch) => tokio::select! {
                    goes_on = watch.changed() => if !goes_on {
                        self.watch = None;
                        // Where it cannot be watched, it is not asked for at full speed.
                        self.not_before = Instant::now() + BACKOFF.0;
                    },
                    () = sleep_until(self.next_poll) => {}
                },
            }
            self.is_due = true;
        }
        sleep_until(self.not_before).await;
    }

    /// Looks, at one endpoint after the other until one answers. One that did so far is tried anew first:
    /// a connection that was lost is no news.
    async fn poll(&mut self) -> Result<Option<Pushed>, PolicyError> {
        let endpoints = self.policy.cluster.endpoints().len();
        let mut tried = Vec::new();
        let most = if self.session.is_some() { endpoints + 1 } else { endpoints };
        for _ in 0..most {
            match self.poll_once().await {
                Ok(outcome) => {
                    self.failures = 0;
                    return self.pushed(outcome);
                }
                Err(error) => {
                    (self.session, self.watch) = (None, None);
                    self.policy.cluster.rotate();
                    tried.push(error);
                }
            }
        }
        self.reported = None;
        self.not_before = Instant::now() + backoff(self.failures);
        self.failures = self.failures.saturating_add(1);
        let first = tried.len().saturating_sub(endpoints);
        Err(EtcdError::all(tried.split_off(first)).into())
    }

    async fn poll_once(&mut self) -> Result<PollOutcome, EtcdError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.policy.cluster.session().await?,
        };
        let outcome =
            poll(&mut session, &mut self.watch, &self.policy.layout, self.reported.as_ref()).await;
        self.session = Some(session);
        outcome.map_err(|error| self.policy.cluster.error(error))
    }

    /// What was looked at, if it is to be told.
    fn pushed(&mut self, outcome: PollOutcome) -> Result<Option<Pushed>, PolicyError> {
        match outcome {
            PollOutcome::Same => Ok(None),
            PollOutcome::Nothing => {
                self.reported = None;
                Err(PolicyError::Nothing { prefix: self.policy.cluster.prefix().to_owned() })
            }
            PollOutcome::New(pointer, pushed) => {
                self.reported = Some(pointer);
                Ok(Some(pushed?))
            }
        }
    }
}

enum PollOutcome {
    /// What was told last.
    Same,
    Nothing,
    /// What this pointer names; it may be damaged.
    New(KeyValue, Result<Pushed, DamagedPush>),
}

/// Looks at the pointer, watches it from then on if that is not done yet, and reads what it names.
async fn poll(
    session: &mut Session,
    watch: &mut Option<Watch>,
    layout: &Layout,
    reported: Option<&KeyValue>,
) -> Result<PollOutcome, SessionError> {
    let (entry, at) = session.get(&layout.current(), None).await?;
    if watch.is_none() {
        *watch = Some(session.watch(&layout.current(), at + 1).await?);
    }
    let Some(entry) = entry else { return Ok(PollOutcome::Nothing) };
    // All of it is compared: an etcd that was restored from a backup counts on from there, and comes to the
    // same revision with another push.
    if reported == Some(&entry) {
        return Ok(PollOutcome::Same);
    }
    let read = match manifest(&entry) {
        Ok(manifest) => documents(session, layout, manifest, at).await,
        Err(damage) => Err(ReadError::Damaged(damage)),
    };
    match read {
        Ok(pushed) => Ok(PollOutcome::New(entry, Ok(pushed))),
        Err(ReadError::Damaged(damage)) => Ok(PollOutcome::New(entry, Err(damage))),
        Err(ReadError::Session(error)) => Err(error),
    }
}

/// How long to wait after so many failures: the half of it by chance, so that many control planes do not
/// come back at the same moment.
fn backoff(failures: u32) -> Duration {
    let (first, most) = BACKOFF;
    let longest = first.saturating_mul(2_u32.saturating_pow(failures.min(10))).min(most);
    longest / 2 + longest / 2 * fastrand::u32(..1000) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_up_to_a_bound_with_jitter() {
        for (failures, longest) in [(0, 250), (1, 500), (4, 4000), (5, 5000), (u32::MAX, 5000)] {
            let longest = Duration::from_millis(longest);
            let waits: Vec<_> = (0..100).map(|_| backoff(failures)).collect();
            assert!(waits.iter().all(|wait| (longest / 2..=longest).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
    }
}
