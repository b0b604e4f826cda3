//! The replacement of shared certificates that revoked proxies have, before peers refuse them (docs/decisions/0078).
//!
//! A hand-run proxy shares the certificate of its account with the account's other proxies. So the reconciler first
//! determines which certificates a revoked proxy may have, then replaces those in use, and lets peers refuse them when the
//! other proxies have ACKed the new ones, or after [`MAX_WAIT`]. It never revokes a proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{CertificateSource, JoinRecord, Records, ServiceAccount, ServiceSecret};
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::ResourceType;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Reconciler;
use super::clients::Clients;
use super::rollout_order::{IN_FLIGHT, MAX_WAIT};
use crate::peers::Peers;

/// How long peers learn that the proxies here use a new certificate: longer than they wait for it.
const NOTED: Duration = Duration::from_secs(2 * MAX_WAIT.as_secs());

/// The shared certificates that are not refused yet.
#[derive(Debug, Default)]
pub(super) struct Reissues {
    /// By serial number.
    waits: BTreeMap<String, Wait>,
    /// The serial numbers of certificates whose wait is over.
    over: BTreeSet<String>,
    /// The serial numbers of certificates whose successors the proxies here have ACKed, for [`NOTED`] after the wait.
    replaced: BTreeMap<String, Instant>,
    /// The revoked proxies that the last pass examined; none before the first.
    examined: Option<Records>,
}

/// The wait until the other proxies of an account use its new certificate.
#[derive(Debug)]
struct Wait {
    account: ServiceAccount,
    deadline: Instant,
    /// Whether the new certificate was published to them in an earlier pass.
    is_published: bool,
    /// Since when all of them have ACKed it, those of peers, too. Envoy replaces a cluster a moment after the ACK.
    acked_since: Option<Instant>,
}

impl Wait {
    /// When it is over, unless the proxies answer before.
    fn ends(&self) -> Instant {
        self.acked_since.map_or(self.deadline, |since| self.deadline.min(since + IN_FLIGHT))
    }
}

impl Reissues {
    /// When the next wait is over; none without one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waits.values().map(Wait::ends).min()
    }

    /// The serial numbers of the certificates that peers must not refuse yet.
    fn examine(
        &mut self,
        revoked: &Records,
        clients: &Clients,
        (hub, peers): (&Hub, &Peers),
        listed: &BTreeSet<String>,
        instant: Instant,
    ) -> BTreeSet<String> {
        let is_known = self.examined.as_ref().is_some_and(|examined| examined.ptr_eq(revoked));
        if !is_known {
            let before_start = self.examined.is_none().then_some(listed);
            self.begin_waits(revoked, before_start, instant);
            self.examined = Some(revoked.clone());
        }
        for (serial, wait) in &mut self.waits {
            let mut others = clients.of_account(&wait.account);
            let has_all = others.all(|one| {
                one.proxy.metadata.certificates == CertificateSource::Agent
                    || hub.is_synced(&one.proxy.record.id.to_string())
            });
            let is_acked_here = std::mem::replace(&mut wait.is_published, true) && has_all;
            if is_acked_here {
                self.replaced.insert(serial.clone(), instant);
            } else {
                self.replaced.remove(serial);
            }
            if is_acked_here && peers.have_replaced(serial) {
                wait.acked_since.get_or_insert(instant);
            } else {
                wait.acked_since = None;
            }
        }
        self.replaced.retain(|_, acked_at| instant < *acked_at + NOTED);
        let over = self.waits.iter().filter(|(_, wait)| wait.ends() <= instant);
        let over: Vec<_> = over.map(|(serial, _)| serial.clone()).collect();
        self.waits.retain(|_, wait| wait.ends() > instant);
        self.over.extend(over);
        self.waits.keys().cloned().collect()
    }

    /// Begins the waits for certificates that were not refused before. At a start, `before_start` are those that peers
    /// refused already.
    fn begin_waits(
        &mut self,
        revoked: &Records,
        before_start: Option<&BTreeSet<String>>,
        instant: Instant,
    ) {
        let mut present = BTreeSet::new();
        for record in revoked.values() {
            for one in record.refused.iter().flatten() {
                present.insert(one.serial.clone());
                if self.over.contains(&one.serial) || self.waits.contains_key(&one.serial) {
                    continue;
                }
                if before_start.is_some_and(|listed| listed.contains(&one.serial)) {
                    self.over.insert(one.serial.clone());
                    continue;
                }
                let wait = Wait {
                    account: one.account.clone(),
                    deadline: instant + MAX_WAIT,
                    is_published: false,
                    acked_since: None,
                };
                self.waits.insert(one.serial.clone(), wait);
            }
        }
        self.over.retain(|serial| present.contains(serial));
        self.waits.retain(|serial, _| present.contains(serial));
    }
}

impl Reconciler {
    /// Records which shared certificates newly revoked proxies may have. Returns the serial numbers of those that peers must
    /// not refuse yet. No certificate is sent meanwhile: this task alone publishes them.
    pub(super) fn refused_certificates(
        &mut self,
        is_tick: bool,
        now: Timestamp,
    ) -> BTreeSet<String> {
        let revoked = self.register.revoked();
        let is_known =
            self.reissues.examined.as_ref().is_some_and(|examined| examined.ptr_eq(&revoked));
        if !is_known || is_tick {
            let new = revoked
                .values()
                .filter(|record| record.is_refused_by_peers() && record.refused.is_none());
            let new = new.map(|record| {
                let accounts = self.shared_accounts(record, now).into_iter();
                let shared =
                    accounts.flat_map(|account| self.snapshot_builder.shared(&account, now));
                (record.id, shared.collect::<Vec<_>>())
            });
            let new: Vec<_> = new.filter(|(_, shared)| !shared.is_empty()).collect();
            let outcome = self.register.set_refused(&new);
            let proxies = new.iter().filter_map(|(id, _)| revoked.get(id)).map(|record| &**record);
            self.revocation_failures.note_refused(proxies, &outcome);
        }
        let (clients, servers) = (&self.clients, (&*self.hub, &*self.peers));
        let (revoked, listed) = (self.register.revoked(), self.snapshot_builder.listed());
        let waiting = self.reissues.examine(&revoked, clients, servers, listed, Instant::now());
        self.peers.note_replaced(self.reissues.replaced.keys().cloned().collect());
        waiting
    }

    /// The accounts whose shared certificates a revoked proxy may have. A record of an earlier version does not state them
    /// before the proxy connects: then those of its services.
    fn shared_accounts(&self, record: &JoinRecord, now: Timestamp) -> BTreeSet<ServiceAccount> {
        let longest = SignedDuration::try_from(self.snapshot_builder.longest_lifetime());
        let is_recent = record.revoked.as_ref().is_some_and(|revocation| {
            longest.is_ok_and(|longest| now.duration_since(revocation.at) < longest)
        });
        let is_unstated = record.shared_accounts.is_empty()
            && record.workload_certificates.is_empty()
            && record.claimed_at.is_some();
        let snapshot = self.snapshot_builder.snapshot().filter(|_| is_unstated && is_recent);
        let services = snapshot.into_iter().flat_map(|snapshot| {
            record.services.iter().filter_map(|service| snapshot.service(service))
        });
        let of_services = services.map(|service| service.account.clone());
        of_services.chain(record.shared_accounts.iter().cloned()).collect()
    }

    /// Records which accounts' shared certificates these clients are about to get. Returns the clients that must not get
    /// them, because the record could not be written: after a revocation no server would refuse them.
    pub(super) fn record_shared_accounts(
        &mut self,
        clients: &BTreeSet<ClientKey>,
    ) -> BTreeSet<ClientKey> {
        let accounts = |client: &ClientKey| {
            let config = self.clients.config(client)?;
            let secrets = config.compiled.resources.of(ResourceType::Secret).keys();
            let accounts: BTreeSet<_> = secrets
                .filter_map(|name| match name.parse() {
                    Ok(ServiceSecret::OfAccount(account)) => Some(account),
                    _ => None,
                })
                .collect();
            let record = &config.proxy.record;
            (!accounts.is_subset(&record.shared_accounts)).then_some((record.id, accounts))
        };
        let new: Vec<_> = clients.iter().filter_map(accounts).collect();
        let outcome = self.register.add_shared_accounts(&new);
        let withheld: BTreeSet<_> = match outcome {
            Ok(()) => BTreeSet::new(),
            Err(_) => new.iter().map(|(id, _)| ClientKey::from(id.to_string())).collect(),
        };
        let configs = withheld.iter().filter_map(|client| self.clients.config(client));
        let proxies = configs.map(|config| &config.proxy.record);
        self.revocation_failures.note_accounts(proxies, &outcome);
        withheld
    }
}
