//! Changes of the register: each is one commit of the store, which expects the versions that the register knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, ProxyId, Records, StoreError};
use ironmesh_store::{
    ExpectedVersion, MAX_COMMIT_BYTES, MAX_COMMIT_CHANGES, NamedProxy, Record as _, RecordChange,
    RecordError, RecordVersion,
};

use super::{RecordIndex, Register};

/// How often a change is tried, each time on the newest records. Several control planes that write one record at once
/// all make progress: one of their commits succeeds.
const MAX_ATTEMPTS: usize = 32;

impl Register {
    /// Stores the records that `change` returns for the present ones, and then shows them. After a conflict it is
    /// called again, for newer records.
    pub(super) fn change(
        &self,
        mut change: impl FnMut(&Records) -> Vec<JoinRecord>,
    ) -> Result<(), StoreError> {
        self.try_change(|records| Ok(change(records)))
    }

    /// The same, unless `change` fails.
    pub(super) fn try_change<E: From<StoreError>>(
        &self,
        mut change: impl FnMut(&Records) -> Result<Vec<JoinRecord>, E>,
    ) -> Result<(), E> {
        let _changing = self.changing.lock();
        let mut attempts = 1..=MAX_ATTEMPTS;
        loop {
            attempts.next();
            let changed = change(&self.all_records())?;
            if changed.is_empty() {
                return Ok(());
            }
            let ids: Vec<_> = changed.iter().map(|record| record.id).collect();
            let error = match self.commit(changed) {
                Ok(()) => return Ok(()),
                Err(RecordError::Conflict(at)) if !attempts.is_empty() => {
                    let is_of_name = at.iter().any(|record| record.table == NamedProxy::TABLE);
                    let named = if is_of_name { self.newly_named()? } else { BTreeSet::new() };
                    self.reread(ids.into_iter().chain(named)).err()
                }
                Err(error) => Some(StoreError::new(operation(&ids), error)),
            };
            error.map_or(Ok(()), Err)?;
        }
    }

    /// Removes records, unless they have changed.
    pub(super) fn remove(&self, proxies: &[ProxyId]) -> Result<(), StoreError> {
        let failed = |error| {
            let count = proxies.len();
            StoreError::new(format!("remove the join records of {count} proxies"), error)
        };
        let removals: Result<Vec<_>, _> = proxies.iter().map(|id| self.removal(*id)).collect();
        for Part { proxies: removed, changes } in parts(removals.map_err(failed)?) {
            match self.table.store().commit(&changes) {
                Ok(_) => {
                    let mut records = self.records.lock();
                    for id in removed {
                        records.remove(id);
                    }
                }
                // A later look removes those that are still past their retention.
                Err(RecordError::Conflict(_)) => self.reread(removed)?,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// The removal of the record of a proxy, with that of its name.
    fn removal(&self, id: ProxyId) -> Result<(ProxyId, Vec<RecordChange>), RecordError> {
        let expected = self.records.lock().expected_version(id);
        let record = RecordChange::remove::<JoinRecord>(id.to_string(), expected);
        Ok((id, self.unnaming(id)?.into_iter().chain([record]).collect()))
    }

    /// Commits records, and then shows them. Many are several commits, each of which is shown before the next.
    fn commit(&self, changed: Vec<JoinRecord>) -> Result<(), RecordError> {
        let puts: Result<Vec<_>, _> = changed.iter().map(|one| self.put(one, &changed)).collect();
        let mut changed = changed.into_iter();
        for part in parts(puts?) {
            let version = self.table.store().commit(&part.changes)?;
            let stored = changed.by_ref().take(part.proxies.len());
            self.show(stored.map(|record| (Arc::new(record), version)), []);
        }
        Ok(())
    }

    /// The changes that store a record, one of several, with its name.
    fn put(
        &self,
        record: &JoinRecord,
        all: &[JoinRecord],
    ) -> Result<(ProxyId, Vec<RecordChange>), RecordError> {
        let expected = self.records.lock().expected_version(record.id);
        let put = RecordChange::put(record, expected)?;
        Ok((record.id, self.naming(record, all)?.into_iter().chain([put]).collect()))
    }

    /// Reads the records of these proxies again, and shows what has changed. The caller holds `changing`.
    pub(super) fn reread(
        &self,
        proxies: impl IntoIterator<Item = ProxyId>,
    ) -> Result<(), StoreError> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for id in proxies.into_iter().collect::<BTreeSet<_>>() {
            match self.table.get(&id.to_string()) {
                Ok(Some(record)) => changed.push((Arc::new(record.value), record.version)),
                Ok(None) => gone.push(id),
                // A quarantined record counts as missing, as at a start.
                Err(RecordError::Corrupt(_)) if self.quarantined().contains(&id) => gone.push(id),
                Err(error) => {
                    let operation = format!("read the join record of proxy `{id}`");
                    return Err(StoreError::new(operation, error));
                }
            }
        }
        self.show(changed, gone);
        Ok(())
    }

    /// Shows stored records with their versions, and the absence of removed ones.
    fn show(
        &self,
        changed: impl IntoIterator<Item = (Arc<JoinRecord>, RecordVersion)>,
        gone: impl IntoIterator<Item = ProxyId>,
    ) {
        let (mut changes, mut members) = (0, 0);
        let mut records = self.records.lock();
        for (record, version) in changed {
            if records.versions.insert(record.id, version) == Some(version) {
                continue;
            }
            let old = records.all.insert(record.id, Arc::clone(&record));
            let is_same_member = old.is_some_and(|old| {
                old.revoked.is_some() == record.revoked.is_some() && old.services == record.services
            });
            changes += 1;
            members += u64::from(!is_same_member);
            records.classify(&record);
        }
        for id in gone {
            if records.all.contains_key(&id) {
                changes += 1;
                members += 1;
            }
            records.remove(id);
        }
        drop(records);
        if changes > 0 {
            self.generation.send_modify(|generation| {
                generation.changes += 1;
                generation.members += members;
            });
        }
    }
}

impl RecordIndex {
    fn expected_version(&self, id: ProxyId) -> ExpectedVersion {
        self.versions.get(&id).copied().map_or(ExpectedVersion::Absent, ExpectedVersion::Exactly)
    }
}

/// Changes that are one commit.
struct Part {
    proxies: Vec<ProxyId>,
    changes: Vec<RecordChange>,
}

/// The changes of proxies in parts that every store accepts, in order. Those of one proxy stay together.
fn parts(all: Vec<(ProxyId, Vec<RecordChange>)>) -> Vec<Part> {
    let size = |changes: &[RecordChange]| -> usize {
        changes.iter().map(|change| change.value.as_ref().map_or(0, |value| value.len())).sum()
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut bytes = 0;
    for (id, changes) in all {
        let added = size(&changes);
        let last = parts.last_mut().filter(|part| {
            part.changes.len() + changes.len() <= MAX_COMMIT_CHANGES
                && bytes + added <= MAX_COMMIT_BYTES
        });
        if let Some(part) = last {
            bytes += added;
            part.proxies.push(id);
            part.changes.extend(changes);
        } else {
            bytes = added;
            parts.push(Part { proxies: vec![id], changes });
        }
    }
    parts
}

fn operation(proxies: &[ProxyId]) -> String {
    match proxies {
        [id] => format!("keep the join record of proxy `{id}`"),
        proxies => format!("keep the join records of {} proxies", proxies.len()),
    }
}
