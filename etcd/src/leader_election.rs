//! Taking turns: of several control planes that read the same policy, one does what need not be done by each,
//! and the others are told what it has found.
//!
//! Whose turn it is, is a key under a lease, and so is what is told: both go with whoever held them. Nobody is
//! asked to give way; who looks and finds no key takes the turn.

use std::future::pending;
use std::time::Duration;

use super::error::SessionError;
use super::session::{Session, Watch};
use super::{EtcdError, EtcdPolicy};

/// A turn that several control planes take.
pub struct LeaderElection {
    policy: EtcdPolicy,
    keys: Keys,
    session: Option<Session>,
    watch: Option<Watch>,
    /// The lease under which it is our turn.
    lease: Option<i64>,
    /// The revision of etcd of what was told last.
    seen: i64,
}

struct Keys {
    turn: String,
    told: String,
}

/// As etcd counts it.
const LASTS_SECONDS: i64 = 10;

/// How it stands with a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It is ours.
    Leader {
        /// Whether it was not before: what we told then is gone with the lease.
        is_new: bool,
    },
    /// It is that of another one, who has told this; none where that is nothing new.
    Follower(Option<Vec<u8>>),
    /// It is that of another one, and nothing is told.
    Unknown,
}

impl std::fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderElection").field("turn", &self.keys.turn).finish_non_exhaustive()
    }
}

impl LeaderElection {
    /// After so long the turn of one who says nothing any more is over.
    pub const LEASE_TTL: Duration = Duration::from_secs(LASTS_SECONDS.unsigned_abs());

    /// So often one looks, to keep the turn or to take it.
    pub const RENEW_INTERVAL: Duration = Duration::from_secs(3);

    /// What may be told, at most: etcd takes no more than 1.5 MiB at once.
    pub const MOST_TOLD: usize = 1 << 20;

    /// The turn to do `what`, a word.
    pub fn new(policy: EtcdPolicy, what: &str) -> Self {
        let keys = Keys { turn: policy.layout.turn(what), told: policy.layout.told(what) };
        Self { policy, keys, session: None, watch: None, lease: None, seen: 0 }
    }

    /// Keeps the turn, takes it where it is free, or sees what is told by whose turn it is.
    ///
    /// # Errors
    ///
    /// Where etcd cannot be used, or does not let us write.
    pub async fn look(&mut self) -> Result<Role, EtcdError> {
        let mut tried = Vec::new();
        // A connection that was lost is no news.
        let most = self.policy.settings.endpoints.len() + usize::from(self.session.is_some());
        for _ in 0..most {
            let looked = match self.session.take() {
                Some(session) => self.look_in(session).await,
                None => match self.policy.session().await {
                    Ok(session) => self.look_in(session).await,
                    Err(error) => Err(error),
                },
            };
            let error = match looked {
                Ok(looked) => return Ok(looked),
                Err(error) => error,
            };
            self.watch = None;
            self.policy.endpoint += 1;
            if !error.is_of_the_endpoint() {
                return Err(error);
            }
            tried.push(error);
        }
        Err(EtcdError::all(tried))
    }

    /// Tells the others what was found, if it is our turn still. Returns whether it is.
    ///
    /// # Errors
    ///
    /// Where etcd cannot be used.
    pub async fn tell(&mut self, value: &[u8]) -> Result<bool, EtcdError> {
        let (Some(session), Some(lease)) = (&mut self.session, self.lease) else {
            return Ok(false);
        };
        let holder = holder(lease);
        let told =
            session.put_while((&self.keys.turn, &holder), &self.keys.told, value, lease).await;
        told.map_err(|error| {
            self.session = None;
            self.error(error)
        })
    }

    /// Waits until something may have been told. May be cancelled without losing anything.
    pub async fn news(&mut self) {
        if let Some(watch) = &mut self.watch {
            if watch.told().await {
                return;
            }
            self.watch = None;
        }
        // Where it cannot be watched, one looks again all the same.
        pending::<()>().await;
    }

    /// Gives the turn back: another one has it at once.
    pub async fn leave(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.session.is_none() {
            self.session = self.policy.session().await.ok();
        }
        if let Some(session) = &mut self.session {
            // Who cannot be reached will see it end.
            let _ = session.revoke(lease).await;
        }
    }

    async fn look_in(&mut self, mut session: Session) -> Result<Role, EtcdError> {
        let looked = self.look_at(&mut session).await.map_err(|error| self.error(error))?;
        self.session = Some(session);
        Ok(looked)
    }

    async fn look_at(&mut self, session: &mut Session) -> Result<Role, SessionError> {
        if let Some(lease) = self.lease {
            // It may have ended, or only not been heard: the key says which.
            let kept = session.keep_alive(lease).await;
            let (entry, _) = session.get(&self.keys.turn, None).await?;
            if entry.is_some_and(|entry| entry.value == holder(lease).into_bytes()) {
                kept?;
                return Ok(Role::Leader { is_new: false });
            }
            self.lease = None;
        }
        let (turn, at) = session.get(&self.keys.turn, None).await?;
        if turn.is_none() {
            let lease = session.grant(LASTS_SECONDS).await?;
            if session.put_first(&self.keys.turn, holder(lease).as_bytes(), lease).await? {
                (self.lease, self.watch) = (Some(lease), None);
                return Ok(Role::Leader { is_new: true });
            }
            // Another one was faster.
            session.revoke(lease).await?;
        }
        if self.watch.is_none() {
            self.watch = Some(session.watch(&self.keys.told, at + 1).await?);
        }
        let (told, _) = session.get(&self.keys.told, None).await?;
        let Some(told) = told else { return Ok(Role::Unknown) };
        let is_new = std::mem::replace(&mut self.seen, told.modified) != told.modified;
        Ok(Role::Follower(is_new.then_some(told.value)))
    }

    fn error(&self, error: SessionError) -> EtcdError {
        EtcdError::new(self.policy.endpoint(), &self.policy.settings, error)
    }
}

/// What who holds a lease is called: etcd gives no lease twice.
fn holder(lease: i64) -> String {
    format!("{lease:x}")
}
