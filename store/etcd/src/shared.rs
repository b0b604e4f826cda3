//! What the worker and the callers of a store share: the mirror, its watches, waiting commits, and the condition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use ironmesh_store::{RecordCipher, RecordError, RecordVersion, RecordWatchSender, TableName};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::batch::Request;
use crate::condition::StoreCondition;
use crate::local_copy::Unsaved;
use crate::mirror::{Mirror, VerifiedCommit};

/// The longest wait for a commit, so that a caller is never blocked by an outage of etcd for long.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How a caller gets the outcome of its commit.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) sender: SyncSender<Result<RecordVersion, RecordError>>,
    /// After this, the caller has given up: a commit that was not sent yet is never sent.
    pub(crate) deadline: Instant,
}

impl Reply {
    pub(crate) fn send(self, outcome: Result<RecordVersion, RecordError>) {
        // The caller may have given up.
        let _ = self.sender.try_send(outcome);
    }
}

/// The state that callers read.
pub(crate) struct Shared {
    pub(crate) cipher: RecordCipher,
    pub(crate) view: Mutex<View>,
    pub(crate) queue: Mutex<VecDeque<Request<Reply>>>,
    /// Wakes the worker for a commit, and for its end.
    pub(crate) wake: Notify,
    pub(crate) condition: Mutex<StoreCondition>,
    /// The records that their readers cannot decode, until they are written again.
    pub(crate) quarantined: Mutex<BTreeSet<(TableName, String)>>,
    pub(crate) has_ended: AtomicBool,
}

impl Shared {
    /// Notes that etcd stores nothing. A transaction that succeeds ends it.
    pub(crate) fn note_not_writable(&self, problem: &str) {
        let mut condition = self.condition.lock();
        let (_, last) =
            condition.not_writable.get_or_insert_with(|| (Timestamp::now(), String::new()));
        problem.clone_into(last);
    }

    /// Notes that etcd has stored something.
    pub(crate) fn note_writable(&self) {
        self.condition.lock().not_writable = None;
    }

    /// Takes a commit over, one's own or one of another control plane.
    pub(crate) fn apply(&self, commit: VerifiedCommit) {
        let mut quarantined = self.quarantined.lock();
        if !quarantined.is_empty() {
            quarantined.retain(|(table, key)| {
                !commit.changes.keys().any(|place| place.table == table.0 && place.key == *key)
            });
        }
        drop(quarantined);
        self.view.lock().apply(commit);
    }
}

/// The mirror and its watches, which change together.
pub(crate) struct View {
    pub(crate) mirror: Mirror,
    /// What the copy on the disk lacks; none if there is no copy.
    pub(crate) unsaved: Option<Unsaved>,
    pub(crate) watches: Vec<(TableName, RecordWatchSender)>,
}

impl View {
    /// Takes a commit over, and reports it to the watches.
    pub(crate) fn apply(&mut self, commit: VerifiedCommit) {
        let mut changed: BTreeMap<String, Vec<(String, Option<RecordVersion>)>> = BTreeMap::new();
        for (place, record) in &commit.changes {
            let version = record.as_ref().map(|record| record.version);
            changed.entry(place.table.clone()).or_default().push((place.key.clone(), version));
            if let Some(unsaved) = &mut self.unsaved {
                let key = self.mirror.layout().record(&place.table, &place.key);
                let value = record.as_ref().map(|record| Arc::clone(&record.sealed));
                unsaved.values.insert(key, value);
            }
        }
        self.mirror.apply(commit);
        self.report(&changed);
    }

    /// Replaces the mirror by one that was loaded, and reports the differences.
    pub(crate) fn replace(&mut self, mirror: Mirror) {
        let mut changed: BTreeMap<String, Vec<(String, Option<RecordVersion>)>> = BTreeMap::new();
        for (table, _) in &self.watches {
            let differences = mirror.records().differences(self.mirror.records(), table.0);
            changed.insert(table.0.to_owned(), differences);
        }
        self.mirror = mirror;
        self.unsaved = self.unsaved.take().map(|_| Unsaved::all(&self.mirror));
        self.report(&changed);
    }

    fn report(&mut self, changed: &BTreeMap<String, Vec<(String, Option<RecordVersion>)>>) {
        self.watches.retain(|(_, watch)| !watch.is_closed());
        for (table, watch) in &self.watches {
            if let Some(records) = changed.get(table.0).filter(|records| !records.is_empty()) {
                watch.send(records.iter().map(|(key, version)| (key.as_str(), *version)));
            }
        }
    }
}
