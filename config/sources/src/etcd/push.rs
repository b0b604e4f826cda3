//! The push: it writes all chunks first, then makes them the current policy in one transaction.

use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::Document;
use ironmesh_etcd::{Session, SessionError};

use super::error::ReadError;
use super::layout::{self, CHUNK, Layout, MOST_CHUNKS, Manifest};
use super::read::manifests;
use super::{EtcdPolicy, PolicyError};

/// The number of pushes that are kept, with the current one.
const MOST_PUSHES: usize = 20;

/// The lease of an incomplete push, in seconds; when it ends, etcd removes the chunks. Between two renewals
/// the push makes two requests of at most 3 s each.
const LEASE: i64 = 15;

/// The reason why a policy was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The current policy is not the expected one.
    #[error("{}", conflict(.0.as_ref()))]
    Conflict(Option<PolicyRecord>),
    /// The policy is larger than the last transaction allows.
    #[error("the policy has {bytes} bytes, and at most {most} can be pushed to etcd")]
    TooLarge {
        /// The bytes of all documents, as they would be stored.
        bytes: usize,
        /// The most bytes allowed.
        most: usize,
    },
    /// etcd failed.
    #[error(transparent)]
    Etcd(#[from] PolicyError),
}

fn conflict(current: Option<&PolicyRecord>) -> String {
    let Some(current) = current else {
        return "not pushed: etcd has no current revision, or it is damaged".to_owned();
    };
    let by = current.by.as_deref().unwrap_or("an unnamed author");
    let why = current.message.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
    format!(
        "not pushed: {by} has pushed the revision {} at {:.0}{why}; `ironmesh policy pull` fetches it",
        current.revision, current.at
    )
}

/// The result of one attempt.
enum Attempt {
    Done,
    Conflict(Option<PolicyRecord>),
}

/// The state of a push across several attempts.
struct Push<'a> {
    record: &'a PolicyRecord,
    bytes: &'a [u8],
    /// The revision of etcd at which the pointer was last written before the push began.
    seen: i64,
    /// The names of the attempts so far. One of them may have succeeded without an answer.
    names: Vec<String>,
}

impl EtcdPolicy {
    /// Makes the documents the current policy, if no concurrent push succeeds, and if the current revision is
    /// or begins with `expected`, where that is given. Readers never see a part of it.
    pub async fn push(
        &mut self,
        record: &PolicyRecord,
        documents: &[Document],
        expected: Option<&str>,
    ) -> Result<(), PushError> {
        let most = CHUNK * MOST_CHUNKS;
        let check = |bytes| {
            if bytes > most { Err(PushError::TooLarge { bytes, most }) } else { Ok(()) }
        };
        // The encoding is at least as large.
        check(documents.iter().map(|document| document.text.len()).sum())?;
        let bytes = layout::encode(documents).map_err(|error| {
            let rejected = SessionError::Rejected(error.to_string());
            PolicyError::Etcd(self.cluster.error(rejected))
        })?;
        check(bytes.len())?;
        let (seen, current) =
            self.insist(async |session, layout| Ok(pointer(session, layout).await?)).await?;
        let is_expected = |expected: &str| {
            current.as_ref().is_some_and(|current| current.record.revision.0.starts_with(expected))
        };
        if expected.is_some_and(|expected| !is_expected(expected)) {
            return Err(PushError::Conflict(current.map(|current| current.record)));
        }
        let mut push = Push { record, bytes: &bytes, seen, names: Vec::new() };
        let done = self.insist(async |session, layout| -> Result<Attempt, ReadError> {
            Ok(push.attempt(session, layout).await?)
        });
        match done.await? {
            Attempt::Done => Ok(()),
            Attempt::Conflict(current) => Err(PushError::Conflict(current)),
        }
    }
}

/// The revision at which the pointer was last written (0: never), and its manifest if it is not damaged.
async fn pointer(
    session: &mut Session,
    layout: &Layout,
) -> Result<(i64, Option<Manifest>), SessionError> {
    let (entry, _) = session.get(&layout.current(), None).await?;
    Ok(entry.map_or((0, None), |entry| (entry.modified, Manifest::decode(&entry.value).ok())))
}

impl Push<'_> {
    async fn attempt(
        &mut self,
        session: &mut Session,
        layout: &Layout,
    ) -> Result<Attempt, SessionError> {
        let (seen, current) = pointer(session, layout).await?;
        if seen != self.seen {
            return Ok(self.overtaken(current));
        }
        let lease = session.grant(LEASE).await?;
        let name = format!("{lease:016x}");
        self.names.push(name.clone());
        let moved = self.write(session, layout, lease, name).await;
        // This removes the chunks of an unsuccessful push, and nothing else. If it fails, the lease ends by
        // itself.
        let _ = session.revoke(lease).await;
        if !moved? {
            let (_, current) = pointer(session, layout).await?;
            return Ok(self.overtaken(current));
        }
        // The push is complete. Old pushes are removed now, or after the next push.
        let _ = sweep(session, layout).await;
        Ok(Attempt::Done)
    }

    /// The meaning of a pointer that has moved since the push began. An attempt of this push may have moved
    /// it: its answer was lost, or it took effect during the next attempt.
    fn overtaken(&self, current: Option<Manifest>) -> Attempt {
        match current {
            Some(current) if self.names.contains(&current.push) => Attempt::Done,
            current => Attempt::Conflict(current.map(|current| current.record)),
        }
    }

    /// Writes the chunks, and moves the pointer to them. Returns false if the pointer was written meanwhile.
    async fn write(
        &self,
        session: &mut Session,
        layout: &Layout,
        lease: i64,
        name: String,
    ) -> Result<bool, SessionError> {
        let mut keys = Vec::new();
        for (number, chunk) in self.bytes.chunks(CHUNK).enumerate() {
            let key = layout.chunk(&name, number);
            session.put(&key, chunk, lease).await?;
            session.keep_alive(lease).await?;
            keys.push(key);
        }
        let also = layout.manifest(&name);
        let manifest = Manifest::new(name, self.record.clone(), self.bytes);
        let value = manifest.encode().map_err(|e| SessionError::Rejected(e.to_string()))?;
        session.move_pointer((&layout.current(), self.seen), &also, &value, &keys).await
    }
}

/// Removes the oldest pushes, never the current one, which is the newest.
async fn sweep(session: &mut Session, layout: &Layout) -> Result<(), SessionError> {
    let (manifests, _) = manifests(session, layout).await?;
    for old in manifests.iter().skip(MOST_PUSHES) {
        session.remove(&layout.manifest(&old.push), &layout.chunks(&old.push)).await?;
    }
    Ok(())
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use std::sync::Arc;

    use ironmesh_catalog::PolicyRevision;
    use ironmesh_config_settings::EtcdSettings;
    use ironmesh_etcd::EtcdError;
    use jiff::Timestamp;

    use super::*;

    #[tokio::test]
    async fn oversized_policy_is_rejected_before_the_first_write() {
        let settings = EtcdSettings {
            // No server listens there.
            endpoints: vec!["http://127.0.0.1:9".to_owned()],
            prefix: "/p".to_owned(),
            ca: None,
            identity: None,
            user: None,
        };
        let revision = PolicyRevision("1".into());
        let at = Timestamp::UNIX_EPOCH;
        let record = PolicyRecord { revision, at, commit: None, by: None, message: None };
        let mut etcd = EtcdPolicy::open(settings).unwrap();
        let text: Arc<str> = "x".repeat(10 * 1024 * 1024).into();
        let document = |path: &str| Document { path: path.into(), text: Arc::clone(&text) };
        let documents = ["a", "b", "c", "d", "e", "f"].map(document);
        let reported = etcd.push(&record, &documents, None).await.unwrap_err().to_string();
        let expected = "the policy has 62914560 bytes, and at most 52428800 can be pushed to etcd";
        assert_eq!(reported, expected);
        let reported = etcd.push(&record, &[], None).await.unwrap_err();
        assert!(
            matches!(reported, PushError::Etcd(PolicyError::Etcd(EtcdError::Endpoint { .. }))),
            "{reported}"
        );
    }
}
