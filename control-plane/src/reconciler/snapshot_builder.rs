//! The snapshot builder: derives the next snapshot from the inputs, and which proxies the change affects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    Discovered, Inputs, LeavingProxies, Mesh, MeshSpecification, Records, ReportedApplications,
    RevocationLists, RevokedCallers, ServiceAccount, SharedCertificate, Snapshot, StoreError,
    TcpAccesses, have_same_members,
};
use ironmesh_cert::{Authority, ClockReading, ServiceCertificates};
use ironmesh_config_settings::{ReloadableSettings, Settings};
use ironmesh_store::{MeshChanges, MeshState};
use ironmesh_xds_compile::{Changes, Compiler};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::change_log::ChangedInputs;
use super::convergence::Generations;
use ironmesh_catalog::text::chain;

/// How often certificate revocation lists are signed, or TCP accesses stored, each time after those that another control plane
/// has stored.
const MAX_ATTEMPTS: usize = 4;

/// The inputs of a snapshot that other components own.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    pub(super) specification: Arc<MeshSpecification>,
    pub(super) records: Records,
    pub(super) revoked: Records,
    /// The serial numbers of shared certificates that peers must not refuse yet.
    pub(super) waiting: BTreeSet<String>,
    /// The proxies that leave, and the number of the newest change of that.
    pub(super) leaving: (LeavingProxies, u64),
    /// The health of applications, as agents and Envoys report it.
    pub(super) health: ReportedApplications,
    pub(super) discovered: Discovered,
}

/// Builds each snapshot of the mesh from the one before. The cost follows the changes between two.
pub(super) struct SnapshotBuilder {
    mesh: Mesh,
    settings: ReloadableSettings,
    state: Arc<MeshState>,
    authority: Arc<Mutex<Authority>>,
    certificates: ServiceCertificates,
    /// The stored TCP authorization of service ports.
    stored_accesses: TcpAccesses,
    /// Whether the one of the newest snapshot could not be stored.
    is_access_unstored: bool,
    /// Whether another control plane has stored something since the newest snapshot.
    has_shared_news: bool,
    /// The certificate revocation lists in use.
    revocation_lists: Option<RevocationLists>,
    /// The stored ones, as they were read or written last.
    stored_lists: Option<RevocationLists>,
    /// Why they cannot be signed or stored; none if they were.
    lists_failure: Option<String>,
    /// The serial numbers of shared certificates that peers must not refuse yet.
    waiting: BTreeSet<String>,
    /// The numbers of the newest changes of the inputs.
    generations: Generations,
    /// What has changed in the inputs since the pass before.
    changed_inputs: ChangedInputs,
    /// The inputs of the newest snapshot, and its compiler.
    current: Option<(Inputs, Compiler)>,
}

impl SnapshotBuilder {
    pub(super) fn new(
        mesh: Mesh,
        settings: &Settings,
        state: Arc<MeshState>,
        authority: Arc<Mutex<Authority>>,
        certificates: ServiceCertificates,
    ) -> Result<Self, StoreError> {
        let stored_lists = state.revocation_lists()?;
        Ok(Self {
            stored_accesses: state.tcp_accesses()?,
            is_access_unstored: false,
            has_shared_news: false,
            revocation_lists: stored_lists.clone(),
            stored_lists,
            lists_failure: None,
            waiting: BTreeSet::new(),
            mesh,
            settings: settings.reloadable(),
            state,
            authority,
            certificates,
            generations: Generations::default(),
            changed_inputs: ChangedInputs::default(),
            current: None,
        })
    }

    /// Sets the settings of the next snapshots.
    pub(super) fn set_settings(&mut self, settings: ReloadableSettings) {
        self.settings = settings;
    }

    /// The compiler of the newest snapshot; none before the first.
    pub(super) fn compiler(&mut self) -> Option<&mut Compiler> {
        self.current.as_mut().map(|(_, compiler)| compiler)
    }

    /// The newest snapshot; none before the first.
    pub(super) fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.current.as_ref().map(|(_, compiler)| compiler.snapshot())
    }

    /// The numbers of the newest changes in the newest snapshot.
    pub(super) fn generations(&self) -> Generations {
        self.generations
    }

    /// What the newest pass found changed in the inputs.
    pub(super) fn changed_inputs(&self) -> ChangedInputs {
        self.changed_inputs
    }

    /// Builds the next snapshot, and returns which proxies it affects; none if no input has changed. Certificates are
    /// examined after an enrollment, after a change of policy, and at each tick.
    pub(super) fn build(
        &mut self,
        sources: Sources,
        clock: ClockReading,
        is_tick: bool,
    ) -> Changes {
        let Sources { specification, records, revoked, waiting, leaving, health, discovered } =
            sources;
        let (leaving, leaves) = leaving;
        let specification = &specification;
        let old = self.current.as_ref().map(|(inputs, _)| inputs);
        let same_policy = old.is_some_and(|old| Arc::ptr_eq(&old.specification, specification));
        let same_proxies =
            old.is_some_and(|old| old.records.ptr_eq(&records) && old.revoked.ptr_eq(&revoked));
        let same_endpoints = old.is_some_and(|old| old.discovered.0.ptr_eq(&discovered.0));
        let same_health = old.is_some_and(|old| old.health.ptr_eq(&health));
        let same_leaves = self.generations.leaves == leaves;
        let ReloadableSettings { mode, egress, .. } = self.settings;
        let same_modes = old.is_some_and(|old| old.mode == mode && old.egress == egress);
        let same_waits = self.waiting == waiting;
        let same_revoked = old.is_some_and(|old| old.revoked.ptr_eq(&revoked));
        let is_same = same_policy && same_proxies && same_endpoints && same_leaves && same_modes;
        self.changed_inputs = ChangedInputs {
            settings: old.is_some() && !same_modes,
            providers: !same_endpoints,
            health: !same_health,
            proxies: !same_proxies,
            leaves: !same_leaves,
        };
        let has_shared_news = std::mem::take(&mut self.has_shared_news);
        let is_same = is_same && same_health && same_waits && !has_shared_news;
        if is_same && !is_tick {
            return Changes::default();
        }
        // The served accounts follow from these.
        let same_accounts = || {
            old.is_some_and(|old| {
                have_same_members(&old.records, &records)
                    && (same_policy || old.specification.has_same_access(specification))
            })
        };
        let must_replace = !same_revoked && self.certificates.refuse(refused(&revoked));
        if is_tick || must_replace || has_shared_news || !same_accounts() {
            self.renew_certificates(specification, &records, clock);
        }
        self.waiting = waiting;
        let may_differ = is_tick || !same_revoked || !same_waits || has_shared_news;
        let revoked_callers = self.revoked_callers(&revoked, may_differ);
        let inputs = Inputs {
            mesh: self.mesh.clone(),
            mode,
            egress,
            specification: Arc::clone(specification),
            discovered,
            records,
            revoked,
            leaving,
            health,
            certificates: self.certificates.current(),
            trust_bundle: Arc::new(self.authority.lock().trust_bundle()),
            revoked_callers,
        };
        let old = self.current.as_ref().map(|(old, _)| old);
        let is_new = |is_same: &dyn Fn(&Inputs) -> bool| u64::from(!old.is_some_and(is_same));
        let Inputs { specification, certificates, trust_bundle, .. } = &inputs;
        self.generations.policy +=
            is_new(&|old| same_modes && old.specification.revision == specification.revision);
        self.generations.endpoints +=
            u64::from(!(same_proxies && same_endpoints && same_health && same_leaves));
        self.generations.leaves = leaves;
        self.generations.certificates += is_new(&|old| {
            old.certificates.ptr_eq(certificates) && old.trust_bundle == *trust_bundle
        });
        match self.current.take() {
            None => {
                let before = self.stored_accesses.clone();
                let mut snapshot = Snapshot::assemble(inputs.clone(), before.clone());
                self.share_tcp_accesses(&before, &mut snapshot.tcp_accesses);
                self.current = Some((inputs, Compiler::new(Arc::new(snapshot))));
                Changes { all_proxies: true, ..Changes::default() }
            }
            Some((_, mut compiler)) => {
                let mut snapshot = compiler.snapshot().revise(inputs.clone());
                self.share_tcp_accesses(
                    &compiler.snapshot().tcp_accesses,
                    &mut snapshot.tcp_accesses,
                );
                let changes = compiler.update(Arc::new(snapshot));
                self.current = Some((inputs, compiler));
                changes
            }
        }
    }

    /// The callers that peers refuse: they change by a revocation, when a record is forgotten, and with a new issuer.
    fn revoked_callers(&mut self, revoked: &Records, may_differ: bool) -> Arc<RevokedCallers> {
        let known = self.current.as_ref().map(|(inputs, _)| Arc::clone(&inputs.revoked_callers));
        if let Some(known) = known.as_ref().filter(|_| !may_differ) {
            return Arc::clone(known);
        }
        // A certificate in use is never refused: it could not be replaced yet.
        let in_use = self.certificates.current();
        let in_use = in_use.values().map(|certificate| certificate.serial.clone());
        // What another control plane has listed is refused already.
        let is_listed = |serial: &String| {
            let stored = self.stored_lists.as_ref();
            self.listed().contains(serial) || stored.is_some_and(|one| one.serials.contains(serial))
        };
        let waiting = self.waiting.iter().filter(|serial| !is_listed(serial));
        let waiting = waiting.cloned().chain(in_use).collect();
        let mut callers = RevokedCallers::of(revoked, &self.mesh.trust_domain, &waiting);
        if callers.serials.is_empty() {
            self.lists_failure = None;
        } else {
            callers.lists = self.sign_revocation_lists(&callers.serials);
        }
        let lists = self.revocation_lists.as_ref();
        callers.last_listed = lists.map(|lists| lists.last_listed.clone()).unwrap_or_default();
        known.filter(|known| **known == callers).unwrap_or_else(|| Arc::new(callers))
    }

    /// The certificate revocation lists with these serial numbers, signed again only if these or the issuers differ. After
    /// a failure, the earlier lists stay, and the next tick tries again. Each attempt begins with what another control plane
    /// has stored.
    fn sign_revocation_lists(
        &mut self,
        revoked: &BTreeMap<String, ServiceAccount>,
    ) -> Option<Arc<str>> {
        let serials = revoked.keys().cloned().collect();
        for _ in 0..MAX_ATTEMPTS {
            let before = self.revocation_lists.as_ref();
            let mut lists = match self.authority.lock().revocation_lists(&serials, before) {
                Ok(lists) => lists,
                Err(error) => {
                    let error = chain(&error);
                    self.lists_failure = Some(format!(
                        "TCP ports accept revoked certificates, because the revocation lists cannot be signed: {error}"
                    ));
                    break;
                }
            };
            if before != Some(&lists) {
                // Stored with the lists: a restart must neither forget nor repeat that connections end.
                let is_new = |serial: &String| !self.listed().contains(serial);
                let new = revoked.iter().filter(|(serial, _)| is_new(serial));
                let number = lists.number;
                lists.last_listed.extend(new.map(|(_, account)| (account.clone(), number)));
            }
            if self.store_revocation_lists(lists) {
                break;
            }
        }
        self.revocation_lists.as_ref().map(|lists| Arc::clone(&lists.pem))
    }

    /// Uses new lists, and stores them before peers get them. If the write fails, peers get them all the same, and each tick
    /// tries again. Returns false if another control plane has stored different ones: then these are used instead, if they
    /// have all that the new ones have, and the caller signs again what they lack.
    fn store_revocation_lists(&mut self, lists: RevocationLists) -> bool {
        let stored = if self.stored_lists.as_ref() == Some(&lists) {
            Ok(true)
        } else {
            self.state.replace_revocation_lists(self.stored_lists.as_ref(), &lists)
        };
        if matches!(stored, Ok(true)) {
            self.stored_lists = Some(lists.clone());
        }
        self.revocation_lists = Some(lists);
        match stored {
            Ok(true) => {
                self.lists_failure = None;
                true
            }
            Ok(false) => {
                self.reread_revocation_lists();
                false
            }
            Err(error) => {
                let error = chain(&error);
                self.lists_failure = Some(format!(
                    "the revocation lists of TCP ports cannot be stored, and hold until a restart: {error}"
                ));
                true
            }
        }
    }

    /// Reads again what has changed in the store. Other control planes may have changed it.
    pub(super) fn reread(&mut self, changes: &MeshChanges) {
        for account in &changes.accounts {
            match self.certificates.reread(account) {
                Ok(is_new) => self.has_shared_news |= is_new,
                Err(error) => {
                    tracing::error!(%account, error = chain(&error), "cannot read a service certificate");
                }
            }
        }
        if changes.revocation_lists {
            self.reread_revocation_lists();
        }
        if changes.tcp_accesses {
            match self.state.tcp_accesses() {
                Ok(stored) if stored != self.stored_accesses => {
                    self.stored_accesses = stored;
                    self.has_shared_news = true;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(error = chain(&error), "cannot read the TCP authorization");
                }
            }
        }
    }

    /// Reads the stored lists again. They are used if nothing in use is missing in them: peers never forget a revocation.
    fn reread_revocation_lists(&mut self) {
        let stored = match self.state.revocation_lists() {
            Ok(stored) if stored == self.stored_lists => return,
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot read the revocation lists");
                return;
            }
        };
        let has_all = |stored: &&RevocationLists| self.listed().is_subset(&stored.serials);
        if let Some(stored) = stored.as_ref().filter(has_all) {
            self.revocation_lists = Some(stored.clone());
        }
        self.stored_lists = stored;
        self.has_shared_news = true;
    }

    /// Why the certificate revocation lists cannot be signed or stored; none if they were.
    pub(super) fn lists_failure(&self) -> Option<&str> {
        self.lists_failure.as_deref()
    }

    /// Makes the new TCP authorization of service ports agree with that of other control planes, and stores it before it
    /// becomes active, if it follows from a change of policy. After a restart, an earlier withdrawal must not look like a
    /// new one, nor a new one like none. If the write fails, the withdrawal is carried out all the same, and each snapshot
    /// tries the write again.
    fn share_tcp_accesses(&mut self, before: &TcpAccesses, new: &mut TcpAccesses) {
        // What only another control plane has changed is not written back: its policy may be newer.
        let is_own_change = *new != *before || self.is_access_unstored;
        if *new == self.stored_accesses {
            self.is_access_unstored = false;
            return;
        }
        let derived = new.clone();
        for _ in 0..MAX_ATTEMPTS {
            *new = derived.agreeing_with(before, &self.stored_accesses);
            if !is_own_change || *new == self.stored_accesses {
                self.is_access_unstored = false;
                return;
            }
            let stored = match self.state.replace_tcp_accesses(&self.stored_accesses, new) {
                Ok(true) => {
                    self.is_access_unstored = false;
                    self.stored_accesses = new.clone();
                    return;
                }
                // Another control plane was faster.
                Ok(false) => self.state.tcp_accesses(),
                Err(error) => Err(error),
            };
            match stored {
                Ok(stored) => self.stored_accesses = stored,
                Err(error) => {
                    tracing::error!(error = chain(&error), "cannot store the TCP authorization");
                    break;
                }
            }
        }
        self.is_access_unstored = true;
    }

    /// The shared certificates of an account that peers may still accept.
    pub(super) fn shared(
        &self,
        account: &ServiceAccount,
        now: Timestamp,
    ) -> Vec<SharedCertificate> {
        self.certificates.shared(account, now)
    }

    /// How long after its issue a shared certificate may be valid: its lifetime, with jitter of a tenth.
    pub(super) fn longest_lifetime(&self) -> Duration {
        self.settings.service_lifetime.mul_f64(1.1)
    }

    /// The serial numbers in the certificate revocation lists in use.
    pub(super) fn listed(&self) -> &BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.revocation_lists.as_ref().map_or(&NONE, |lists| &lists.serials)
    }

    /// When the newest service certificate was issued, by the clock of that time.
    pub(super) fn newest_issue(&self) -> Option<Timestamp> {
        self.certificates.newest_issue()
    }

    fn renew_certificates(
        &mut self,
        specification: &MeshSpecification,
        records: &Records,
        clock: ClockReading,
    ) {
        let accounts = Snapshot::accounts_served(specification, records);
        let authority = self.authority.lock();
        let lifetime = self.settings.service_lifetime;
        match self.certificates.ensure(&accounts, &authority, lifetime, clock) {
            Ok(ensured) => {
                for (account, error) in &ensured.failures {
                    tracing::error!(%account, error = chain(error), "cannot renew a service certificate");
                }
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot renew the service certificates");
            }
        }
    }
}

/// The serial numbers of the shared certificates that revoked proxies have.
fn refused(revoked: &Records) -> BTreeSet<String> {
    let refused = revoked.values().flat_map(|record| record.refused.iter().flatten());
    refused.map(|one| one.serial.clone()).collect()
}
