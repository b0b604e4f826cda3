//! The follower of the current policy: it reads the policy again whenever it may have changed.
//!
//! It is level-triggered: a watch only triggers a poll, and without an event the follower polls every 30 s.
//! So it misses no change if a watch is lost or compacted, if a permission is revoked, or if etcd is restored
//! to an earlier state.

use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use ironmesh_etcd::{EtcdError, KeyValue, Session, SessionError, Watch};
use tokio::time::{Instant, sleep_until};

use super::error::{DamagedPush, ReadError};
use super::layout::Layout;
use super::read::{documents, manifest};
use super::{EtcdPolicy, PolicyError, Pushed};

/// The most time between two polls.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// The backoff after the first failure, which doubles with each failure, and its upper bound.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Follows the current policy.
pub struct EtcdFollower {
    policy: EtcdPolicy,
    session: Option<Session>,
    watch: Option<Watch>,
    /// The pointer of the policy that was returned last; none if the policy is to be returned again.
    reported: Option<KeyValue>,
    /// Whether an event requires a poll.
    is_due: bool,
    /// The time of the next poll without an event.
    next_poll: Instant,
    /// The earliest time of the next poll.
    not_before: Instant,
    /// The wait after a failed poll.
    backoff: Backoff,
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
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
        }
    }

    /// The location of the policy, for messages.
    pub fn name(&self) -> String {
        self.policy.name()
    }

    /// Waits until the current policy may differ from the last one that was returned, and returns it; returns
    /// an error for each failed poll. Cancel-safe.
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

    /// Waits for a reason to poll.
    async fn wait(&mut self) {
        if !self.is_due {
            match &mut self.watch {
                None => {}
                Some(watch) => tokio::select! {
                    goes_on = watch.changed() => if !goes_on {
                        self.watch = None;
                        // If the watch fails repeatedly, the follower polls with a pause.
                        self.not_before = Instant::now() + BACKOFF.0;
                    },
                    () = sleep_until(self.next_poll) => {}
                },
            }
            self.is_due = true;
        }
        sleep_until(self.not_before).await;
    }

    /// Polls one endpoint after the other until one answers. It retries the endpoint that answered last
    /// first, since a lost connection is normal.
    async fn poll(&mut self) -> Result<Option<Pushed>, PolicyError> {
        let endpoints = self.policy.cluster.endpoints().len();
        let mut tried = Vec::new();
        let most = if self.session.is_some() { endpoints + 1 } else { endpoints };
        for _ in 0..most {
            match self.poll_once().await {
                Ok(outcome) => {
                    self.backoff.reset();
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
        self.not_before = Instant::now() + self.backoff.step();
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

    /// The policy that was polled, if it is to be returned.
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
    /// The policy that was returned last.
    Same,
    Nothing,
    /// The policy that this pointer names; it may be damaged.
    New(KeyValue, Result<Pushed, DamagedPush>),
}

/// Reads the pointer, watches it from then on if there is no watch yet, and reads the policy that it names.
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
    // The whole entry is compared: an etcd that was restored from a backup may reach the same revision with a
    // different push.
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
