//! Leader election: one of several control planes does a task for all of them, and publishes its result to
//! the others.
//!
//! ```text
//! <prefix>/turns/<what>             the leader, under its lease
//! <prefix>/turns/<what>/told        the leader's publication, under the same lease
//! ```
//!
//! `turns` and `told` are stored key names. Renaming them would let control planes of two versions lead at once.
//!
//! Both keys end with the leader's lease. No candidate ever asks a leader to resign; a candidate that
//! campaigns and finds no leader becomes the leader.

use std::fmt;
use std::future::pending;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::{EtcdError, SessionError};
use crate::publication_seal::{PublicationSeal, SealedPublications};
use crate::session::{Session, Watch};

/// A candidate of an election whose leader publishes a `P`.
pub struct LeaderElection<P> {
    cluster: Cluster,
    keys: Keys,
    session: Option<Session>,
    watch: Option<Watch>,
    /// The lease under which this candidate leads.
    lease: Option<i64>,
    /// The revision of etcd of the publication that was read last.
    seen: i64,
    publications: SealedPublications,
    /// The revision of etcd at the last campaign.
    revision: i64,
    payload: PhantomData<fn() -> P>,
}

struct Keys {
    leader: String,
    published: String,
}

/// The time of the lease in seconds, as etcd counts it.
const LEASE_TTL_SECONDS: i64 = 10;

/// The time after which a silent leader has lost its leadership.
pub const LEASE_TTL: Duration = Duration::from_secs(LEASE_TTL_SECONDS.unsigned_abs());

/// The time between two campaigns of a candidate.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// The most bytes of a publication: etcd allows no more than 1.5 MiB at once.
pub const MOST_PUBLISHED: usize = 1 << 20;

/// The payload that a leader publishes, as JSON.
pub trait Payload: Serialize + DeserializeOwned {
    /// The version of its format. A follower cannot use any other.
    const FORMAT: u32;
}

/// The role of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role<P> {
    /// The leader.
    Leader {
        /// Whether it was not the leader before, so that its earlier publication is gone with its lease.
        is_new: bool,
    },
    /// A follower of a leader that has published something.
    Follower(Published<P>),
    /// A follower of a leader that has published nothing.
    Unknown,
}

/// A leader's publication as a follower reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published<P> {
    /// It is unchanged since the last campaign.
    Unchanged,
    /// It is new.
    New(P),
    /// It is new, and too large, of another format, not authentic, or older than one that was read before.
    Unusable,
}

/// A payload as etcd stores it: JSON with its format, or nothing if that is too large for etcd.
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

    /// Whether the payload is too large, so that followers learn only that there is one.
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
    /// A candidate for the task `what`, a word, below the prefix of `cluster`.
    pub fn new(cluster: Cluster, what: &str) -> Self {
        let leader = format!("{}/turns/{what}", cluster.prefix());
        let keys = Keys { published: format!("{leader}/told"), leader };
        let payload = PhantomData;
        let publications = SealedPublications::default();
        Self {
            cluster,
            keys,
            session: None,
            watch: None,
            lease: None,
            seen: 0,
            publications,
            revision: 0,
            payload,
        }
    }

    /// The same candidate, which seals what it publishes, and reads nothing else.
    #[must_use]
    pub fn sealed(mut self, seal: Arc<dyn PublicationSeal>) -> Self {
        self.publications.seal = Some(seal);
        self
    }

    /// Campaigns: renews the lease of the leader, becomes the leader if there is none, or reads the leader's
    /// publication.
    ///
    /// # Errors
    ///
    /// Fails if etcd cannot be used, or does not permit writes.
    pub async fn campaign(&mut self) -> Result<Role<P>, EtcdError> {
        let mut tried = Vec::new();
        // A lost connection is normal, so one more attempt follows.
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
            if !error.is_endpoint_failure() {
                return Err(error);
            }
            tried.push(error);
        }
        Err(EtcdError::all(tried))
    }

    /// Publishes to the followers, if this candidate still leads. Returns whether it does.
    ///
    /// # Errors
    ///
    /// Fails if etcd cannot be used.
    pub async fn publish(&mut self, publication: &Publication<P>) -> Result<bool, EtcdError> {
        let (Some(session), Some(lease)) = (&mut self.session, self.lease) else {
            return Ok(false);
        };
        let holder = holder(lease);
        let condition = (&*self.keys.leader, &*holder);
        let key = &*self.keys.published;
        let sealed = self.publications.seal(key, &publication.bytes, self.revision);
        let (version, bytes) = sealed.ok_or(EtcdError::NotSealed)?;
        let published = session.put_while(condition, key, &bytes, lease).await;
        if matches!(published, Ok(true)) {
            self.publications.note_written(version);
        }
        published.map_err(|error| {
            self.session = None;
            self.cluster.error(error)
        })
    }

    /// Waits until the leader may have published something. Cancel-safe.
    pub async fn changed(&mut self) {
        if let Some(watch) = &mut self.watch {
            if watch.changed().await {
                return;
            }
            self.watch = None;
        }
        // If the watch fails, the next campaign reads the publication.
        pending::<()>().await;
    }

    /// Resigns, so that another candidate can lead at once.
    pub async fn resign(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.session.is_none() {
            self.session = self.cluster.session().await.ok();
        }
        if let Some(session) = &mut self.session {
            // A candidate that does not learn of it waits until the lease ends.
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
            // The lease may have ended, or only the answer was lost: the key decides.
            let kept = session.keep_alive(lease).await;
            let (entry, at) = session.get(&self.keys.leader, None).await?;
            self.revision = at;
            if entry.is_some_and(|entry| entry.value == holder(lease).into_bytes()) {
                kept?;
                return Ok(Role::Leader { is_new: false });
            }
            self.lease = None;
        }
        let (leader, at) = session.get(&self.keys.leader, None).await?;
        self.revision = at;
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
        Ok(Role::Follower(self.read(entry.value)))
    }

    /// A publication that etcd has not shown before.
    fn read(&mut self, value: Vec<u8>) -> Published<P> {
        let opened = self.publications.open(&self.keys.published, value);
        let Some(bytes) = opened else { return Published::Unusable };
        Publication::from_bytes(bytes).payload().map_or(Published::Unusable, Published::New)
    }
}

/// The value of the leader's key under that lease: etcd never assigns a lease twice.
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
