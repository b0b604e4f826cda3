//! The register of proxies: who has joined, and how far each has come. Kept in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    CertificateState, JoinRecord, Participation, ProxyId, Records, Revocation, StoreError,
};
use ironmesh_store::Store;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the record of a proxy is kept whose certificate has ended or was never used: so long
/// operators are told what became of it. It is let in without a record as little as with it.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// For how long the clock must have said without interruption that a record is no longer kept, before it
/// is removed for good: a clock may be wrong for a while, such as at a start before the network's time.
const OVER_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// All join records. What is here is in the store: each change is kept first.
#[derive(Debug)]
pub(crate) struct Register {
    store: Arc<Store>,
    records: Mutex<Known>,
    /// Those who wait for the records, to claim their certificates. Locked for moments only.
    claims: Mutex<BTreeMap<ProxyId, Timestamp>>,
    generation: watch::Sender<Generation>,
}

/// How far a proxy has come.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    /// What it has in force.
    pub(crate) in_force: InForce<'a>,
    /// The ports behind which no provider knows an application.
    pub(crate) without_application: Participation,
    /// The ports whose way to the applications that are known is not in force in it.
    pub(crate) without_way: Participation,
}

/// What a proxy has in force.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InForce<'a> {
    /// These service ports.
    These(&'a Participation),
    /// These service ports at the most: what else it took part with it serves no longer.
    AtMost(&'a Participation),
    /// No service port: it has no inbound listener.
    Nothing,
}

#[cfg(test)]
impl<'a> From<InForce<'a>> for Progress<'a> {
    /// Of one that leads to its applications wherever it serves.
    fn from(in_force: InForce<'a>) -> Self {
        let (without_application, without_way) = Default::default();
        Self { in_force, without_application, without_way }
    }
}

impl Progress<'_> {
    /// The record with this in it, if that is news.
    fn news_of(&self, record: &JoinRecord) -> Option<JoinRecord> {
        // Its Envoy's last answer may come behind the revocation.
        if record.revoked.is_some() {
            return None;
        }
        let mut participation = record.participation.clone();
        match self.in_force {
            InForce::These(ports) => participation.clone_from(ports),
            InForce::Nothing => participation = Participation::default(),
            InForce::AtMost(ports) => participation.0.retain(|port| ports.0.contains(port)),
        }
        // One whose application is another is called all the time: only who led nowhere has to hear of one.
        let still = record.vacant.0.intersection(&self.without_way.0);
        let vacant = still.chain(&self.without_application.0);
        let vacant = vacant.filter(|port| participation.0.contains(port)).cloned();
        let vacant = Participation(vacant.collect());
        ((&participation, &vacant) != (&record.participation, &record.vacant)).then(|| JoinRecord {
            participation,
            vacant,
            ..record.clone()
        })
    }
}

/// Counts the changes of the register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// All of them.
    pub(crate) changes: u64,
    /// Those by which somebody has joined, or was revoked.
    pub(crate) members: u64,
}

#[derive(Debug, Default)]
struct Known {
    all: Records,
    /// Of proxies that are or may yet be there.
    in_use: Records,
    revoked: Records,
    /// Those whose time to be kept is over, and since when that was seen at each look.
    over_since: BTreeMap<ProxyId, Instant>,
}

impl Known {
    fn sort(&mut self, record: &Arc<JoinRecord>) {
        let id = record.id;
        if record.revoked.is_some() {
            self.in_use.remove(&id);
            self.revoked.insert(id, Arc::clone(record));
        } else {
            self.in_use.insert(id, Arc::clone(record));
        }
    }
}

impl Register {
    pub(crate) fn open(store: Arc<Store>, now: Timestamp) -> Result<Self, StoreError> {
        let mut known = Known::default();
        for record in store.join_records()? {
            let record = Arc::new(record);
            known.all.insert(record.id, Arc::clone(&record));
            known.sort(&record);
        }
        let register = Self {
            store,
            records: Mutex::new(known),
            claims: Mutex::default(),
            generation: watch::Sender::default(),
        };
        register.retire(now);
        Ok(register)
    }

    /// Counts the changes. Level-triggered: look at [`Register::records`].
    pub(crate) fn generation(&self) -> watch::Receiver<Generation> {
        self.generation.subscribe()
    }

    /// The records of all proxies that ever joined, but for those that ended long ago.
    pub(crate) fn all_records(&self) -> Records {
        self.records.lock().all.clone()
    }

    /// The records of proxies that are or may yet be there.
    pub(crate) fn records(&self) -> Records {
        self.records.lock().in_use.clone()
    }

    /// The records of proxies that were revoked.
    pub(crate) fn revoked(&self) -> Records {
        self.records.lock().revoked.clone()
    }

    /// Takes those out of use that have let their time pass.
    pub(crate) fn retire(&self, now: Timestamp) {
        let mut records = self.records.lock();
        let retired = records.in_use.values().filter(|record| !record.is_in_use(now));
        let retired: Vec<_> = retired.map(|record| record.id).collect();
        for id in retired {
            records.in_use.remove(&id);
        }
    }

    /// Puts those back into use whose time has not passed after all: the clock was wrong.
    pub(crate) fn restore(&self, now: Timestamp) {
        let mut records = self.records.lock();
        let is_back = |record: &&Arc<JoinRecord>| {
            record.is_in_use(now) && !records.in_use.contains_key(&record.id)
        };
        let back: Vec<_> = records.all.values().filter(is_back).cloned().collect();
        records.in_use.extend(back.into_iter().map(|record| (record.id, record)));
    }

    /// Forgets those of whom nobody asks any more: their certificates have ended long ago, and the clock
    /// has said so for a day of `instant`, which nobody sets.
    pub(crate) fn forget(&self, now: Timestamp, instant: Instant) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let records = &mut *records;
        let is_over = |record: &JoinRecord| match record.certificate_state(now) {
            CertificateState::Forfeit => now.duration_since(record.joined_at) > KEPT,
            _ => now.duration_since(record.certificate_expires_at) > KEPT,
        };
        let over = records.all.values().filter(|record| is_over(record)).map(|record| {
            (record.id, records.over_since.get(&record.id).copied().unwrap_or(instant))
        });
        records.over_since = over.collect();
        let for_long = records.over_since.iter().filter(|(_, since)| instant - **since >= OVER_FOR);
        let over: Vec<_> = for_long.map(|(id, _)| *id).collect();
        if over.is_empty() {
            return Ok(());
        }
        self.store.remove_join_records(&over)?;
        for id in over {
            records.all.remove(&id);
            records.in_use.remove(&id);
            records.revoked.remove(&id);
            records.over_since.remove(&id);
        }
        Ok(())
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

    /// The proxies whose stored records are quarantined.
    pub(crate) fn quarantined(&self) -> BTreeSet<ProxyId> {
        self.store.quarantined_proxies()
    }

    /// Removes the stored record of a proxy that is quarantined. Returns whether there was one.
    pub(crate) fn discard_quarantined(&self, id: ProxyId) -> Result<bool, StoreError> {
        let is_quarantined = self.store.quarantined_proxies().contains(&id);
        if is_quarantined {
            self.store.remove_join_records(&[id])?;
        }
        Ok(is_quarantined)
    }

    /// The proxy is let in no more. What was said first stays.
    pub(crate) fn revoke(&self, id: ProxyId, revocation: Revocation) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let record = records.all.get(&id).filter(|record| record.revoked.is_none());
        let revoked = record.map(|record| JoinRecord {
            revoked: Some(revocation),
            participation: Participation::default(),
            vacant: Participation::default(),
            ..(**record).clone()
        });
        self.keep(&mut records, revoked.into_iter().collect())
    }

    /// These are suspected to be dead since then, or, without a time, no more.
    pub(crate) fn suspect(
        &self,
        proxies: &[(ProxyId, Option<Timestamp>)],
    ) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let changed = proxies.iter().filter_map(|(id, since)| {
            let record = records.all.get(id)?;
            let is_news = record.suspect_since.is_some() != since.is_some();
            is_news.then(|| JoinRecord { suspect_since: *since, ..(**record).clone() })
        });
        let changed = changed.collect();
        self.keep(&mut records, changed)
    }

    /// Proxies have come so far. What of it is news is kept in one transaction: all of it, or nothing.
    pub(crate) fn participate<'a>(
        &self,
        progress: impl IntoIterator<Item = (ProxyId, Progress<'a>)>,
    ) -> Result<(), StoreError> {
        let mut records = self.records.lock();
        let changed = progress
            .into_iter()
            .filter_map(|(id, progress)| progress.news_of(records.all.get(&id)?))
            .collect();
        self.keep(&mut records, changed)
    }

    /// Written under the lock, so that the store sees changes in the order in which they happen.
    fn keep(&self, records: &mut Known, changed: Vec<JoinRecord>) -> Result<(), StoreError> {
        if changed.is_empty() {
            return Ok(());
        }
        self.store.put_join_records(&changed)?;
        let mut members = 0;
        for record in changed {
            let record = Arc::new(record);
            let old = records.all.insert(record.id, Arc::clone(&record));
            let was_revoked = old.as_ref().is_some_and(|old| old.revoked.is_some());
            members += u64::from(old.is_none() || was_revoked != record.revoked.is_some());
            records.sort(&record);
        }
        self.generation.send_modify(|generation| {
            generation.changes += 1;
            generation.members += members;
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
