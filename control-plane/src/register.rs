//! The register of proxies: their join records and progress, kept in the store. It never decides who may connect.
//!
//! Several control planes may share the store: each change is a compare-and-swap on the versions of its records, and
//! the register follows the changes of others.

mod commit;
mod cordons;
mod first_use;
mod follow;
mod names;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    CertificateSource, CertificateState, JoinRecord, Participation, ProxyId, ProxyVersions,
    Records, Revocation, ServiceAccount, ServiceName, SharedCertificate, StoreError,
};
use ironmesh_store::{
    ExpectedVersion, NamedProxy, RecordChange, RecordError, RecordStore, RecordTable, RecordVersion,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use cordons::CordonOrder;
pub(crate) use first_use::CertificateFirstUse;

/// How long the record of a proxy is kept after its certificate has expired or its enrollment has: operators see for so
/// long what became of it. Admission rejects the proxy with and without a record.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long the clock must show without interruption that a record is past its retention before it is removed. A clock
/// may be wrong for a while, for example at a start before time synchronization.
const CLOCK_CONFIRMATION: Duration = Duration::from_secs(24 * 60 * 60);

/// All join records. Each change is stored before it is visible here.
#[derive(Debug)]
pub(crate) struct Register {
    table: RecordTable<JoinRecord>,
    names: RecordTable<NamedProxy>,
    /// Held while a change is stored, so that the store sees changes in their order.
    changing: Mutex<()>,
    /// Never held during a disk write, so reads do not wait.
    records: Mutex<RecordIndex>,
    /// First uses of certificates that wait for the change before them. Never held during a disk write.
    first_uses: Mutex<BTreeMap<ProxyId, CertificateFirstUse>>,
    generation: watch::Sender<Generation>,
}

/// The progress of a proxy with its service ports.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    /// The service ports that it ACKed.
    pub(crate) acked_ports: AckedPorts<'a>,
    /// The ports for which no provider reports an application.
    pub(crate) without_backend: Participation,
    /// The ports with an application whose local cluster the proxy has not ACKed.
    pub(crate) without_local_cluster: Participation,
    /// Where its Envoy gets its service certificates from.
    pub(crate) certificates: CertificateSource,
    /// The version of its Envoy, if it reports one.
    pub(crate) envoy: Option<String>,
}

/// The service ports that a proxy ACKed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AckedPorts<'a> {
    /// Exactly these.
    Exactly(&'a Participation),
    /// No others than these: the proxy serves no longer what else it had ACKed.
    AtMost(&'a Participation),
    /// None: the proxy has no inbound listener.
    None,
}

#[cfg(test)]
impl<'a> From<AckedPorts<'a>> for Progress<'a> {
    /// The progress of a proxy that leads to an application on each port.
    fn from(acked_ports: AckedPorts<'a>) -> Self {
        let (without_backend, without_local_cluster) = Default::default();
        let certificates = CertificateSource::default();
        let envoy = None;
        Self { acked_ports, without_backend, without_local_cluster, certificates, envoy }
    }
}

impl Progress<'_> {
    /// The record with this progress, if that changes it.
    fn updated_record(&self, record: &JoinRecord) -> Option<JoinRecord> {
        // The last answer of its Envoy may come after the revocation.
        if record.revoked.is_some() {
            return None;
        }
        let mut participation = record.participation.clone();
        match self.acked_ports {
            AckedPorts::Exactly(ports) => participation.clone_from(ports),
            AckedPorts::None => participation = Participation::default(),
            AckedPorts::AtMost(ports) => participation.0.retain(|port| ports.0.contains(port)),
        }
        // Only a port without a backend waits for its local cluster: a changed application never withdraws the port.
        let still = record.ports_without_backend.0.intersection(&self.without_local_cluster.0);
        let ports = still.chain(&self.without_backend.0);
        let ports = ports.filter(|port| participation.0.contains(port)).cloned();
        let ports_without_backend = Participation(ports.collect());
        let certificates = self.certificates;
        let envoy = self.envoy.clone().or_else(|| record.versions.envoy.clone());
        let known = (&record.participation, &record.ports_without_backend, record.certificates);
        ((&participation, &ports_without_backend, certificates) != known
            || envoy != record.versions.envoy)
            .then(|| JoinRecord {
                participation,
                ports_without_backend,
                certificates,
                versions: ProxyVersions { envoy, ..record.versions.clone() },
                ..record.clone()
            })
    }
}

/// The counts of the register's changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// All changes.
    pub(crate) changes: u64,
    /// Changes by which a proxy was enrolled or revoked, or got other services.
    pub(crate) members: u64,
}

/// The join records, by state.
#[derive(Debug, Default)]
struct RecordIndex {
    all: Records,
    /// The records of proxies that are connected or may connect.
    in_use: Records,
    revoked: Records,
    /// The versions of all records.
    versions: BTreeMap<ProxyId, RecordVersion>,
    /// The records past their retention, and since when each look has found them so.
    overdue_since: BTreeMap<ProxyId, Instant>,
}

impl RecordIndex {
    fn classify(&mut self, record: &Arc<JoinRecord>) {
        let id = record.id;
        if record.revoked.is_some() {
            self.in_use.remove(&id);
            self.revoked.insert(id, Arc::clone(record));
        } else {
            self.in_use.insert(id, Arc::clone(record));
        }
    }

    /// The records that have been past their retention at each look for [`CLOCK_CONFIRMATION`].
    fn overdue(&mut self, now: Timestamp, instant: Instant) -> Vec<ProxyId> {
        let is_over = |record: &JoinRecord| match record.certificate_state(now) {
            CertificateState::EnrollmentExpired => {
                now.duration_since(record.enrolled_at) > RETENTION
            }
            _ => now.duration_since(record.certificate_expires_at) > RETENTION,
        };
        let over = self.all.values().filter(|record| is_over(record)).map(|record| {
            (record.id, self.overdue_since.get(&record.id).copied().unwrap_or(instant))
        });
        self.overdue_since = over.collect();
        let is_long_overdue = |since: Instant| instant - since >= CLOCK_CONFIRMATION;
        let confirmed = self.overdue_since.iter().filter(|(_, since)| is_long_overdue(**since));
        confirmed.map(|(id, _)| *id).collect()
    }

    fn remove(&mut self, id: ProxyId) {
        self.all.remove(&id);
        self.in_use.remove(&id);
        self.revoked.remove(&id);
        self.versions.remove(&id);
        self.overdue_since.remove(&id);
    }
}

impl Register {
    /// Opens the register with the stored records.
    pub(crate) fn open(store: Arc<dyn RecordStore>, now: Timestamp) -> Result<Self, StoreError> {
        let table = RecordTable::<JoinRecord>::new(Arc::clone(&store));
        let mut index = RecordIndex::default();
        let stored = table.list().map_err(|e| StoreError::new("read the join records", e))?;
        for stored in stored {
            let record = Arc::new(stored.value);
            index.versions.insert(record.id, stored.version);
            index.all.insert(record.id, Arc::clone(&record));
            index.classify(&record);
        }
        let register = Self {
            table,
            names: RecordTable::new(store),
            changing: Mutex::default(),
            records: Mutex::new(index),
            first_uses: Mutex::default(),
            generation: watch::Sender::default(),
        };
        register.retire(now);
        Ok(register)
    }

    /// The counts of changes. Level-triggered: read [`Register::records`] after one.
    pub(crate) fn generation(&self) -> watch::Receiver<Generation> {
        self.generation.subscribe()
    }

    /// The records of all enrolled proxies, except for those past their retention.
    pub(crate) fn all_records(&self) -> Records {
        self.records.lock().all.clone()
    }

    /// The records of proxies that are connected or may connect.
    pub(crate) fn records(&self) -> Records {
        self.records.lock().in_use.clone()
    }

    /// The records of revoked proxies.
    pub(crate) fn revoked(&self) -> Records {
        self.records.lock().revoked.clone()
    }

    /// Takes proxies out of use whose certificate or enrollment has expired.
    pub(crate) fn retire(&self, now: Timestamp) {
        let mut records = self.records.lock();
        let retired = records.in_use.values().filter(|record| !record.is_in_use(now));
        let retired: Vec<_> = retired.map(|record| record.id).collect();
        for id in retired {
            records.in_use.remove(&id);
        }
    }

    /// Puts proxies back into use that have not expired after all, because the clock was wrong.
    pub(crate) fn restore(&self, now: Timestamp) {
        let mut records = self.records.lock();
        let is_back = |record: &&Arc<JoinRecord>| {
            record.is_in_use(now) && !records.in_use.contains_key(&record.id)
        };
        let back: Vec<_> = records.all.values().filter(is_back).cloned().collect();
        records.in_use.extend(back.into_iter().map(|record| (record.id, record)));
    }

    /// Removes records past their retention, once the clock has shown that for a day of the steady clock, `instant`.
    pub(crate) fn forget(&self, now: Timestamp, instant: Instant) -> Result<(), StoreError> {
        let _changing = self.changing.lock();
        let over = self.records.lock().overdue(now, instant);
        if over.is_empty() {
            return Ok(());
        }
        self.remove(&over)
    }

    /// The record of a proxy, whatever its state.
    pub(crate) fn get(&self, id: ProxyId) -> Option<Arc<JoinRecord>> {
        self.records.lock().all.get(&id).cloned()
    }

    #[cfg(test)]
    pub(crate) fn add(&self, record: JoinRecord) -> Result<(), StoreError> {
        self.add_all(vec![record])
    }

    #[cfg(test)]
    pub(crate) fn add_all(&self, enrolled: Vec<JoinRecord>) -> Result<(), StoreError> {
        self.change(move |_| enrolled.clone())
    }

    /// Adds the records of newly enrolled proxies, which `enroll` makes for the present ones: all of them, or none.
    /// After a conflict with another control plane, `enroll` is called again: also if a name that it chose was given to
    /// a different proxy meanwhile.
    pub(crate) fn enroll<E: From<StoreError>>(
        &self,
        enroll: impl FnMut(&Records) -> Result<Vec<JoinRecord>, E>,
    ) -> Result<(), E> {
        self.try_change(enroll)?;
        Ok(self.record_high_water()?)
    }

    /// Before an answer that issues or revokes a certificate: an older copy of the state does not go unnoticed.
    fn record_high_water(&self) -> Result<(), StoreError> {
        let recorded = self.table.store().record_high_water();
        recorded.map_err(|e| StoreError::new("record the high-water mark of the state", e))
    }

    /// Announces the first use of a certificate, which the next call of [`Register::record_use`] writes, too.
    pub(crate) fn announce_use(&self, id: ProxyId, first_use: CertificateFirstUse) {
        self.first_uses.lock().insert(id, first_use);
    }

    /// Records the first use of a proxy's certificate by an accepted connection.
    pub(crate) fn record_use(
        &self,
        id: ProxyId,
        first_use: &CertificateFirstUse,
    ) -> Result<(), StoreError> {
        self.first_uses.lock().insert(id, first_use.clone());
        let mut uses = BTreeMap::new();
        self.change(|records| {
            // One transaction for all that wait here: a thousand proxies that connect at once do not wait for the disk
            // one after the other.
            uses.append(&mut self.first_uses.lock());
            // A concurrent call that took this one may have failed to store it.
            uses.entry(id).or_insert_with(|| first_use.clone());
            let used = uses.iter();
            used.filter_map(|(id, first_use)| first_use.updated_record(records.get(id)?)).collect()
        })
    }

    /// Gives a proxy other services.
    pub(crate) fn set_services(
        &self,
        id: ProxyId,
        services: &[ServiceName],
    ) -> Result<(), StoreError> {
        self.change(|records| {
            let record = records.get(&id).filter(|record| record.services != services);
            let changed = record.map(|record| {
                let mut changed = JoinRecord { services: services.to_vec(), ..(**record).clone() };
                changed.participation.0.retain(|(service, _)| services.contains(service));
                changed.ports_without_backend.0.retain(|(service, _)| services.contains(service));
                changed
            });
            changed.into_iter().collect()
        })
    }

    /// The proxies whose stored records are quarantined.
    pub(crate) fn quarantined(&self) -> BTreeSet<ProxyId> {
        self.table.quarantined().iter().filter_map(|key| key.parse().ok()).collect()
    }

    /// Removes the quarantined record of a proxy. Returns whether there was one.
    pub(crate) fn discard_quarantined(&self, id: ProxyId) -> Result<bool, StoreError> {
        let is_quarantined = self.quarantined().contains(&id);
        if is_quarantined {
            let removal = RecordChange::remove::<JoinRecord>(id.to_string(), ExpectedVersion::Any);
            let removed = self.table.store().commit(&[removal]);
            let failed = |error: RecordError| {
                StoreError::new(format!("remove the join record of proxy `{id}`"), error)
            };
            removed.map_err(failed)?;
            self.record_high_water()?;
        }
        Ok(is_quarantined)
    }

    /// Revokes proxies. If that fails for many, some may be revoked: a repetition revokes the rest. An earlier revocation stays as it is, except for that of a proxy that has left by
    /// itself or was reimaged, if an operator revokes it.
    pub(crate) fn revoke(
        &self,
        ids: &[ProxyId],
        revocation: &Revocation,
    ) -> Result<(), StoreError> {
        self.change(|records| {
            let records = ids.iter().filter_map(|id| records.get(id));
            let records = records.filter(|record| match &record.revoked {
                None => true,
                Some(known) => !known.is_by_operator() && revocation.is_by_operator(),
            });
            let revoked = records.map(|record| JoinRecord {
                revoked: Some(revocation.clone()),
                participation: Participation::default(),
                ports_without_backend: Participation::default(),
                ..(**record).clone()
            });
            revoked.collect()
        })?;
        self.record_high_water()
    }

    /// Records which shared certificates revoked proxies may have, once for each.
    pub(crate) fn set_refused(
        &self,
        proxies: &[(ProxyId, Vec<SharedCertificate>)],
    ) -> Result<(), StoreError> {
        if proxies.is_empty() {
            return Ok(());
        }
        self.change(|records| {
            let changed = proxies.iter().filter_map(|(id, refused)| {
                let record = records.get(id)?;
                let is_new = record.revoked.is_some() && record.refused.is_none();
                is_new.then(|| JoinRecord { refused: Some(refused.clone()), ..(**record).clone() })
            });
            changed.collect()
        })
    }

    /// Records the accounts whose shared certificates proxies get.
    pub(crate) fn add_shared_accounts(
        &self,
        proxies: &[(ProxyId, BTreeSet<ServiceAccount>)],
    ) -> Result<(), StoreError> {
        if proxies.is_empty() {
            return Ok(());
        }
        self.change(|records| {
            let changed = proxies.iter().filter_map(|(id, accounts)| {
                let record = records.get(id)?;
                // Also of a proxy that is revoked at this moment: it may still get them.
                let is_new =
                    record.refused.is_none() && !accounts.is_subset(&record.shared_accounts);
                is_new.then(|| JoinRecord {
                    shared_accounts: &record.shared_accounts | accounts,
                    ..(**record).clone()
                })
            });
            changed.collect()
        })
    }

    /// Marks proxies as unreachable since a time, or, without a time, as reachable again.
    pub(crate) fn set_unreachable(
        &self,
        proxies: &[(ProxyId, Option<Timestamp>)],
    ) -> Result<(), StoreError> {
        self.change(|records| {
            let changed = proxies.iter().filter_map(|(id, since)| {
                let record = records.get(id)?;
                let is_changed = record.unreachable_since.is_some() != since.is_some();
                is_changed.then(|| JoinRecord { unreachable_since: *since, ..(**record).clone() })
            });
            changed.collect()
        })
    }

    /// Records the progress of proxies. All changes are stored in one transaction, or none is.
    pub(crate) fn record_progress<'a>(
        &self,
        progress: impl IntoIterator<Item = (ProxyId, Progress<'a>)>,
    ) -> Result<(), StoreError> {
        let progress: Vec<_> = progress.into_iter().collect();
        self.change(|records| {
            let progress = progress.iter();
            progress
                .filter_map(|(id, progress)| progress.updated_record(records.get(id)?))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests;
