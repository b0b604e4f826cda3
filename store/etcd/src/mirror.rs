//! The mirror: the verified state of etcd, in memory.
//!
//! It is read in place of etcd, so a reader waits for no network. It takes over what is proven: a head that its key
//! sealed, of a later revision, whose digest is that of the mirror's records after the changes of the same transaction.
//! Any other write is foreign: it has no effect, and stays listed until the key has its verified value again. This
//! module does no IO.

use std::collections::BTreeSet;

use ironmesh_etcd::{KeyEvent, KeyValue};
use ironmesh_store::{RecordCipher, RecordVersion, SealedFault};

use crate::head::Head;
use crate::layout::{Layout, Place};
use crate::records::{RecordChanges, RecordKey, Records, SealedRecord};

/// The verified state of etcd.
#[derive(Debug)]
pub(crate) struct Mirror {
    layout: Layout,
    head: Head,
    /// The revision of etcd at which the head's key was last written or removed, by anyone.
    head_modified: i64,
    /// Whether the head's key was removed.
    is_head_removed: bool,
    /// Whether etcd has an authentic head that does not follow from this one. Then nothing may replace that head before
    /// everything is loaded again.
    must_load: bool,
    canary: Vec<u8>,
    records: Records,
    foreign: BTreeSet<String>,
}

/// A commit whose content is verified, or one's own.
#[derive(Debug)]
pub(crate) struct VerifiedCommit {
    pub(crate) head: Head,
    /// The revision of etcd that it made.
    pub(crate) modified: i64,
    pub(crate) changes: RecordChanges,
}

/// What a transaction of etcd is to the mirror.
#[derive(Debug)]
pub(crate) enum Received {
    /// A commit that the mirror does not have.
    Commit(VerifiedCommit),
    /// The mirror has it.
    Known,
    /// A client without the key of the mesh wrote these keys.
    Foreign(BTreeSet<String>),
    /// An authentic head of a later revision, for other records than the mirror would have: the watch has lost something,
    /// or a record was changed. The caller loads everything again.
    Gap,
    /// The head of an earlier revision: etcd was restored, or the head was put back.
    Older {
        /// The revision of that head.
        found: u64,
    },
}

/// Why the content of etcd is not a state that the control planes of the mesh made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadFault {
    /// There is no canary.
    #[error("the record of the mesh's identity is missing")]
    CanaryMissing,
    /// There is no head.
    #[error("the record of the store's revision is missing")]
    HeadMissing,
    /// The head does not open.
    #[error("the record of the store's revision cannot be used: {0}")]
    Head(SealedFault),
    /// These keys have values that no control plane wrote there.
    #[error("{} records were not written by a control plane of this mesh", .0.len())]
    NotAuthentic(BTreeSet<String>),
    /// All records are authentic, but they are not those of the head.
    #[error("the records are not those of revision {revision}: some are missing or outdated")]
    DigestDiffers {
        /// The revision of the head.
        revision: u64,
    },
}

impl Mirror {
    /// The mirror of all keys of the state at one revision of etcd.
    pub(crate) fn load(
        cipher: &RecordCipher,
        layout: Layout,
        stored: Vec<KeyValue>,
    ) -> Result<Self, LoadFault> {
        let (mut head, mut canary, mut records) = (None, None, Records::default());
        let mut refused = BTreeSet::new();
        for KeyValue { key, value, modified } in stored {
            match layout.place(&key) {
                Place::Head => head = Some((value, modified)),
                Place::Canary => canary = Some(value),
                Place::Record { table, key: name } => {
                    let place = RecordKey { table: table.to_owned(), key: name.to_owned() };
                    match SealedRecord::verify(cipher, &key, &value) {
                        Some(record) => records.set(place, Some(record)),
                        None => {
                            refused.insert(key);
                        }
                    }
                }
                Place::Unknown => {
                    refused.insert(key);
                }
            }
        }
        let (head, head_modified) = head.ok_or(LoadFault::HeadMissing)?;
        let head = Head::open(cipher, layout.head(), &head).map_err(LoadFault::Head)?;
        if !refused.is_empty() {
            return Err(LoadFault::NotAuthentic(refused));
        }
        if records.sum() != (head.records, head.digest) {
            return Err(LoadFault::DigestDiffers { revision: head.revision });
        }
        let canary = canary.ok_or(LoadFault::CanaryMissing)?;
        Ok(Self {
            layout,
            head,
            head_modified,
            is_head_removed: false,
            must_load: false,
            canary,
            records,
            foreign: BTreeSet::new(),
        })
    }

    /// Examines the events of one transaction of etcd, and notes which of them are foreign. [`Mirror::apply`] takes a
    /// commit over. A commit of one's own may have been applied before its events arrive.
    pub(crate) fn receive(&mut self, cipher: &RecordCipher, events: &[KeyEvent]) -> Received {
        let received = self.examine(cipher, events);
        let head = events.iter().find(|event| event.key == self.layout.head());
        match &received {
            Received::Foreign(keys) => self.foreign.extend(keys.iter().cloned()),
            Received::Known => {}
            Received::Commit(_) => return received,
            Received::Gap | Received::Older { .. } => {
                self.must_load = true;
                return received;
            }
        }
        // What was foreign, and is as the mirror has it, needs no repair.
        let restored: Vec<_> = events.iter().filter(|event| self.has(event)).collect();
        for event in restored {
            self.foreign.remove(&event.key);
        }
        if let Some(head) = head.filter(|head| head.modified > self.head_modified) {
            self.head_modified = head.modified;
            self.is_head_removed = head.value.is_none();
        }
        received
    }

    fn examine(&self, cipher: &RecordCipher, events: &[KeyEvent]) -> Received {
        let foreign = |is_head_foreign: bool| {
            let is_foreign = |event: &&KeyEvent| match self.layout.place(&event.key) {
                Place::Head => is_head_foreign,
                _ => !self.has(event),
            };
            let keys = events.iter().filter(is_foreign).map(|event| event.key.clone());
            let keys: BTreeSet<_> = keys.collect();
            if keys.is_empty() { Received::Known } else { Received::Foreign(keys) }
        };
        let Some(event) = events.iter().find(|event| event.key == self.layout.head()) else {
            return foreign(false);
        };
        if event.modified <= self.head_modified {
            return Received::Known;
        }
        let head = event.value.as_deref().map(|value| Head::open(cipher, &event.key, value));
        let Some(Ok(head)) = head else { return foreign(true) };
        if head.commit == self.head.commit {
            return foreign(false);
        }
        if head.revision <= self.head.revision {
            return Received::Older { found: head.revision };
        }
        let Some(changes) = self.changes(cipher, head.revision, events) else {
            return Received::Gap;
        };
        let sum = self.records.after(changes.iter().map(|(key, record)| (key, record.as_ref())));
        if sum != (head.records, head.digest) {
            return Received::Gap;
        }
        Received::Commit(VerifiedCommit { head, modified: event.modified, changes })
    }

    /// The changes of records among the events; none if one is not authentic, or newer than the commit.
    fn changes(
        &self,
        cipher: &RecordCipher,
        revision: u64,
        events: &[KeyEvent],
    ) -> Option<RecordChanges> {
        let mut changes = RecordChanges::new();
        for event in events {
            let (table, key) = match self.layout.place(&event.key) {
                Place::Head => continue,
                Place::Record { table, key } => (table, key),
                // A repair restores the canary, and removes what is foreign.
                Place::Canary | Place::Unknown if self.has(event) => continue,
                Place::Canary | Place::Unknown => return None,
            };
            let record = match &event.value {
                None => None,
                Some(value) => {
                    let record = SealedRecord::verify(cipher, &event.key, value)?;
                    if record.version > RecordVersion(revision) {
                        return None;
                    }
                    Some(record)
                }
            };
            changes.insert(RecordKey { table: table.to_owned(), key: key.to_owned() }, record);
        }
        Some(changes)
    }

    /// Takes a commit over: one that [`Mirror::receive`] has verified, or one's own, which succeeded.
    pub(crate) fn apply(&mut self, commit: VerifiedCommit) {
        for (place, record) in commit.changes {
            self.foreign.remove(&self.layout.record(&place.table, &place.key));
            self.records.set(place, record);
        }
        self.foreign.remove(self.layout.head());
        self.head = commit.head;
        if commit.modified > self.head_modified {
            (self.head_modified, self.is_head_removed) = (commit.modified, false);
        }
    }

    /// Whether the mirror has what the event wrote.
    fn has(&self, event: &KeyEvent) -> bool {
        match self.layout.place(&event.key) {
            Place::Record { table, key } => {
                let place = RecordKey { table: table.to_owned(), key: key.to_owned() };
                let mirrored = self.records.get(&place).map(|record| &*record.sealed);
                mirrored == event.value.as_deref()
            }
            Place::Canary => event.value.as_ref() == Some(&self.canary),
            Place::Unknown => event.value.is_none(),
            Place::Head => false,
        }
    }

    /// The keys with foreign values, which the mirror does not use.
    pub(crate) fn foreign(&self) -> &BTreeSet<String> {
        &self.foreign
    }

    /// The verified value of a foreign key; none if the key is to be removed.
    pub(crate) fn verified_value(&self, key: &str) -> Option<&[u8]> {
        match self.layout.place(key) {
            Place::Record { table, key } => {
                let place = RecordKey { table: table.to_owned(), key: key.to_owned() };
                self.records.get(&place).map(|record| &*record.sealed)
            }
            Place::Canary => Some(&self.canary),
            Place::Head | Place::Unknown => None,
        }
    }

    /// The value of the key of the canary.
    pub(crate) fn canary(&self) -> &[u8] {
        &self.canary
    }

    /// Continues with this mirror, if what etcd has now is its state except for values that are not authentic, missing or
    /// outdated: these are foreign, and the next commit repairs them. Returns whether it does.
    pub(crate) fn resume(&mut self, cipher: &RecordCipher, stored: &[KeyValue]) -> bool {
        let head = stored.iter().find(|one| self.layout.place(&one.key) == Place::Head);
        let Some(found) = head else { return false };
        let opened = Head::open(cipher, &found.key, &found.value);
        if !opened.is_ok_and(|opened| opened.commit == self.head.commit) {
            return false;
        }
        let event = |one: &KeyValue| KeyEvent {
            key: one.key.clone(),
            value: Some(one.value.clone()),
            modified: one.modified,
        };
        let others = stored.iter().filter(|one| one.key != found.key).map(event);
        let differing = others.filter(|event| !self.has(event)).map(|event| event.key);
        let present: BTreeSet<&str> = stored.iter().map(|one| one.key.as_str()).collect();
        let own = self.records.all().map(|(place, _)| self.layout.record(&place.table, &place.key));
        let own = own.chain([self.layout.canary().to_owned()]);
        let missing = own.filter(|key| !present.contains(key.as_str()));
        self.foreign = differing.chain(missing).collect();
        (self.head_modified, self.is_head_removed) = (found.modified, false);
        self.must_load = false;
        true
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The revision of etcd of the head, which a commit expects; none if the head was removed. etcd compares the revision
    /// of each missing key as 0, so a commit that expected that could not tell whether others were made since.
    pub(crate) fn head_modified(&self) -> Option<i64> {
        (!self.is_head_removed).then_some(self.head_modified)
    }

    /// Notes that a transaction of one's own has written these keys, so that they have their verified values.
    pub(crate) fn note_repaired<'k>(&mut self, keys: impl IntoIterator<Item = &'k String>) {
        for key in keys {
            self.foreign.remove(key);
        }
    }

    /// The revision of etcd of the last write of the head, or of its removal, that the mirror knows.
    pub(crate) fn head_seen(&self) -> i64 {
        self.head_modified
    }

    /// Demands that everything is loaded again before a commit.
    pub(crate) fn demand_load(&mut self) {
        self.must_load = true;
    }

    /// Whether no commit can be made before everything is loaded again.
    pub(crate) fn must_load(&self) -> bool {
        self.must_load
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}
