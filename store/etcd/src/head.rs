//! The head: one record that is part of every commit.
//!
//! It has the revision of the store, the identity of the commit, and the digest of all records. A commit succeeds only
//! if the head has not been written since, so revisions have exactly one commit each. With the key, the head alone tells
//! whether records are missing, outdated or added.

use std::collections::VecDeque;

use ironmesh_store::{CipherFault, RecordCipher, RecordVersion, SealedFault, SetDigest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many identities of earlier commits a head has. A commit whose answer was lost is looked for among them.
pub(crate) const RECENT: usize = 32;

/// The identity of a commit: random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitId(Uuid);

impl CommitId {
    pub(crate) fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

/// The state of the whole store after a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) revision: u64,
    pub(crate) commit: CommitId,
    /// The commits before it, the newest last.
    recent: VecDeque<CommitId>,
    /// The number of records.
    pub(crate) records: u64,
    /// The digest of all records.
    pub(crate) digest: SetDigest,
    /// The host name of the control plane that made the commit, for operators.
    pub(crate) writer: String,
    pub(crate) at: Timestamp,
}

impl Head {
    /// The head of a store without records.
    pub(crate) fn empty(writer: &str, at: Timestamp) -> Self {
        Self {
            revision: 0,
            commit: CommitId::generate(),
            recent: VecDeque::new(),
            records: 0,
            digest: SetDigest::default(),
            writer: writer.to_owned(),
            at,
        }
    }

    /// The head of the next commit, for a set of so many records.
    pub(crate) fn next(
        &self,
        (records, digest): (u64, SetDigest),
        writer: &str,
        at: Timestamp,
    ) -> Self {
        let mut recent = self.recent.clone();
        recent.push_back(self.commit);
        recent.drain(..recent.len().saturating_sub(RECENT));
        Self {
            revision: self.revision + 1,
            commit: CommitId::generate(),
            recent,
            records,
            digest,
            writer: writer.to_owned(),
            at,
        }
    }

    /// Whether this commit is this one or one of the last before it.
    pub(crate) fn includes(&self, commit: CommitId) -> bool {
        self.commit == commit || self.recent.contains(&commit)
    }

    /// Whether this head is later than `known`, in the same history. If so many commits were made since that it cannot tell,
    /// it counts as such, unless an older one was seen before (`was_older`).
    pub(crate) fn follows(&self, known: &Self, was_older: bool) -> bool {
        let commits_since = self.revision.saturating_sub(known.revision);
        let is_decidable = commits_since <= RECENT as u64;
        commits_since > 0 && (self.includes(known.commit) || !is_decidable && !was_older)
    }

    /// The value of the key of the head.
    pub(crate) fn seal(&self, cipher: &RecordCipher, key: &str) -> Result<Vec<u8>, CipherFault> {
        let json = serde_json::to_vec(self).map_err(|_| CipherFault)?;
        cipher.seal(key, RecordVersion(self.revision), &json)
    }

    /// The head of a value of its key.
    pub(crate) fn open(
        cipher: &RecordCipher,
        key: &str,
        sealed: &[u8],
    ) -> Result<Self, SealedFault> {
        let (version, json) = cipher.open(key, sealed)?;
        let head: Self = serde_json::from_slice(&json).map_err(|_| SealedFault::NotAuthentic)?;
        if head.revision == version.0 { Ok(head) } else { Err(SealedFault::NotAuthentic) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heads of a history, with so many commits after the first.
    fn history(first: &Head, commits: usize) -> Vec<Head> {
        let next = |head: &Head| head.next((0, SetDigest::default()), "cp", Timestamp::UNIX_EPOCH);
        std::iter::successors(Some(first.clone()), |head| Some(next(head)))
            .take(commits + 1)
            .collect()
    }

    #[test]
    fn head_follows_one_of_its_own_history_alone() {
        let heads = history(&Head::empty("cp", Timestamp::UNIX_EPOCH), RECENT + 5);
        let [first, last] = [&heads[2], &heads[RECENT + 2]];
        assert!(last.follows(first, false) && last.follows(first, true));
        assert!(!first.follows(last, false) && !first.follows(first, false));
        // Another history from the same beginning, which has more commits than what is known.
        let forked = history(&heads[1], RECENT + 5);
        assert!(!forked[3].follows(first, false));
        // So many commits later, it cannot be told.
        let beyond = &forked[RECENT + 3];
        assert!(beyond.follows(first, false) && !beyond.follows(first, true));
    }
}
