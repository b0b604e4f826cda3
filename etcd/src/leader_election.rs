//! Leader election: of several control planes one does what need not be done by each, and publishes its result to
//! the others.
//!
//! ```text
//! <prefix>/turns/<what>             the leader, under its lease
//! <prefix>/turns/<what>/told        what the leader has published, under the same lease
//! ```
//!
//! Both keys vanish with the leader's lease. A leader is never asked to step down; whoever campaigns and finds no
//! leader becomes it.

use std::fmt;
use std::future::pending;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::{EtcdError, SessionError};
use crate::session::{Session, Watch};

/// A candidate in an election whose leader publishes a `P`.
pub struct LeaderElection<P> {
    cluster: Cluster,
    keys: Keys,
    session: Option<Session>,
    watch: Option<Watch>,
    /// The lease under which we lead.
    lease: Option<i64>,
    /// The revision of etcd of what was published last.
    seen: i64,
    payload: PhantomData<fn() -> P>,
}

struct Keys {
    leader: String,
    published: String,
}

/// As etcd counts leases.
const LEASE_TTL_SECONDS: i64 = 10;

/// After so long a leader that is silent is none any more.
pub const LEASE_TTL: Duration = Duration::from_secs(LEASE_TTL_SECONDS.unsigned_abs());

/// How often a candidate campaigns: to stay the leader, or to become it.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// The bytes of a publication at most: etcd takes no more than 1.5 MiB at once.
pub const MOST_PUBLISHED: usize = 1 << 20;

/// What a leader publishes, as JSON.
pub trait Payload: Serialize + DeserializeOwned {
    /// The version of its form. A follower cannot use any other.
    const FORMAT: u32;
}

/// What a candidate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role<P> {
    /// The leader.
    Leader {
        /// Whether it was not before: what it published then is gone with that lease.
        is_new: bool,
    },
    /// A follower of a leader that has published something.
    Follower(Published<P>),
    /// A follower of a leader that has published nothing.
    Unknown,
}

/// What a follower sees of its leader's publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published<P> {
    /// It is the one that was seen last.
    Unchanged,
    /// It is new.
    New(P),
    /// It is new, and too large or of another format.
    Unusable,
}

/// A payload as etcd holds it: JSON with its format, or nothing where that is too large for etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication<P> {
    bytes: Vec<u8>,
    payload: PhantomData<fn() -> P>,
}

#[derive(Serialize, Deserialize)]
struct Envelope<P> {
    format: u32,
    #[serde(flatten)]
    payload: P,
}

impl<P: Payload> Publication<P> {
    /// The publication of `payload`.
    pub fn new(payload: &P) -> Self {
        let envelope = Envelope { format: P::FORMAT, payload };
        let bytes = serde_json::to_vec(&envelope).unwrap_or_default();
        Self::from_bytes(if bytes.len() > MOST_PUBLISHED { Vec::new() } else { bytes })
    }

    /// Whether the payload is too large, so that followers are told only that there is one.
    pub fn is_too_large(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The payload, if this version can use it.
    pub fn payload(&self) -> Option<P> {
        let envelope: Envelope<P> = serde_json::from_slice(&self.bytes).ok()?;
        (envelope.format == P::FORMAT).then_some(envelope.payload)
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, payload: PhantomData }
    }
}

impl<P> fmt::Debug for LeaderElection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection").field("leader", &self.keys.leader).finish_non_exhaustive()
    }
}

impl<P: Payload> LeaderElection<P> {
    /// The election of who does `what`, a word, below the prefix of `cluster`.
    pub fn new(cluster: Cluster, what: &str) -> Self {
        let leader = format!("{}/turns/{what}", cluster.prefix());
        let keys = Keys { published: format!("{leader}/told"), leader };
        let payload = PhantomData;
        Self { cluster, keys, session: None, watch: None, lease: None, seen: 0, payload }
    }

    /// Renews the lease of the leader, becomes the leader where there is none, or sees what the leader has
    /// published.
    ///
    /// # Errors
    ///
    /// Where etcd cannot be used, or does not let us write.
    pub async fn campaign(&mut self) -> Result<Role<P>, EtcdError> {
        let mut tried = Vec::new();
        // A connection that was lost is no news.
        let most = self.cluster.endpoints().len() + usize::from(self.session.is_some());
        for _ in 0..most {
            let role = match self.session.take() {
                Some(session) => self.campaign_in(session).await,
                None => match self.cluster.session().await {
                    Ok(session) => self.campaign_in(session).await,
                    Err(error) => Err(error),
                },
            };
            let error = match role {
                Ok(role) => return Ok(role),
                Err(error) => error,
            };
            self.watch = None;
            self.cluster.rotate();
            if !error.is_of_the_endpoint() {
                return Err(error);
            }
            tried.push(error);
        }
        Err(EtcdError::all(tried))
    }

    /// Publishes to the followers, if we still lead. Returns whether we do.
    ///
    /// # Errors
    ///
    /// Where etcd cannot be used.
    pub async fn publish(&mut self, publication: &Publication<P>) -> Result<bool, EtcdError> {
        let (Some(session), Some(lease)) = (&mut self.session, self.lease) else {
            return Ok(false);
        };
        let holder = holder(lease);
        let condition = (&*self.keys.leader, &*holder);
        let bytes = &publication.bytes;
        let published = session.put_while(condition, &self.keys.published, bytes, lease).await;
        published.map_err(|error| {
            self.session = None;
            self.cluster.error(error)
        })
    }

    /// Waits until the leader may have published something. May be cancelled without losing anything.
    pub async fn changed(&mut self) {
        if let Some(watch) = &mut self.watch {
            if watch.changed().await {
                return;
            }
            self.watch = None;
        }
        // Where it cannot be watched, the next campaign sees it all the same.
        pending::<()>().await;
    }

    /// Resigns, so that another candidate can lead at once.
    pub async fn resign(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.session.is_none() {
            self.session = self.cluster.session().await.ok();
        }
        if let Some(session) = &mut self.session {
            // A candidate that does not learn of it sees the lease end.
            let _ = session.revoke(lease).await;
        }
    }

    async fn campaign_in(&mut self, mut session: Session) -> Result<Role<P>, EtcdError> {
        let role = self.role(&mut session).await.map_err(|error| self.cluster.error(error))?;
        self.session = Some(session);
        Ok(role)
    }

    async fn role(&mut self, session: &mut Session) -> Result<Role<P>, SessionError> {
        if let Some(lease) = self.lease {
            // It may have ended, or only not been heard: the key says which.
            let kept = session.keep_alive(lease).await;
            let (entry, _) = session.get(&self.keys.leader, None).await?;
            if entry.is_some_and(|entry| entry.value == holder(lease).into_bytes()) {
                kept?;
                return Ok(Role::Leader { is_new: false });
            }
            self.lease = None;
        }
        let (leader, at) = session.get(&self.keys.leader, None).await?;
        if leader.is_none() {
            let lease = session.grant(LEASE_TTL_SECONDS).await?;
            if session.put_first(&self.keys.leader, holder(lease).as_bytes(), lease).await? {
                (self.lease, self.watch) = (Some(lease), None);
                return Ok(Role::Leader { is_new: true });
            }
            // Another candidate was faster.
            session.revoke(lease).await?;
        }
        if self.watch.is_none() {
            self.watch = Some(session.watch(&self.keys.published, at + 1).await?);
        }
        let (entry, _) = session.get(&self.keys.published, None).await?;
        let Some(entry) = entry else { return Ok(Role::Unknown) };
        if std::mem::replace(&mut self.seen, entry.modified) == entry.modified {
            return Ok(Role::Follower(Published::Unchanged));
        }
        let payload = Publication::from_bytes(entry.value).payload();
        Ok(Role::Follower(payload.map_or(Published::Unusable, Published::New)))
    }
}

/// The value of the leader's key under that lease: etcd gives no lease twice.
fn holder(lease: i64) -> String {
    format!("{lease:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Names {
        names: Vec<String>,
    }

    impl Payload for Names {
        const FORMAT: u32 = 2;
    }

    fn names(count: usize) -> Names {
        Names { names: vec!["a".repeat(100); count] }
    }

    #[test]
    fn publication_is_read_by_candidates_of_the_same_format() {
        let publication = Publication::new(&Names { names: vec!["a".to_owned()] });
        assert_eq!(publication.bytes, br#"{"format":2,"names":["a"]}"#);
        assert!(!publication.is_too_large());
        assert_eq!(publication.payload(), Some(Names { names: vec!["a".to_owned()] }));
    }

    #[test]
    fn publication_too_large_or_of_another_format_is_unusable() {
        let too_large = Publication::new(&names(20_000));
        assert!(too_large.is_too_large());
        assert_eq!(too_large.payload(), None);
        for bytes in ["", "{}", "[]", "\u{0}", r#"{"format":3,"names":[]}"#] {
            let publication = Publication::<Names>::from_bytes(bytes.into());
            assert_eq!(publication.payload(), None, "{bytes}");
        }
    }
}
