//! The journal's batches, bounds and waits.

use std::path::Path;

use ironmesh_admin::Principal;
use ironmesh_api::{BootstrapRequest, BootstrapResponse, EnrolledProxy};
use ironmesh_catalog::{CertificateHistory, CertificateStore, Secret, ServiceCertificate};
use ironmesh_store::{KeyEncryptionKey, Store};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::certificates::MAX_HOLDERS;
use super::pending::MAX_PENDING;
use super::*;

fn state(folder: &Path) -> Arc<MeshState> {
    let state = folder.join("state");
    let exists = Store::database_exists(&state);
    let kek = KeyEncryptionKey::load_or_create(&folder.join("kek"), exists).unwrap();
    MeshState::new(Arc::new(Store::open(&state, kek).unwrap()))
}

fn open() -> (TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(state(folder.path()));
    (folder, journal)
}

fn entry(kind: JournalKind) -> JournalEntry {
    JournalEntry::new(Timestamp::UNIX_EPOCH, kind, Actor::ControlPlane)
}

fn entries(journal: &Journal) -> Vec<JournalEntry> {
    journal.page(&JournalQuery::default()).unwrap().entries
}

fn certificate(account: &str) -> ServiceCertificate {
    ServiceCertificate {
        account: account.parse().unwrap(),
        chain: String::new(),
        key: Secret::new(String::new()),
        serial: "1".to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::UNIX_EPOCH,
        renew_at: Timestamp::UNIX_EPOCH,
        history: CertificateHistory::default(),
    }
}

#[test]
fn certificates_of_a_batch_are_one_entry_per_account() {
    let (_folder, journal) = open();
    let certificates =
        RecordedCertificates { state: Arc::clone(&journal.0.state), journal: journal.clone() };
    for account in ["shop/a", "shop/b", "shop/a"] {
        let new = certificate(account);
        let old = certificates.service_certificate(&new.account).unwrap();
        assert!(certificates.replace_service_certificate(old.as_ref(), &new).unwrap());
    }
    let other = ServiceCertificate { serial: "2".to_owned(), ..certificate("shop/a") };
    let is_kept = certificates.replace_service_certificate(Some(&other), &other).unwrap();
    assert!(!is_kept, "what another control plane was faster with is no entry");
    journal.record_issued(CertificateHolder::proxies(&["shop/store".parse().unwrap()]), 500);
    assert_eq!(entries(&journal), [], "the disk is not written for each certificate");
    journal.write();
    let counts: Vec<_> = entries(&journal)
        .into_iter()
        .map(|entry| (entry.subject.account.map(|account| account.to_string()), entry.count))
        .collect();
    let expected = [(Some("shop/b".to_owned()), 1), (Some("shop/a".to_owned()), 2), (None, 500)];
    assert_eq!(counts, expected);
    journal.write();
    assert_eq!(entries(&journal).len(), 3);
}

#[test]
fn batch_of_many_accounts_names_only_some_of_them() {
    let (_folder, journal) = open();
    for number in 0..10_000 {
        let account = format!("shop/a{number}").parse().unwrap();
        journal.record_issued(CertificateHolder::Account(account), 1);
    }
    journal.write();
    let entries = entries(&journal);
    assert_eq!(entries.len(), MAX_HOLDERS + 1);
    assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 10_000);
    let other = entries.iter().filter(|entry| entry.subject.name.is_some());
    let other: Vec<_> = other.map(|entry| entry.count).collect();
    assert_eq!(other, [10_000 - u64::try_from(MAX_HOLDERS).unwrap()]);
}

#[test]
fn new_authority_and_renewed_intermediate_are_told_apart() {
    let (_folder, journal) = open();
    let certificates =
        RecordedCertificates { state: Arc::clone(&journal.0.state), journal: journal.clone() };
    assert!(certificates.replace_authority(None, b"1").unwrap());
    assert!(!certificates.replace_authority(None, b"2").unwrap());
    assert!(certificates.replace_authority(Some(b"1"), b"2").unwrap());
    journal.write();
    let names: Vec<_> = entries(&journal).into_iter().map(|one| one.subject.name).collect();
    assert_eq!(names, [Some("root".to_owned()), Some("intermediate".to_owned())]);
}

#[test]
fn pending_entries_are_bounded_per_kind_and_the_lost_are_counted() {
    let (_folder, journal) = open();
    for _ in 0..MAX_PENDING + 7 {
        journal.record(entry(JournalKind::Enroll));
    }
    journal.record(entry(JournalKind::Revoke));
    // A failed write keeps the entries in their order, before those that came since.
    let (taken, _) = journal.0.pending.lock().take();
    journal.record(entry(JournalKind::Rollback));
    journal.0.pending.lock().put_back(taken);
    journal.write();
    let page = journal.page(&JournalQuery::default()).unwrap();
    assert_eq!(page.dropped, 7);
    let kinds: Vec<_> = page.entries.iter().rev().take(3).map(|entry| entry.kind).collect();
    assert_eq!(kinds, [JournalKind::Rollback, JournalKind::Revoke, JournalKind::Enroll]);
    assert_eq!(usize::try_from(page.last).unwrap(), MAX_PENDING + 2);
}

#[test]
fn rejected_entries_displace_no_done_ones_of_the_same_kind() {
    let (_folder, journal) = open();
    let outcome = JournalOutcome::Rejected { reason: "unknown".to_owned() };
    let rejected = JournalEntry { outcome, ..entry(JournalKind::Revoke) };
    for _ in 0..=MAX_PENDING {
        journal.record(rejected.clone());
    }
    journal.record(entry(JournalKind::Revoke));
    journal.write();
    let page = journal.page(&JournalQuery::default()).unwrap();
    assert_eq!((page.dropped, page.entries.last().unwrap().is_rejected()), (1, false));
}

#[test]
fn operator_waits_at_most_half_a_second_for_a_slow_disk() {
    let (_folder, journal) = open();
    let _writing = journal.0.writing.lock();
    let begun = Instant::now();
    journal.record_and_wait(entry(JournalKind::Revoke));
    assert!(begun.elapsed() >= LONGEST_WAIT);
    assert_eq!(LONGEST_WAIT, Duration::from_millis(500));
}

#[test]
fn enrollment_of_several_proxies_names_some_of_them() {
    let request = r#"{"services":["shop/store"],"upstreams":[],"proxies":[],"new_authority":true}"#;
    let request: BootstrapRequest = serde_json::from_str(request).unwrap();
    let proxies = (1..=7).map(|number| EnrolledProxy {
        id: ironmesh_catalog::ProxyId(uuid::Uuid::from_u128(number)),
        name: format!("store-{number}").parse().unwrap(),
        certificate: String::new(),
        expires_at: Timestamp::UNIX_EPOCH,
    });
    let mut response = BootstrapResponse {
        proxies: proxies.collect(),
        roots: String::new(),
        control_plane: Vec::new(),
        control_plane_id: String::new(),
        driver: ironmesh_catalog::DriverName::default(),
        issued_at: None,
        enrollment: Vec::new(),
        notes: Vec::new(),
    };
    let mut subject = |count: usize| {
        response.proxies.truncate(count);
        enrollment(&Principal::owner(None), &request, Ok(&response)).subject
    };
    let many = "store-1, store-2, store-3, store-4, store-5, …";
    assert_eq!((subject(7).name.as_deref(), subject(7).proxy), (Some(many), None));
    assert_eq!(subject(2).name.as_deref(), Some("store-1, store-2"));
    assert_eq!(subject(1).name.as_deref(), Some("store-1"));
    assert!(subject(1).proxy.is_some());
    let error = ApiError::BadRequest("no".to_owned());
    let rejected = enrollment(&Principal::owner(None), &request, Err(&error));
    assert_eq!(rejected.subject.name, None);
    assert_eq!(rejected.message.as_deref(), Some("--new-authority"));
}

#[test]
fn claim_by_several_streams_is_one_entry() {
    let (_folder, journal) = open();
    let record = |id: u128| {
        JoinRecord::new(
            ironmesh_catalog::ProxyId(uuid::Uuid::from_u128(id)),
            vec!["shop/store".parse().unwrap()],
            "127.1.0.1:15003".parse().unwrap(),
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH,
        )
    };
    for id in [1, 1, 2] {
        journal.record(claim(
            &record(id),
            "127.1.0.1:4000".parse().unwrap(),
            Timestamp::UNIX_EPOCH,
        ));
    }
    journal.write();
    let claims = entries(&journal);
    assert_eq!(claims.len(), 2);
    assert_eq!(claims[0].origin.as_deref(), Some("127.1.0.1:4000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_waits_until_the_entry_is_stored_also_at_the_end() {
    let (_folder, journal) = open();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(journal.clone().run(shutdown.clone()));
    let begun = Instant::now();
    for count in 1..=3 {
        let waiting = journal.clone();
        let wait = move || waiting.record_and_wait(entry(JournalKind::Revoke));
        tokio::task::spawn_blocking(wait).await.unwrap();
        assert_eq!(entries(&journal).len(), count);
    }
    assert!(begun.elapsed() < 3 * WRITE_INTERVAL, "the writer was not woken");
    journal.record(entry(JournalKind::Claim));
    shutdown.cancel();
    timeout(Duration::from_secs(30), task).await.unwrap().unwrap().unwrap();
    journal.record(entry(JournalKind::Policy));
    let kinds: Vec<_> = entries(&journal).iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds[3..], [JournalKind::Claim, JournalKind::Policy]);
}

#[test]
fn start_with_the_policy_of_the_last_run_is_no_change() {
    let (_folder, journal) = open();
    let of = |kind, revision: &str, outcome: &JournalOutcome| JournalEntry {
        subject: JournalSubject {
            revision: Some(ironmesh_catalog::PolicyRevision(revision.into())),
            ..JournalSubject::default()
        },
        outcome: outcome.clone(),
        ..entry(kind)
    };
    let (done, rejected) =
        (JournalOutcome::Done, JournalOutcome::Rejected { reason: String::new() });
    assert!(!journal.has_policy(&of(JournalKind::Policy, "1", &done)));
    journal.record(of(JournalKind::Policy, "1", &done));
    journal.record(of(JournalKind::Accept, "2", &done));
    journal.record(of(JournalKind::Policy, "3", &rejected));
    journal.write();
    for (revision, outcome, expected) in
        [("1", &done, false), ("2", &done, true), ("3", &done, false), ("3", &rejected, true)]
    {
        let has = journal.has_policy(&of(JournalKind::Policy, revision, outcome));
        assert_eq!(has, expected, "{revision} {outcome:?}");
    }
}

#[test]
fn long_text_of_a_request_is_cut_and_in_one_line() {
    assert_eq!(line("a\nb\n"), "a\\u000ab");
    let cut = line(&"ü".repeat(MAX_TEXT + 1));
    assert_eq!(cut.chars().count(), MAX_TEXT + 1);
    assert!(cut.ends_with('…'));
}
