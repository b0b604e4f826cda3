//! Time: renewal of certificates, jumps of the clock, and ticks that cost nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use ironmesh_catalog::{
    JoinRecord, KeyHash, NodeMetadata, Participation, PresentedCertificate, Proxy, ProxyId,
    ServiceAccount,
};
use ironmesh_cert::ClockReading;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

use super::harness::Harness;
use crate::policy_source::PolicyState;
use crate::reconciler::endpoints::current_time;
use crate::reconciler::snapshot_builder::Sources;
use crate::register::{AckedPorts, CertificateFirstUse};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A harness with one enrolled proxy.
fn open() -> Harness {
    let harness = Harness::open(POLICY);
    harness.join(1, &["store"]);
    harness
}

impl Harness {
    /// Builds a snapshot and returns the number of resources encoded for it.
    fn encodes(&mut self, now: Timestamp, is_tick: bool) -> u64 {
        let specification = self.policy.borrow().specification.clone().unwrap();
        let clock = ClockReading { now, steady_for: Duration::ZERO };
        let snapshot_builder = &mut self.reconciler.snapshot_builder;
        let before = snapshot_builder.compiler().unwrap().encoded();
        {
            let (records, revoked) = (self.register.records(), self.register.revoked());
            let endpoints = &mut self.reconciler.endpoints;
            let discovered = endpoints.discover(&specification, &records, current_time(now));
            let leaving = Default::default();
            let waiting = BTreeSet::default();
            let sources = Sources {
                specification,
                records,
                revoked,
                waiting,
                leaving,
                health: ironmesh_catalog::ReportedApplications::new(),
                discovered,
            };
            snapshot_builder.build(sources, clock, is_tick);
        }
        snapshot_builder.compiler().unwrap().encoded() - before
    }

    fn serial(&self) -> String {
        let account: ServiceAccount = "store".parse().unwrap();
        let snapshot = self.reconciler.snapshot_builder.snapshot().unwrap();
        snapshot.certificates.get(&account).unwrap().serial.clone()
    }

    /// The version of the certificate that the proxy would be sent now.
    fn sent(&mut self) -> ironmesh_xds_wire::Version {
        let record = self.register.records().values().next().unwrap().as_ref().clone();
        let proxy = Proxy { record, metadata: NodeMetadata::default() };
        let compiled = self.reconciler.snapshot_builder.compiler().unwrap().compile(&proxy);
        let secrets = compiled.resources.of(ironmesh_xds_wire::ResourceType::Secret);
        secrets.get("service-cert:default/store").unwrap().version()
    }
}

fn later(now: Timestamp, hours: i64) -> Timestamp {
    now + SignedDuration::from_hours(hours)
}

#[test]
fn service_certificate_is_renewed_in_time_and_pushed() {
    let mut harness = open();
    let now = harness.now;
    harness.tick(now);
    assert!(*harness.feeds.ready.borrow());
    let (serial, sent) = (harness.serial(), harness.sent());
    harness.tick(later(now, 12));
    assert_eq!((harness.serial(), harness.sent()), (serial.clone(), sent), "renewed too early");
    // By now two thirds of the certificate's lifetime (24 h ± 10 %) have passed.
    harness.tick(later(now, 18));
    assert_ne!(harness.serial(), serial);
    assert_ne!(harness.sent(), sent);
}

#[test]
fn xds_port_certificate_is_renewed_in_time() {
    let mut harness = open();
    let now = harness.now;
    harness.tick(later(now, 24 * 15));
    assert!(!harness.feeds.tls.has_changed().unwrap());
    harness.tick(later(now, 24 * 21));
    assert!(harness.feeds.tls.has_changed().unwrap());
}

/// The codes of the mesh findings.
fn codes(harness: &Harness) -> Vec<String> {
    let findings = harness.feeds.mesh_findings.borrow();
    findings.iter().map(|finding| finding.code.to_string()).collect()
}

#[test]
fn jump_ahead_removes_no_proxy_and_is_reported() {
    let mut harness = open();
    let (now, instant) = (harness.now, Instant::now());
    harness.tick(now);
    assert_eq!(codes(&harness), [""; 0]);
    let serial = harness.serial();
    let years = later(now, 24 * 365 * 2);
    harness.reconciler.clock.compare(years, instant).unwrap();
    harness.tick(years);
    assert_eq!(harness.register.records().len(), 1, "its certificate has not really expired");
    assert_ne!(harness.serial(), serial, "peers whose clocks are so far ahead reject the old one");
    assert_eq!(codes(&harness), ["IM0711"], "whether its certificate has expired is not known");

    // The clock is corrected: the certificate in use was issued in the future.
    harness.reconciler.clock.compare(now, instant).unwrap();
    harness.tick(now);
    assert_eq!(codes(&harness), ["IM0711", "IM0712"]);
    let findings = harness.feeds.mesh_findings.borrow();
    let first = findings.iter().next().unwrap();
    assert!(first.message.contains("jumped back by 17520h"), "{}", first.message);
}

#[test]
fn proxy_expired_by_a_fast_clock_returns_after_correction() {
    let mut harness = open();
    let now = harness.now;
    // The clock was ahead from the start, so the control plane saw no jump.
    harness.tick(later(now, 24 * 365 * 2));
    assert_eq!(harness.register.records().len(), 0);
    harness.tick(now);
    let records = harness.register.records();
    let (id, _) = records.iter().next().expect("the proxy has returned");
    assert!(harness.reconciler.snapshot_builder.snapshot().unwrap().record(*id).is_some());
}

#[test]
fn control_plane_without_policy_is_not_ready() {
    let mut harness = open();
    let now = harness.now;
    let good = harness.policy.send_replace(PolicyState::default());
    harness.tick(now);
    assert!(!*harness.feeds.ready.borrow());
    harness.policy.send_replace(good);
    harness.reconciler.reconcile(now);
    assert!(*harness.feeds.ready.borrow());
}

#[test]
fn change_without_effect_on_proxies_encodes_nothing() {
    let mut harness = open();
    let now = harness.now;
    harness.tick(now);
    assert_eq!(harness.encodes(now, true), 0, "a tick alone");

    let first = harness.register.records().values().next().unwrap().clone();
    let mut other = (*first).clone();
    other.id = ProxyId(Uuid::from_u128(2));
    other.claimed_at = None;
    harness.register.add(other.clone()).unwrap();
    assert_eq!(harness.encodes(now, false), 0, "another proxy");
    harness.register.record_use(other.id, &first_use(&other, now)).unwrap();
    assert_eq!(harness.encodes(now, false), 0, "a claim");
    let ports = [("store".parse().unwrap(), 80)].into();
    harness
        .register
        .record_progress([(other.id, AckedPorts::Exactly(&Participation(ports)).into())])
        .unwrap();
    assert_eq!(harness.encodes(now, false), 0, "a participant without callers");
    let endpoints = &harness.reconciler.snapshot_builder.snapshot().unwrap().endpoints;
    assert_eq!(endpoints.values().map(|endpoints| endpoints.len()).sum::<usize>(), 1);
}

/// The first use of a certificate of this proxy.
fn first_use(record: &JoinRecord, at: Timestamp) -> CertificateFirstUse {
    let certificate = PresentedCertificate {
        key: KeyHash("k".to_owned()),
        serial: "1".to_owned(),
        expires_at: record.certificate_expires_at,
    };
    CertificateFirstUse { at, certificate }
}
