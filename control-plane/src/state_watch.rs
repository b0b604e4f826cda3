//! The watch over the control plane's own state: whether the store can be written, whether its file is in place, which
//! records are quarantined, whether it is an older copy of itself, whether proxies trust its authority and share its time, and
//! how they spread over the control planes of the mesh.
//!
//! It reopens the store after a disk failure. It changes nothing else.

mod etcd;
mod replicas;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{Finding, ObjectRef, Snapshot, codes};
use ironmesh_store::{
    DatabaseFileFault, HighWaterFault, QuarantinedRecord, RecordStore as _, Store, StoreHealth,
};
use ironmesh_store_etcd::{EtcdStore, PeerExchange};
use ironmesh_xds_server::Hub;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use ironmesh_catalog::text::chain;

use crate::stores::host_name;
use etcd::etcd_findings;
pub(crate) use replicas::{Replicas, Searches};

/// How often the state is examined.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause between attempts to write to the store again. They begin with one per interval.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The most records, or addresses, that findings name.
const NAMED: usize = 10;

/// The task that watches the control plane's own state.
pub(crate) struct StateWatch {
    store: Arc<Store>,
    etcd: Option<(Arc<EtcdStore>, Arc<PeerExchange>)>,
    hub: Arc<Hub>,
    replicas: Replicas,
    snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    outage: Option<Outage>,
    findings: watch::Sender<Vec<Finding>>,
    /// Since when the disk cannot be written.
    outage_since: watch::Sender<Option<Timestamp>>,
    /// This control plane, as the object of findings.
    own: ObjectRef,
}

/// A time in which the disk cannot be written.
struct Outage {
    since: Timestamp,
    backoff: Duration,
    retry_at: Instant,
}

impl StateWatch {
    /// Creates the watch and the channel of its findings.
    pub(crate) fn new(
        store: Arc<Store>,
        etcd: Option<(Arc<EtcdStore>, Arc<PeerExchange>)>,
        replicas: Replicas,
        snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    ) -> (Self, watch::Receiver<Vec<Finding>>) {
        let findings = watch::Sender::default();
        let receiver = findings.subscribe();
        let hub = Arc::clone(&replicas.hub);
        let (outage, outage_since) = (None, watch::Sender::default());
        let own = ObjectRef::ControlPlane(host_name());
        let mut watch =
            Self { store, etcd, hub, replicas, snapshot, outage, findings, outage_since, own };
        // The first answer to a client already has the findings of the start.
        watch.examine(Timestamp::now());
        (watch, receiver)
    }

    /// Since when the disk cannot be written; none while it can.
    pub(crate) fn outage_since(&self) -> watch::Receiver<Option<Timestamp>> {
        self.outage_since.subscribe()
    }

    /// Watches until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            let is_over = tokio::select! {
                () = sleep(INTERVAL) => false,
                () = shutdown.cancelled() => true,
            };
            // The disk may be slow: other tasks continue on other threads.
            tokio::task::block_in_place(|| self.examine(Timestamp::now()));
            if is_over {
                return Ok(());
            }
        }
    }

    fn examine(&mut self, now: Timestamp) {
        self.recover(now);
        if self.outage.is_none() {
            // A failure becomes part of the health, and `recover` tries again.
            let _ = self.store.record_high_water();
        }
        let health = self.store.health();
        let path = self.store.path();
        let outage = self.outage.as_ref().map(|outage| outage.since);
        let since = outage.unwrap_or(now);
        self.outage_since.send_if_modified(|known| {
            let is_news = *known != outage;
            *known = outage;
            is_news
        });
        let mut found = store_findings(&health, &path.display().to_string(), since);
        if let Some((etcd, exchange)) = &self.etcd {
            let expiry = self.snapshot.borrow().as_ref().and_then(|snapshot| {
                snapshot.certificates.values().map(|certificate| certificate.not_after).min()
            });
            found.extend(etcd_findings(&etcd.condition(), exchange.failure(), expiry));
        }
        for finding in found.iter_mut().filter(|finding| finding.objects.is_empty()) {
            finding.objects.push(self.own.clone());
        }
        found.extend(unknown_authority(&self.hub));
        found.extend(differing_clock(&self.hub));
        found.extend(self.replicas.findings());
        self.findings.send_if_modified(|findings| {
            // Counts change all the time: only a new finding is logged.
            for finding in found.iter().filter(|one| findings.iter().all(|old| !is_same(old, one)))
            {
                if finding.is_error() {
                    tracing::error!("{finding}");
                } else {
                    tracing::warn!("{finding}");
                }
            }
            for finding in findings.iter().filter(|one| found.iter().all(|new| !is_same(new, one)))
            {
                tracing::info!(code = %finding.code, "finding resolved");
            }
            let is_news = *findings != found;
            *findings = found;
            is_news
        });
    }

    /// Tries to write again after a disk failure, when the backoff is over.
    fn recover(&mut self, now: Timestamp) {
        if self.store.health().failure.is_none() {
            self.outage = None;
            return;
        }
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: now,
            backoff: Duration::ZERO,
            retry_at: Instant::now(),
        });
        if Instant::now() < outage.retry_at {
            return;
        }
        match self.store.recover() {
            Ok(()) => {
                let since = outage.since;
                tracing::info!(%since, "the state store can be written again");
                self.outage = None;
            }
            Err(error) => {
                tracing::debug!(error = chain(&error), "the state store cannot be written yet");
                outage.backoff = (outage.backoff + INTERVAL).min(MAX_BACKOFF);
                outage.retry_at = Instant::now() + outage.backoff;
            }
        }
    }
}

/// Whether both findings are about the same problem, though their counts or causes may differ.
fn is_same(one: &Finding, other: &Finding) -> bool {
    (one.code, one.severity) == (other.code, other.severity)
        && (one.code != codes::RECORD_QUARANTINED || one.message == other.message)
}

/// The findings about the store, whose file is at `path`.
fn store_findings(health: &StoreHealth, path: &str, since: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(failure) = &health.failure {
        let words =
            format!("the state file `{path}` cannot be written since {since:.0}: {failure}");
        found.push(Finding::error(codes::STATE_NOT_WRITTEN, None, words).help(
            "free space on its disk, or repair the disk; the control plane tries again every few \
             seconds and needs no restart. Until then no proxy is enrolled or revoked, and no \
             certificate is renewed",
        ));
    }
    if let Some(place) = &health.place {
        let words = match place {
            DatabaseFileFault::Missing => {
                format!("the state file `{path}` was removed while it is in use")
            }
            DatabaseFileFault::Replaced => {
                format!(
                    "the state file `{path}` was replaced by a different file while it is in use"
                )
            }
            DatabaseFileFault::Unreachable(error) => {
                format!("the state file `{path}` cannot be reached any more: {error}")
            }
        };
        found.push(Finding::error(codes::STATE_FILE_LOST, None, words).help(
            "restore the state folder with its key-encryption key from your backup, then restart the \
             control plane. A restart without them creates a new certificate authority, which all \
             enrolled proxies reject",
        ));
    }
    found.extend(health.high_water.as_ref().map(|fault| rolled_back(fault, path)));
    found.extend(health.quarantined.iter().take(NAMED).map(quarantined));
    let more = health.quarantined.len().saturating_sub(NAMED);
    if more > 0 {
        let words = format!("{more} more stored records are not used");
        found.push(Finding::error(codes::RECORD_QUARANTINED, None, words));
    }
    found
}

/// The finding that the state file may be older than what the control plane has answered.
fn rolled_back(fault: &HighWaterFault, path: &str) -> Finding {
    let words = match fault {
        HighWaterFault::OlderCopy { found, mark } => format!(
            "the state file `{path}` was replaced by an older copy: it had revision {found}, and the high-water mark \
             is {mark}; later changes are lost, such as revocations and enrollments"
        ),
        HighWaterFault::Unusable => format!(
            "the high-water mark of the state file `{path}` was changed, belongs to a different key-encryption key, or \
             cannot be read: the state may be an older copy"
        ),
    };
    Finding::error(codes::STATE_ROLLED_BACK, None, words).help(
        "compare `ironmesh proxy list` with your records: revoke again each proxy that was revoked since, first; then \
         enroll again each one that is missing. Then stop the control plane, remove the file `high-water` beside the \
         state file, and start it",
    )
}

fn quarantined(record: &QuarantinedRecord) -> Finding {
    let QuarantinedRecord { table, key } = record;
    let why = "it was changed outside of the control plane, or is of a newer version";
    let restore = "restore the state folder from your backup";
    let code = codes::RECORD_QUARANTINED;
    match table.as_str() {
        "join_records" => {
            let words = format!(
                "the stored join record of proxy {key} is not used: {why}; the proxy is not served"
            );
            let help = format!(
                "{restore}; or remove the record with `ironmesh proxy revoke {key}` and enroll the \
                 proxy again"
            );
            let finding = Finding::error(code, None, words).help(help);
            match key.parse() {
                Ok(id) => finding.object(ObjectRef::Proxy(id)),
                Err(_) => finding,
            }
        }
        "policy" => {
            let words = format!("the stored record `{key}` of policy is not used: {why}");
            let help = format!("{restore}; the next write of the record replaces it");
            Finding::error(code, None, words).help(help)
        }
        "journal" => {
            let words = format!("the journal entry `{key}` is not shown: {why}");
            let help = format!("{restore}, or ignore it: it goes when newer entries displace it");
            Finding::warning(code, None, words).help(help)
        }
        _ => {
            let words = format!("the stored record `{key}` of {table} is not used: {why}");
            Finding::warning(code, None, words).help("the next update of the record replaces it")
        }
    }
}

/// The finding that clients reject the control plane's certificate as that of an unknown authority, as proxies do that
/// were enrolled with a different state folder. It is an error while no proxy is connected: then the state is probably
/// new.
pub(super) fn unknown_authority(hub: &Hub) -> Option<Finding> {
    let distrusting = hub.rejections().distrusting(Instant::now());
    if distrusting.is_empty() {
        return None;
    }
    let words = format!(
        "clients reject the control plane's certificate, because they do not know its authority: {}",
        list(&distrusting)
    );
    let objects = machines(&distrusting);
    let is_connected = hub.status().iter().any(|(_, status)| status.streams > 0);
    let finding = if is_connected {
        let help = "if these are proxies of this mesh, enroll them again: their bootstrap has a \
                    different authority";
        Finding::warning(codes::UNKNOWN_AUTHORITY, None, words).help(help)
    } else {
        let help = "the state folder is new, or was lost: restore it with its key-encryption key from \
                    your backup, and restart. If the new authority is intended, enroll all proxies \
                    again with `ironmesh proxy bootstrap --new-authority`";
        Finding::error(codes::UNKNOWN_AUTHORITY, None, words).help(help)
    };
    Some(finding.objects(objects))
}

/// The finding that clients reject the control plane's certificate because of its dates. The certificate is valid by
/// the local clock, since it is replaced at two thirds of its lifetime, so the clocks differ. It is a warning, since
/// any client can send the alert.
fn differing_clock(hub: &Hub) -> Option<Finding> {
    let misdating = hub.rejections().misdating(Instant::now());
    if misdating.is_empty() {
        return None;
    }
    let words = format!(
        "the clock of a proxy's machine differs: clients reject the control plane's certificate as expired or not \
         yet valid: {}",
        list(&misdating)
    );
    let help = "compare the clock of each machine with that of the control plane (`date -u`), and correct the one \
                that is wrong";
    let finding = Finding::warning(codes::PROXY_CLOCK_DIFFERS, None, words);
    Some(finding.objects(machines(&misdating)).help(help))
}

/// The machines at these addresses.
fn machines(addresses: &[(IpAddr, u64)]) -> Vec<ObjectRef> {
    addresses.iter().map(|(address, _)| ObjectRef::Machine(*address)).collect()
}

/// Addresses with the numbers of their connections, for a finding.
fn list(addresses: &[(IpAddr, u64)]) -> String {
    let named = addresses.iter().take(NAMED);
    let mut named: Vec<_> =
        named.map(|(address, count)| format!("{address} ({count} connections)")).collect();
    let more = addresses.len().saturating_sub(NAMED);
    if more > 0 {
        named.push(format!("{more} more addresses"));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes_of(health: &StoreHealth) -> Vec<(u16, bool)> {
        let found = store_findings(health, "/state/state.redb", Timestamp::UNIX_EPOCH);
        found.iter().map(|finding| (finding.code.0, finding.is_error())).collect()
    }

    #[test]
    fn each_store_fault_is_a_finding() {
        assert_eq!(codes_of(&StoreHealth::default()), []);
        let record = |table: &str| QuarantinedRecord { table: table.into(), key: "7".into() };
        let health = StoreHealth {
            failure: Some("disk full".into()),
            place: Some(DatabaseFileFault::Missing),
            high_water: Some(HighWaterFault::OlderCopy { found: 3, mark: 7 }),
            quarantined: vec![record("endpoints"), record("join_records"), record("policy")],
        };
        let expected =
            [(701, true), (702, true), (705, true), (703, false), (703, true), (703, true)];
        assert_eq!(codes_of(&health), expected);
        let many = StoreHealth {
            quarantined: (0..NAMED + 5).map(|_| record("policy")).collect(),
            ..StoreHealth::default()
        };
        let found = store_findings(&many, "", Timestamp::UNIX_EPOCH);
        assert_eq!(found.len(), NAMED + 1);
        assert!(found[NAMED].message.starts_with("5 more stored records"), "{found:?}");
    }
}
