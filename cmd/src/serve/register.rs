//! The register of proxies: who has joined, and how far each has come. Kept in the store.

use std::collections::BTreeMap;
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
    /// Those who wait for the records, to claim their certificates. Locked for moments only.
    claims: Mutex<BTreeMap<ProxyId, Timestamp>>,
    generation: watch::Sender<Generation>,
}

/// What a proxy has in force.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InForce<'a> {
    /// These service ports.
    These(&'a Participation),
    /// These service ports at the most: what else it took part with it serves no longer.
    AtMost(&'a Participation),
}

impl InForce<'_> {
    /// The record with this in it, if that is news.
    fn news_of(self, record: &JoinRecord) -> Option<JoinRecord> {
        let mut participation = record.participation.clone();
        match self {
            Self::These(ports) => participation.clone_from(ports),
            Self::AtMost(ports) => participation.0.retain(|port| ports.0.contains(port)),
        }
        (participation != record.participation)
            .then(|| JoinRecord { participation, ..record.clone() })
    }
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
            claims: Mutex::default(),
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
        self.claims.lock().insert(id, now);
        let mut records = self.records.lock();
        // One transaction for all who wait here: a thousand that connect at once do not wait for the
        // disk one after the other.
        let mut claims = std::mem::take(&mut *self.claims.lock());
        // Who took this claim may have failed to keep it.
        claims.entry(id).or_insert(now);
        let claimed = claims.into_iter().filter_map(|(id, at)| {
            let record = records.all.get(&id).filter(|record| record.claimed_at.is_none())?;
            Some(JoinRecord { claimed_at: Some(at), ..(**record).clone() })
        });
        let claimed = claimed.collect();
        self.keep(&mut records, claimed)
    }

    /// Proxies have come so far. What of it is news is kept in one transaction: all of it, or nothing.
    pub(crate) fn participate<'a>(
        &self,
        progress: impl IntoIterator<Item = (ProxyId, InForce<'a>)>,
    ) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let changed = progress
            .into_iter()
            .filter_map(|(id, in_force)| in_force.news_of(records.all.get(&id)?))
            .collect();
        self.keep(&mut records, changed)
    }

    /// Written under the lock, so that the store sees changes in the order in which they happen.
    fn keep(&self, records: &mut Known, changed: Vec<JoinRecord>) -> Result<(), StoreError> {
        if changed.is_empty() {
            return Ok(());
        }
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
    use std::time::Duration;

    use ironmesh_store::KeyEncryptionKey;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;

    fn id_of(number: u8) -> ProxyId {
        ProxyId(Uuid::from_u128(number.into()))
    }

    fn record(id: u8, joined_at: Timestamp) -> JoinRecord {
        JoinRecord {
            id: id_of(id),
            services: vec!["store".parse().unwrap()],
            mesh_address: SocketAddr::from(([10, 0, 0, 1], 15003)),
            joined_at,
            certificate_expires_at: joined_at + SignedDuration::from_hours(24 * 365),
            claimed_at: None,
            participation: Participation::default(),
        }
    }

    #[test]
    fn those_who_claim_at_once_wait_for_the_disk_once() {
        const PROXIES: u8 = 50;
        let (folder, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
        let kek = KeyEncryptionKey::load_or_create(&folder.path().join("kek"), false).unwrap();
        let store = Arc::new(Store::open(&folder.path().join("state"), kek).unwrap());
        let register = Register::open(Arc::clone(&store), now).unwrap();
        register.add_all((0..PROXIES).map(|id| record(id, now)).collect()).unwrap();
        let before = register.generation().borrow().changes;
        std::thread::scope(|threads| {
            // The disk is busy with something else.
            let records = register.records.lock();
            for id in 0..PROXIES {
                let register = &register;
                threads.spawn(move || register.claim(id_of(id), now).unwrap());
            }
            let deadline = Instant::now() + Duration::from_secs(30);
            while register.claims.lock().len() < usize::from(PROXIES) {
                assert!(Instant::now() < deadline, "{} wait", register.claims.lock().len());
                std::thread::yield_now();
            }
            drop(records);
        });
        assert_eq!(register.generation().borrow().changes, before + 1);
        assert!(store.join_records().unwrap().iter().all(|record| record.claimed_at == Some(now)));
    }

    #[test]
    fn a_certificate_that_is_never_used_is_forfeit_after_a_day() {
        let joined: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut record = record(1, joined);
        let after = |hours| joined + SignedDuration::from_hours(hours);
        assert!(!is_forfeit(&record, after(24)));
        assert!(is_forfeit(&record, after(25)));
        record.claimed_at = Some(after(1));
        assert!(!is_forfeit(&record, after(25)));
    }
}
