//! The certificates by secret, and which secrets Envoy asks for.
//!
//! It does no IO but for the file, and decides nothing about renewals.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{ServiceAccount, ServiceSecret};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::certificate_file::CertificateFile;
use super::workload_identity::WorkloadIdentity;
use crate::activity::{AgentState, ServiceCertificateActivity};

/// The most secrets: more than the accounts of any machine.
pub(crate) const MAX_SECRETS: usize = 64;

/// The certificates of one proxy.
#[derive(Debug)]
pub(crate) struct CertificateTable {
    entries: Mutex<BTreeMap<ServiceSecret, Entry>>,
    /// Changes whenever a certificate is new.
    changes: watch::Sender<()>,
    /// The account as which the proxy calls, as the control plane stated it last.
    own_account: watch::Sender<Option<ServiceAccount>>,
    file: CertificateFile,
    state: AgentState,
    /// The secrets that need a renewal task.
    wanted: mpsc::Sender<ServiceSecret>,
}

#[derive(Debug, Default)]
struct Entry {
    held: Option<Arc<WorkloadIdentity>>,
    /// The one before it, which Envoy may still present.
    earlier: Option<Arc<WorkloadIdentity>>,
    /// How many streams ask for it.
    streams: usize,
    has_renewal: bool,
}

impl CertificateTable {
    /// A table with the kept certificates.
    pub(crate) fn new(
        kept: Vec<WorkloadIdentity>,
        file: CertificateFile,
        state: AgentState,
        wanted: mpsc::Sender<ServiceSecret>,
    ) -> Self {
        let entry = |held| Entry { held: Some(Arc::new(held)), ..Entry::default() };
        let entries = kept.into_iter().map(|held| (held.secret.clone(), entry(held))).collect();
        let entries = Mutex::new(entries);
        let (changes, own_account) = (watch::Sender::new(()), watch::Sender::default());
        let table = Self { entries, changes, own_account, file, state, wanted };
        table.report(&table.entries.lock());
        table
    }

    /// The certificate of a secret.
    pub(crate) fn held(&self, secret: &ServiceSecret) -> Option<Arc<WorkloadIdentity>> {
        self.entries.lock().get(secret)?.held.clone()
    }

    /// The account of the certificate with the leaf `leaf` (in DER), if it is that of the secret or the one before it.
    pub(crate) fn account_of(&self, secret: &ServiceSecret, leaf: &[u8]) -> Option<ServiceAccount> {
        let entries = self.entries.lock();
        let entry = entries.get(secret)?;
        let mut known = entry.held.iter().chain(&entry.earlier);
        known.find(|known| known.has_leaf(leaf)).map(|known| known.account.clone())
    }

    /// Notes the account as which the proxy calls. A certificate for a different account is renewed at once: policy may
    /// give the first service a new account, and the name of the secret stays.
    pub(crate) fn expect_account(&self, account: Option<ServiceAccount>) {
        self.own_account.send_if_modified(|known| {
            let is_new = account.is_some() && *known != account;
            if is_new {
                *known = account;
            }
            is_new
        });
    }

    /// The account as which the proxy calls, as far as it is known.
    pub(crate) fn own_account(&self) -> watch::Receiver<Option<ServiceAccount>> {
        self.own_account.subscribe()
    }

    /// Notifies of new certificates.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// A stream asks for the secret. False if the table has [`MAX_SECRETS`] already.
    #[must_use]
    pub(crate) fn subscribe(&self, secret: &ServiceSecret) -> bool {
        let mut entries = self.entries.lock();
        if !entries.contains_key(secret) && entries.len() >= MAX_SECRETS {
            return false;
        }
        let entry = entries.entry(secret.clone()).or_default();
        entry.streams += 1;
        if !entry.has_renewal {
            // The channel has room for all secrets; it is closed when the agent ends.
            entry.has_renewal = self.wanted.try_send(secret.clone()).is_ok();
        }
        true
    }

    /// A stream no longer asks for the secret. Its certificate stays, for the next Envoy.
    pub(crate) fn unsubscribe(&self, secret: &ServiceSecret) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(secret) else { return };
        entry.streams = entry.streams.saturating_sub(1);
        if entry.streams == 0 && entry.held.is_none() && !entry.has_renewal {
            entries.remove(secret);
        }
    }

    /// Whether the renewal task of the secret goes on. If not, the next subscription starts a new task.
    pub(crate) fn continue_renewal(&self, secret: &ServiceSecret) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(secret) else { return false };
        if entry.streams > 0 {
            return true;
        }
        entry.has_renewal = false;
        if entry.held.is_none() {
            entries.remove(secret);
        }
        false
    }

    /// Replaces the certificate of a secret, for all streams.
    pub(crate) fn replace(&self, held: WorkloadIdentity) {
        let mut entries = self.entries.lock();
        let secret = held.secret.clone();
        let entry = entries.entry(secret).or_default();
        entry.earlier = entry.held.replace(Arc::new(held));
        let all = entries.values().filter_map(|entry| entry.held.as_deref());
        // Without the file the certificate is only lost by a restart, which requests a new one.
        if let Err(error) = self.file.write(all) {
            self.state.service_certificate_failed(&chain(&error), Timestamp::now());
            tracing::error!(
                error = chain(&error),
                action = "an agent that restarts requests new certificates",
                "cannot keep the service certificates"
            );
        }
        self.report(&entries);
        drop(entries);
        self.changes.send_replace(());
    }

    /// Counts and logs a NACK of Envoy.
    pub(crate) fn nacked(&self, error: &str) {
        self.state.secret_nacked();
        tracing::error!(
            error,
            action = "Envoy keeps the earlier one",
            "Envoy NACKs a service certificate"
        );
    }

    /// Notes an error about a secret.
    pub(crate) fn failed(&self, error: &str, now: Timestamp) {
        self.state.service_certificate_failed(error, now);
    }

    fn report(&self, entries: &BTreeMap<ServiceSecret, Entry>) {
        let held = entries.values().filter_map(|entry| entry.held.as_deref());
        let report = |held: &WorkloadIdentity| ServiceCertificateActivity {
            secret: held.secret.to_string(),
            account: held.account.clone(),
            renew_at: held.renew_at(),
            expires_at: held.leaf.not_after,
        };
        self.state.service_certificates(held.map(report).collect());
    }
}
