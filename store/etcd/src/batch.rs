//! Merges waiting requests into one transaction of etcd, with the next head.
//!
//! All commits of a mesh write the head, so etcd makes them one after the other. Requests that wait meanwhile share a
//! transaction: a commit costs the same round trip for one change as for a hundred. This module does no IO.

use std::collections::{BTreeMap, VecDeque};

use ironmesh_store::{
    CipherFault, ExpectedVersion, RecordAddress, RecordChange, RecordCipher, RecordVersion,
};
use jiff::Timestamp;

use crate::head::Head;
use crate::mirror::Mirror;
use crate::records::{RecordChanges, RecordKey, SealedRecord};

/// The most changes of a transaction: etcd accepts 128 operations by default (`--max-txn-ops`), and the head is one.
pub(crate) const MAX_CHANGES: usize = 120;

/// The most bytes of the values of a transaction: etcd accepts 1.5 MiB by default (`--max-request-bytes`), with keys.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// What sealing adds to a value, at most.
const SEAL: usize = 64;

/// A commit that a caller waits for. Without changes, the caller waits for a mirror that has all earlier commits.
#[derive(Debug)]
pub(crate) struct Request<R> {
    pub(crate) changes: Vec<RecordChange>,
    /// How its caller gets the answer.
    pub(crate) reply: R,
}

/// Requests of one transaction, and those that a current mirror answers.
#[derive(Debug)]
pub(crate) struct Batch<R> {
    pub(crate) accepted: Vec<Request<R>>,
    /// The requests that conflict with the mirror, and with an empty list those without changes.
    pub(crate) conflicts: Vec<(Request<R>, Vec<RecordAddress>)>,
    /// None if there is nothing to write.
    pub(crate) commit: Option<PreparedCommit>,
}

/// The keys of etcd with their new values; none removes the key.
pub(crate) type KeyWrites = BTreeMap<String, Option<Vec<u8>>>;

/// A commit that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PreparedCommit {
    /// The revision of etcd of the head that it replaces.
    pub(crate) expected: i64,
    pub(crate) head: Head,
    pub(crate) changes: RecordChanges,
    /// The head is one of them.
    pub(crate) writes: KeyWrites,
}

impl<R> Request<R> {
    /// The bytes of its values when they are sealed.
    fn bytes(&self) -> usize {
        let values = self.changes.iter().filter_map(|change| change.value.as_ref());
        values.map(|value| value.len() + SEAL).sum()
    }

    /// The records whose versions are not those that it expects.
    fn conflicts(&self, mirror: &Mirror) -> Vec<RecordAddress> {
        let is_conflict = |change: &&RecordChange| {
            let version = mirror.records().get(&place(change)).map(|record| record.version);
            match change.expected {
                ExpectedVersion::Any => false,
                ExpectedVersion::Absent => version.is_some(),
                ExpectedVersion::Exactly(expected) => version != Some(expected),
            }
        };
        let conflicts = self.changes.iter().filter(is_conflict);
        conflicts
            .map(|change| RecordAddress { table: change.table, key: change.key.clone() })
            .collect()
    }
}

/// Why no transaction can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchFault {
    /// etcd has a head that does not follow from that of the mirror.
    #[error("the records of etcd must be read again")]
    MustLoad,
    /// The head was removed. Its key must exist again, with any value, before a commit can expect it.
    #[error("the record of the store's revision was removed from etcd")]
    HeadRemoved,
    /// A value cannot be sealed.
    #[error("a record cannot be sealed")]
    Cipher,
}

impl From<CipherFault> for BatchFault {
    fn from(_: CipherFault) -> Self {
        Self::Cipher
    }
}

/// Takes requests from the queue, in order, as far as one transaction has room. A request that changes a record of the
/// transaction waits for the next one. Foreign values are replaced by verified ones, as far as there is room.
///
/// # Errors
///
/// Fails if there is no head to replace, which leaves the queue as it is; or if a value cannot be sealed: the queue then lacks
/// the requests that were taken.
pub(crate) fn batch<R>(
    mirror: &Mirror,
    cipher: &RecordCipher,
    queue: &mut VecDeque<Request<R>>,
    (writer, now): (&str, Timestamp),
) -> Result<Batch<R>, BatchFault> {
    let expected = expected(mirror)?;
    let version = RecordVersion(mirror.head().revision + 1);
    let (mut accepted, mut conflicts) = (Vec::new(), Vec::new());
    let (mut changes, mut writes) = (RecordChanges::new(), KeyWrites::new());
    let mut bytes = 0;
    while let Some(request) = queue.front() {
        let is_full = changes.len() + request.changes.len() > MAX_CHANGES
            || bytes + request.bytes() > MAX_BYTES;
        let has_overlap = request.changes.iter().any(|change| changes.contains_key(&place(change)));
        if !accepted.is_empty() && (is_full || has_overlap) {
            break;
        }
        let Some(request) = queue.pop_front() else { break };
        let found = request.conflicts(mirror);
        if !found.is_empty() || request.changes.is_empty() {
            conflicts.push((request, found));
            continue;
        }
        bytes += request.bytes();
        for change in &request.changes {
            let key = mirror.layout().record(change.table.0, &change.key);
            let value = change.value.as_ref();
            let sealed = value.map(|value| cipher.seal(&key, version, value)).transpose()?;
            let record = sealed
                .as_deref()
                .map(|sealed| SealedRecord::new(cipher, &key, version, sealed.into()));
            changes.insert(place(change), record);
            writes.insert(key, sealed);
        }
        accepted.push(request);
    }
    for key in mirror.foreign() {
        let value = mirror.verified_value(key);
        let length = value.map_or(0, <[u8]>::len);
        if writes.len() < MAX_CHANGES && bytes + length <= MAX_BYTES && !writes.contains_key(key) {
            bytes += length;
            writes.insert(key.clone(), value.map(<[u8]>::to_vec));
        }
    }
    let is_needed = !accepted.is_empty() || !mirror.foreign().is_empty();
    let commit = is_needed
        .then(|| prepared(mirror, cipher, expected, (changes, writes), (writer, now)))
        .transpose()?;
    Ok(Batch { accepted, conflicts, commit })
}

/// A commit without changes. After it, no commit that expects the same head can succeed.
///
/// # Errors
///
/// Fails if there is no head to replace, or the next one cannot be sealed.
pub(crate) fn fence(
    mirror: &Mirror,
    cipher: &RecordCipher,
    by: (&str, Timestamp),
) -> Result<PreparedCommit, BatchFault> {
    let expected = expected(mirror)?;
    Ok(prepared(mirror, cipher, expected, Default::default(), by)?)
}

/// The revision of etcd of the head that a commit replaces.
fn expected(mirror: &Mirror) -> Result<i64, BatchFault> {
    if mirror.must_load() {
        return Err(BatchFault::MustLoad);
    }
    mirror.head_modified().ok_or(BatchFault::HeadRemoved)
}

fn prepared(
    mirror: &Mirror,
    cipher: &RecordCipher,
    expected: i64,
    (changes, mut writes): (RecordChanges, KeyWrites),
    (writer, now): (&str, Timestamp),
) -> Result<PreparedCommit, CipherFault> {
    let sum = mirror.records().after(changes.iter().map(|(key, record)| (key, record.as_ref())));
    let head = mirror.head().next(sum, writer, now);
    let key = mirror.layout().head();
    writes.insert(key.to_owned(), Some(head.seal(cipher, key)?));
    Ok(PreparedCommit { expected, head, changes, writes })
}

fn place(change: &RecordChange) -> RecordKey {
    RecordKey { table: change.table.0.to_owned(), key: change.key.clone() }
}
