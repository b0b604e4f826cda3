//! The store: its callers' side. Reads are from the mirror; commits wait for the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;

use ironmesh_store::{
    KeyedRecords, Order, RecordAddress, RecordBytes, RecordChange, RecordError, RecordStore,
    RecordVersion, RecordVisitor, RecordWatch, TableName, Versioned, check_changes,
};
use tokio::time::Instant;

use crate::batch::{MAX_BYTES, MAX_CHANGES, Request};
use crate::condition::StoreCondition;
use crate::local_copy::CopyWriter;
use crate::records::{RecordKey, SealedRecord};
use crate::shared::{LONGEST_WAIT, Reply, Shared};

/// The most bytes of a record.
pub(crate) const MAX_RECORD: usize = MAX_BYTES - 1024;

/// The number of records that a visit copies at once, so that it never holds the mirror for long.
const PART: usize = 256;

/// The shared state of a mesh in etcd, mirrored in memory. Dropping it ends its thread.
pub struct EtcdStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Option<JoinHandle<()>>,
    pub(crate) copy_writer: Option<CopyWriter>,
}

impl EtcdStore {
    /// The faults of the store now.
    pub fn condition(&self) -> StoreCondition {
        let foreign = self.shared.view.lock().mirror.foreign().clone();
        StoreCondition { foreign, ..self.shared.condition.lock().clone() }
    }

    /// The worker's answer to a commit, or to a request without changes. `late` is called if etcd does not answer in time.
    fn ask_worker(
        &self,
        changes: Vec<RecordChange>,
        late: impl FnOnce(&str),
    ) -> Result<RecordVersion, RecordError> {
        if let Some(problem) = self.shared.condition.lock().blocked() {
            return Err(RecordError::Unavailable(problem.into()));
        }
        let (sender, receiver) = sync_channel(1);
        let reply = Reply { sender, deadline: Instant::now() + LONGEST_WAIT };
        self.shared.queue.lock().push_back(Request { changes, reply });
        self.shared.wake.notify_one();
        match receiver.recv_timeout(LONGEST_WAIT) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                let problem = format!("etcd has not answered within {} s", LONGEST_WAIT.as_secs());
                late(&problem);
                Err(RecordError::Unavailable(problem.into()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(RecordError::Unavailable("the store has ended".into()))
            }
        }
    }

    fn unseal(&self, table: TableName, key: &str, record: &SealedRecord) -> Option<RecordBytes> {
        let stored = self.shared.view.lock().mirror.layout().record(table.0, key);
        // The mirror has verified records only.
        let opened = self.shared.cipher.open(&stored, &record.sealed).ok();
        opened.map(|(_, value)| value)
    }

    /// The first of the sealed records of a table with keys in a range, without the lock on the mirror.
    fn sealed(
        &self,
        table: TableName,
        keys: Range<&str>,
        order: Order,
    ) -> Vec<(String, SealedRecord)> {
        let view = self.shared.view.lock();
        let records = view.mirror.records().within(table.0, keys);
        let own = |(key, record): (&str, &SealedRecord)| (key.to_owned(), record.clone());
        match order {
            Order::Ascending => records.take(PART).map(own).collect(),
            Order::Descending => records.rev().take(PART).map(own).collect(),
        }
    }
}

impl RecordStore for EtcdStore {
    fn get(
        &self,
        table: TableName,
        key: &str,
    ) -> Result<Option<Versioned<RecordBytes>>, RecordError> {
        let place = RecordKey { table: table.0.to_owned(), key: key.to_owned() };
        let Some(record) = self.shared.view.lock().mirror.records().get(&place).cloned() else {
            return Ok(None);
        };
        let quarantined = || RecordError::quarantined(table, key);
        let value = self.unseal(table, key, &record).ok_or_else(quarantined)?;
        Ok(Some(Versioned { value, version: record.version }))
    }

    fn list(&self, table: TableName) -> Result<KeyedRecords, RecordError> {
        let view = self.shared.view.lock();
        let records = view.mirror.records().of_table(table.0);
        let sealed: Vec<_> =
            records.map(|(key, record)| (key.to_owned(), record.clone())).collect();
        drop(view);
        let opened = sealed.into_iter().filter_map(|(key, record)| {
            let value = self.unseal(table, &key, &record)?;
            Some((key, Versioned { value, version: record.version }))
        });
        Ok(opened.collect())
    }

    fn keys(&self, table: TableName) -> Result<Vec<String>, RecordError> {
        let view = self.shared.view.lock();
        Ok(view.mirror.records().of_table(table.0).map(|(key, _)| key.to_owned()).collect())
    }

    fn visit(
        &self,
        table: TableName,
        keys: Range<&str>,
        order: Order,
        visitor: RecordVisitor<'_>,
    ) -> Result<(), RecordError> {
        let (mut start, mut end) = (keys.start.to_owned(), keys.end.to_owned());
        loop {
            let part = self.sealed(table, &start..&end, order);
            let is_last = part.len() < PART;
            for (key, record) in part {
                match order {
                    Order::Ascending => start = format!("{key}\0"),
                    Order::Descending => end.clone_from(&key),
                }
                let Some(value) = self.unseal(table, &key, &record) else { continue };
                if visitor(&key, Versioned { value, version: record.version }).is_break() {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn commit(&self, changes: &[RecordChange]) -> Result<RecordVersion, RecordError> {
        check_changes(changes, MAX_RECORD)?;
        let bytes: usize =
            changes.iter().filter_map(|change| change.value.as_ref()).map(|v| v.len()).sum();
        if let Some(first) = changes.first()
            && (changes.len() > MAX_CHANGES || bytes > MAX_BYTES)
        {
            let record = RecordAddress { table: first.table, key: first.key.clone() };
            let source = format!(
                "a commit has at most {MAX_CHANGES} changes and {MAX_BYTES} bytes, and this one {} and {bytes}",
                changes.len()
            );
            return Err(RecordError::Invalid { record, source: source.into() });
        }
        if changes.is_empty() {
            return Ok(RecordVersion(self.shared.view.lock().mirror.head().revision));
        }
        // After it, further commits fail at once, until etcd stores one: no caller waits again and again.
        self.ask_worker(changes.to_vec(), |problem| self.shared.note_not_writable(problem))
    }

    fn catch_up(&self) -> Result<(), RecordError> {
        self.ask_worker(Vec::new(), |_| ()).map(|_| ())
    }

    fn watch(&self, table: TableName) -> Result<RecordWatch, RecordError> {
        // No commit is between the current state and the first change.
        let mut view = self.shared.view.lock();
        let records = view.mirror.records().of_table(table.0);
        let current: BTreeMap<_, _> =
            records.map(|(key, record)| (key.to_owned(), record.version)).collect();
        let (sender, watch) = RecordWatch::new(current);
        view.watches.push((table, sender));
        Ok(watch)
    }

    fn quarantine(&self, table: TableName, key: &str) {
        self.shared.quarantined.lock().insert((table, key.to_owned()));
    }

    fn quarantined(&self, table: TableName) -> BTreeSet<String> {
        let quarantined = self.shared.quarantined.lock();
        let of_table = quarantined.iter().filter(|(of, _)| *of == table);
        of_table.map(|(_, key)| key.clone()).collect()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.wake.notify_one();
        if let Some(worker) = self.worker.take() {
            // It ends within a request to etcd. A panic of it has been printed.
            let _ = worker.join();
        }
        if let Some(writer) = self.copy_writer.take() {
            writer.end();
        }
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").finish_non_exhaustive()
    }
}
