//! The register of proxies: who has joined, and how far each has come. Kept in the store.

use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, Participation, ProxyId, Records, StoreError};
use ironmesh_store::Store;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

/// How long a certificate may wait for its first connection (docs/reference/names.md).
const UNCLAIMED: SignedDuration = SignedDuration::from_hours(24);

/// Whether the proxy has never connected, and may no more.
pub(crate) fn is_forfeit(record: &JoinRecord, now: Timestamp) -> bool {
    record.claimed_at.is_none() && now.duration_since(record.joined_at) > UNCLAIMED
}

/// All join records. What is here is in the store: each change is kept first.
#[derive(Debug)]
pub(crate) struct Register {
    store: Arc<Store>,
    records: Mutex<Known>,
    generation: watch::Sender<Generation>,
}

/// Counts the changes of the register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// All of them.
    pub(crate) changes: u64,
    /// Those by which somebody has joined.
    pub(crate) joined: u64,
}

#[derive(Debug, Default)]
struct Known {
    all: Records,
    /// Of proxies that are or may yet be there.
    in_use: Records,
}

impl Register {
    pub(crate) fn open(store: Arc<Store>, now: Timestamp) -> Result<Self, StoreError> {
        let records = store.join_records()?.into_iter();
        let all: Records = records.map(|record| (record.id, Arc::new(record))).collect();
        let register = Self {
            store,
            records: Mutex::new(Known { in_use: all.clone(), all }),
            generation: watch::Sender::default(),
        };
        register.forget_forfeit(now);
        Ok(register)
    }

    /// Counts the changes. Level-triggered: look at [`Register::records`].
    pub(crate) fn generation(&self) -> watch::Receiver<Generation> {
        self.generation.subscribe()
    }

    /// The records of all proxies that ever joined.
    pub(crate) fn all_records(&self) -> Records {
        self.records.lock().all.clone()
    }

    /// The records of proxies that are or may yet be there.
    pub(crate) fn records(&self) -> Records {
        self.records.lock().in_use.clone()
    }

    /// Takes those out of use that have let their time pass.
    pub(crate) fn forget_forfeit(&self, now: Timestamp) {
        let mut records = self.records.lock();
        let forfeit = records.in_use.values().filter(|record| is_forfeit(record, now));
        let forfeit: Vec<_> = forfeit.map(|record| record.id).collect();
        for id in forfeit {
            records.in_use.remove(&id);
        }
    }

    pub(crate) fn get(&self, id: ProxyId) -> Option<Arc<JoinRecord>> {
        self.records.lock().all.get(&id).cloned()
    }

    #[cfg(test)]
    pub(crate) fn add(&self, record: JoinRecord) -> Result<(), StoreError> {
        self.add_all(vec![record])
    }

    /// Adds the records of proxies that join: all of them, or none.
    pub(crate) fn add_all(&self, joining: Vec<JoinRecord>) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        self.keep(&mut records, joining)
    }

    /// The proxy's first accepted connection claims its certificate.
    pub(crate) fn claim(&self, id: ProxyId, now: Timestamp) -> Result<(), StoreError> {
        let is_claimed = |record: &JoinRecord| record.claimed_at.is_some();
        self.change(id, is_claimed, |record| record.claimed_at = Some(now))
    }

    /// The proxy has these service ports in force.
    pub(crate) fn participates(&self, id: ProxyId, with: &Participation) -> Result<(), StoreError> {
        let is_so = |record: &JoinRecord| record.participation == *with;
        self.change(id, is_so, |record| record.participation.clone_from(with))
    }

    /// The proxy has these service ports in force at the most.
    pub(crate) fn participates_at_most(
        &self,
        id: ProxyId,
        with: &Participation,
    ) -> Result<(), StoreError> {
        let is_so = |record: &JoinRecord| record.participation.0.is_subset(&with.0);
        let retain = |record: &mut JoinRecord| {
            record.participation.0.retain(|port| with.0.contains(port));
        };
        self.change(id, is_so, retain)
    }

    /// Changes a record, unless that `is_so` already.
    fn change(
        &self,
        id: ProxyId,
        is_so: impl FnOnce(&JoinRecord) -> bool,
        change: impl FnOnce(&mut JoinRecord),
    ) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let Some(old) = records.all.get(&id).filter(|old| !is_so(old)) else { return Ok(()) };
        let mut record = (**old).clone();
        change(&mut record);
        self.keep(&mut records, vec![record])
    }

    /// Written under the lock, so that the store sees changes in the order in which they happen.
    fn keep(&self, records: &mut Known, changed: Vec<JoinRecord>) -> Result<(), StoreError> {
        self.store.put_join_records(&changed)?;
        let mut joined = 0;
        for record in changed {
            let record = Arc::new(record);
            let old = records.all.insert(record.id, Arc::clone(&record));
            joined += u64::from(old.is_none());
            records.in_use.insert(record.id, record);
        }
        self.generation.send_modify(|generation| {
            generation.changes += 1;
            generation.joined += joined;
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_certificate_that_is_never_used_is_forfeit_after_a_day() {
        let joined: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut record = JoinRecord {
            id: ProxyId(Uuid::nil()),
            services: vec!["store".parse().unwrap()],
            mesh_address: SocketAddr::from(([10, 0, 0, 1], 15003)),
            joined_at: joined,
            certificate_expires_at: joined + SignedDuration::from_hours(24 * 365),
            claimed_at: None,
            participation: Participation::default(),
        };
        let after = |hours| joined + SignedDuration::from_hours(hours);
        assert!(!is_forfeit(&record, after(24)));
        assert!(is_forfeit(&record, after(25)));
        record.claimed_at = Some(after(1));
        assert!(!is_forfeit(&record, after(25)));
    }
}
