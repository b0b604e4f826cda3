//! The service certificates: one per account in use, stored before it is published, and renewed in time.
//!
//! An account whose certificate cannot be renewed keeps its last one, and other accounts are not affected.
//! Certificates are never deleted: an account that comes back gets its certificate back, if it is still
//! valid.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use ironmesh_catalog::{
    CertificateStore, RenewedCertificate, ServiceAccount, ServiceCertificate, SharedCertificate,
    StoreError, TrustBundle,
};
use jiff::{SignedDuration, Timestamp};

use crate::authority::Authority;
use crate::inspect::{Inspector, UnfitCertificate};
use crate::issue::IssueError;
use crate::renewal::{ClockReading, Renewal};
use crate::tls::TlsError;

/// The service certificates of a mesh.
pub struct ServiceCertificates {
    store: Arc<dyn CertificateStore>,
    /// The last certificate of every account that ever existed.
    kept: BTreeMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// The certificates of the accounts in use, each checked against `checked_for`.
    published: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    checked_for: Option<TrustBundle>,
    /// The serial numbers of certificates that revoked proxies have.
    refused: BTreeSet<String>,
    /// The last renewal of each account by this control plane.
    renewed: BTreeMap<ServiceAccount, OwnRenewal>,
}

/// A renewal by this control plane. It makes the next one when a third of the new certificate's life is over. Otherwise two
/// control planes whose clocks differ by most of a lifetime would replace each other's certificates all the time.
#[derive(Debug, Clone, Copy)]
struct OwnRenewal {
    at: Timestamp,
    pause: SignedDuration,
}

impl OwnRenewal {
    fn of(certificate: &ServiceCertificate, at: Timestamp) -> Self {
        Self { at, pause: certificate.not_after.duration_since(certificate.not_before) / 3 }
    }

    /// Whether it is too early for the next one. Not after a jump of the clock: one of the two times is wrong then.
    fn is_recent(self, clock: ClockReading) -> bool {
        let passed = clock.now.duration_since(self.at);
        let steady_for = SignedDuration::try_from(clock.steady_for).unwrap_or(SignedDuration::MAX);
        !passed.is_negative() && passed < self.pause && passed <= steady_for
    }
}

impl fmt::Debug for ServiceCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCertificates")
            .field("kept", &self.kept.len())
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

/// The most earlier certificates of an account that are remembered. A day has one renewal or two, and one certificate for
/// each revocation of a proxy of the account.
const MAX_EARLIER: usize = 256;

/// The outcome of [`ServiceCertificates::ensure`].
#[derive(Debug)]
#[must_use]
pub struct EnsureOutcome {
    /// Whether [`ServiceCertificates::current`] has changed.
    pub changed: bool,
    /// Accounts without a new certificate that is due, each with the reason. An account with a valid
    /// certificate keeps it. The caller tries again later.
    pub failures: Vec<(ServiceAccount, KeepError)>,
}

impl ServiceCertificates {
    /// Reads the stored certificates. None is in use before [`Self::ensure`].
    pub fn open(store: Arc<dyn CertificateStore>) -> Result<Self, StoreError> {
        let kept = store.service_certificates()?;
        let kept = kept.into_iter().map(|c| (c.account.clone(), Arc::new(c))).collect();
        Ok(Self {
            store,
            kept,
            published: OrdMap::new(),
            checked_for: None,
            refused: BTreeSet::new(),
            renewed: BTreeMap::new(),
        })
    }

    /// Ensures that each of `accounts`, and no other, has a certificate of `authority` in use that is valid
    /// and not due for renewal.
    ///
    /// Cheap if nothing is due: callers may call it after any change.
    pub fn ensure(
        &mut self,
        accounts: &BTreeSet<ServiceAccount>,
        authority: &Authority,
        lifetime: Duration,
        clock: ClockReading,
    ) -> Result<EnsureOutcome, TlsError> {
        let bundle = authority.trust_bundle();
        let pass = Pass {
            inspector: Inspector::new(&bundle)?,
            authority,
            lifetime,
            clock,
            trusted_as_before: self.checked_for.as_ref() == Some(&bundle),
        };
        let mut published = OrdMap::new();
        let (mut failures, mut renewed) = (Vec::new(), Vec::new());
        for account in accounts {
            match self.usable(account, &pass).or_else(|| self.postponed(account, &pass)) {
                Some(certificate) => {
                    published.insert(account.clone(), certificate);
                }
                None => match self.issue(account, &pass) {
                    Ok(one) => renewed.push(one),
                    Err(failure) => failures.push((account.clone(), failure)),
                },
            }
        }
        // Together: the store may be far away.
        let kept = self.store.replace_service_certificates(&renewed);
        for (one, kept) in renewed.into_iter().zip(kept) {
            let account = one.new.account.clone();
            match self.keep(one.new, kept, &pass) {
                Ok(new) => {
                    published.insert(account, new);
                }
                Err(failure) => failures.push((account, failure)),
            }
        }
        for (account, _) in &failures {
            if let Some(fallback) = self.fallback(account, &pass) {
                published.insert(account.clone(), fallback);
            }
        }
        let changed = published != self.published;
        self.published = published;
        self.checked_for = Some(bundle);
        Ok(EnsureOutcome { changed, failures })
    }

    /// Reads the stored certificate of an account again: another control plane may have renewed it. [`Self::ensure`] then
    /// uses it. Returns whether it differs.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read. The known certificate stays.
    pub fn reread(&mut self, account: &ServiceAccount) -> Result<bool, StoreError> {
        let Some(stored) = self.store.service_certificate(account)? else { return Ok(false) };
        if self.kept.get(account).is_some_and(|kept| **kept == stored) {
            return Ok(false);
        }
        self.kept.insert(account.clone(), Arc::new(stored));
        Ok(true)
    }

    /// Sets the serial numbers of certificates that revoked proxies have: [`Self::ensure`] replaces these. Returns whether
    /// one of them is in use.
    pub fn refuse(&mut self, serials: BTreeSet<String>) -> bool {
        self.refused = serials;
        self.published.values().any(|certificate| self.refused.contains(&certificate.serial))
    }

    /// The last certificate of an account, the one in use, and those before them that peers may still accept, whether or not
    /// the account is in use.
    pub fn shared(&self, account: &ServiceAccount, now: Timestamp) -> Vec<SharedCertificate> {
        // A different clock may have taken the one in use out of the history.
        let known = [self.kept.get(account), self.published.get(account)].into_iter().flatten();
        let accepted = known.flat_map(|one| one.with_earlier()).filter(|one| one.is_accepted(now));
        let by_serial = accepted.map(|one| (one.serial.clone(), one));
        by_serial.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The certificates of the accounts in use, as of the last [`Self::ensure`].
    pub fn current(&self) -> OrdMap<ServiceAccount, Arc<ServiceCertificate>> {
        self.published.clone()
    }

    /// The issue date of the newest certificate in use, by the clock of that time.
    pub fn newest_issue(&self) -> Option<Timestamp> {
        self.published.values().map(|certificate| certificate.issued_at()).max()
    }

    /// The certificate of an account that needs no replacement; none if one is due.
    fn usable(&self, account: &ServiceAccount, pass: &Pass<'_>) -> Option<Arc<ServiceCertificate>> {
        let kept = self.kept.get(account)?;
        let in_use = self.published.get(account).filter(|_| pass.trusted_as_before);
        let is_fit = in_use.is_some_and(|in_use| Arc::ptr_eq(in_use, kept))
            || pass.is_fit(kept, account, pass.clock.now);
        (is_fit && !self.must_replace(kept, pass)).then(|| Arc::clone(kept))
    }

    /// The certificate to publish for an account although a new one is due: this control plane has renewed it a short while
    /// ago. None if peers accept none, or a revoked proxy has it.
    fn postponed(
        &self,
        account: &ServiceAccount,
        pass: &Pass<'_>,
    ) -> Option<Arc<ServiceCertificate>> {
        self.renewed.get(account).filter(|renewal| renewal.is_recent(pass.clock))?;
        let kept = self.kept.get(account).filter(|kept| !self.refused.contains(&kept.serial))?;
        let in_use = self.published.get(account).filter(|_| pass.trusted_as_before);
        let mut fit = [Some(kept), in_use].into_iter().flatten().filter(|one| {
            !self.refused.contains(&one.serial) && pass.is_fit(one, account, pass.clock.now)
        });
        fit.next().cloned()
    }

    /// The certificate to publish for an account that got no new one. One that the same peers accepted before stays, even
    /// expired: to remove it would help no caller, and this machine's clock may be wrong.
    fn fallback(
        &self,
        account: &ServiceAccount,
        pass: &Pass<'_>,
    ) -> Option<Arc<ServiceCertificate>> {
        let kept = self.kept.get(account);
        let in_use = self.published.get(account).filter(|_| pass.trusted_as_before);
        let fit = kept.filter(|one| pass.is_fit(one, account, pass.clock.now));
        let was_fit = |one: &&Arc<ServiceCertificate>| pass.is_fit(one, account, one.not_before);
        fit.or(in_use).or_else(|| kept.filter(was_fit)).cloned()
    }

    fn must_replace(&self, certificate: &ServiceCertificate, pass: &Pass<'_>) -> bool {
        self.refused.contains(&certificate.serial) || pass.is_due(certificate)
    }

    fn issue(
        &self,
        account: &ServiceAccount,
        pass: &Pass<'_>,
    ) -> Result<RenewedCertificate, KeepError> {
        let Pass { authority, lifetime, clock: ClockReading { now, .. }, .. } = *pass;
        let mut new = authority.issue_service_certificate(account, lifetime, now)?;
        let old = self.kept.get(account).cloned();
        if let Some(old) = &old {
            let is_refused = self.refused.contains(&old.serial);
            new.history.reissues = old.history.reissues.wrapping_add(u32::from(is_refused));
            let earlier = old.with_earlier().filter(|one| one.is_accepted(now));
            new.history.earlier = earlier.take(MAX_EARLIER).collect();
        }
        pass.inspector.check(&new, &authority.trust_domain().workload(account), now)?;
        Ok(RenewedCertificate { old, new: Arc::new(new) })
    }

    /// Uses a new certificate, if the store has it. If another control plane was faster, all publish its certificate.
    fn keep(
        &mut self,
        new: Arc<ServiceCertificate>,
        kept: Result<bool, StoreError>,
        pass: &Pass<'_>,
    ) -> Result<Arc<ServiceCertificate>, KeepError> {
        let account = new.account.clone();
        if kept? {
            self.renewed.insert(account.clone(), OwnRenewal::of(&new, pass.clock.now));
            self.kept.insert(account, Arc::clone(&new));
            return Ok(new);
        }
        self.reread(&account)?;
        let stored = self.kept.get(&account).cloned();
        let is_usable = |one: &Arc<_>| {
            pass.is_fit(one, &account, pass.clock.now) && !self.refused.contains(&one.serial)
        };
        stored.filter(is_usable).ok_or(KeepError::Outrun)
    }
}

/// An account got no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It could not be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The issued certificate is not usable.
    #[error(transparent)]
    Unfit(#[from] UnfitCertificate),
    /// The store did not store it, so it was not published.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another control plane has stored a certificate meanwhile that cannot be used here.
    #[error(
        "another control plane has stored a certificate that is not valid here: compare the clocks of both machines"
    )]
    Outrun,
}

/// The data common to all accounts of one call.
struct Pass<'a> {
    inspector: Inspector,
    authority: &'a Authority,
    lifetime: Duration,
    clock: ClockReading,
    /// Whether the certificates in use were checked against the same roots.
    trusted_as_before: bool,
}

impl Pass<'_> {
    /// Whether peers accept `certificate` at `time`.
    fn is_fit(
        &self,
        certificate: &ServiceCertificate,
        account: &ServiceAccount,
        time: Timestamp,
    ) -> bool {
        let identity = self.authority.trust_domain().workload(account);
        self.inspector.check(certificate, &identity, time).is_ok()
    }

    fn is_due(&self, certificate: &ServiceCertificate) -> bool {
        let renewal = Renewal {
            issued_at: certificate.issued_at(),
            not_before: certificate.not_before,
            renew_at: certificate.renew_at,
            patience: self.lifetime / 3,
        };
        renewal.is_due(self.authority, self.clock)
    }
}
