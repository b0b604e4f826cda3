//! Issued certificates in the journal: one entry per holder and batch, however many certificates there are.
//!
//! [`RecordedCertificates`] sees each certificate where it is stored, which is before it is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{
    Actor, CertificateStore, JournalEntry, JournalKind, JournalSubject, RenewedCertificate,
    ServiceAccount, ServiceCertificate, ServiceName, StoreError,
};
use ironmesh_store::MeshState;
use jiff::Timestamp;

use super::{Journal, few};

/// The most holders that one batch names.
pub(super) const MAX_HOLDERS: usize = 100;

/// To whom certificates were issued.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CertificateHolder {
    /// A service account.
    Account(ServiceAccount),
    /// Proxies that serve these services.
    Proxies(Vec<ServiceName>),
    /// Service accounts beyond those that the batch names.
    OtherAccounts,
    /// Proxies beyond those that the batch names.
    OtherProxies,
}

impl CertificateHolder {
    /// The proxies that serve these services.
    pub(crate) fn proxies(services: &[ServiceName]) -> Self {
        Self::Proxies(few(services))
    }

    fn subject(self) -> JournalSubject {
        let none = JournalSubject::default();
        match self {
            Self::Account(account) => JournalSubject { account: Some(account), ..none },
            Self::Proxies(services) => JournalSubject { services, ..none },
            Self::OtherAccounts => {
                JournalSubject { name: Some("other accounts".to_owned()), ..none }
            }
            Self::OtherProxies => JournalSubject { name: Some("other proxies".to_owned()), ..none },
        }
    }
}

/// The certificates issued since the last write: how many for each holder, and when the last one was.
#[derive(Debug, Default)]
pub(super) struct Issued(BTreeMap<CertificateHolder, (u64, Timestamp)>);

impl Issued {
    pub(super) fn add(&mut self, holder: CertificateHolder, count: u64, at: Timestamp) {
        let is_named = self.0.len() < MAX_HOLDERS || self.0.contains_key(&holder);
        let holder = match holder {
            CertificateHolder::Account(_) if !is_named => CertificateHolder::OtherAccounts,
            CertificateHolder::Proxies(_) if !is_named => CertificateHolder::OtherProxies,
            holder => holder,
        };
        let (sum, last) = self.0.entry(holder).or_insert((0, at));
        (*sum, *last) = (*sum + count, at);
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = JournalEntry> {
        self.0.into_iter().map(|(holder, (count, at))| JournalEntry {
            subject: holder.subject(),
            count,
            ..JournalEntry::new(at, JournalKind::Certificate, Actor::ControlPlane)
        })
    }
}

/// The certificates of the store, each of which is recorded when it is stored.
#[derive(Debug)]
pub(crate) struct RecordedCertificates {
    pub(crate) state: Arc<MeshState>,
    pub(crate) journal: Journal,
}

impl CertificateStore for RecordedCertificates {
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.state.authority()
    }

    fn replace_authority(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError> {
        let is_kept = self.state.replace_authority(old, new)?;
        if is_kept {
            let name = if old.is_none() { "root" } else { "intermediate" };
            let subject =
                JournalSubject { name: Some(name.to_owned()), ..JournalSubject::default() };
            let (kind, who) = (JournalKind::Authority, Actor::ControlPlane);
            self.journal
                .record(JournalEntry { subject, ..JournalEntry::new(Timestamp::now(), kind, who) });
        }
        Ok(is_kept)
    }

    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        self.state.service_certificates()
    }

    fn service_certificate(
        &self,
        account: &ServiceAccount,
    ) -> Result<Option<ServiceCertificate>, StoreError> {
        self.state.service_certificate(account)
    }

    fn replace_service_certificate(
        &self,
        old: Option<&ServiceCertificate>,
        new: &ServiceCertificate,
    ) -> Result<bool, StoreError> {
        let is_kept = self.state.replace_service_certificate(old, new)?;
        if is_kept {
            self.journal.record_issued(CertificateHolder::Account(new.account.clone()), 1);
        }
        Ok(is_kept)
    }

    fn replace_service_certificates(
        &self,
        renewed: &[RenewedCertificate],
    ) -> Vec<Result<bool, StoreError>> {
        let results = self.state.replace_service_certificates(renewed);
        for (one, result) in renewed.iter().zip(&results) {
            if matches!(result, Ok(true)) {
                let account = one.new.account.clone();
                self.journal.record_issued(CertificateHolder::Account(account), 1);
            }
        }
        results
    }
}
