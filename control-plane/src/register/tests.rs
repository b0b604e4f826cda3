//! Join records: how long the register keeps them, and how it stores claims.

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{KeyHash, PresentedCertificate};
use ironmesh_store::{KeyEncryptionKey, Store, Versioned};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;

mod cordons;
mod names;

fn store(folder: &TempDir) -> Arc<Store> {
    let key = folder.path().join("kek");
    let state = folder.path().join("state");
    let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&state)).unwrap();
    Arc::new(Store::open(&state, kek).unwrap())
}

fn stored(store: &Arc<Store>) -> Vec<Versioned<JoinRecord>> {
    RecordTable::new(Arc::<Store>::clone(store)).list().unwrap()
}

fn record(number: u8, joined: Timestamp) -> JoinRecord {
    JoinRecord {
        claimed_at: Some(joined),
        participation: Participation([("store".parse().unwrap(), 80)].into()),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(number.into())),
            vec!["store".parse().unwrap()],
            SocketAddr::from(([10, 0, 0, number], 15003)),
            joined,
            joined + SignedDuration::from_hours(24 * 365),
        )
    }
}

fn first_use(at: Timestamp) -> CertificateFirstUse {
    let certificate = PresentedCertificate {
        key: KeyHash("k".to_owned()),
        serial: "1".to_owned(),
        expires_at: at + SignedDuration::from_hours(24 * 365),
    };
    CertificateFirstUse { at, certificate }
}

fn ids(records: &Records) -> Vec<u128> {
    records.keys().map(|id| id.0.as_u128()).collect()
}

#[test]
fn revocation_survives_restarts_and_keeps_its_first_reason() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let register = Register::open(store(&folder), now).unwrap();
    register.add_all(vec![record(1, now), record(2, now)]).unwrap();
    let before = *register.generation().borrow();
    let first = Revocation::by_operator(now, Some("stolen".to_owned()));
    register.revoke(&[record(1, now).id], &first).unwrap();
    let after = *register.generation().borrow();
    assert_eq!(after.members, before.members + 1, "a revocation changes the members");
    let again = Revocation::by_operator(now + SignedDuration::from_hours(1), None);
    register.revoke(&[record(1, now).id], &again).unwrap();
    assert_eq!(*register.generation().borrow(), after, "a second revocation changes nothing");
    // The proxy's last ACK may arrive after the revocation.
    let served = record(1, now).participation;
    register.record_progress([(record(1, now).id, AckedPorts::Exactly(&served).into())]).unwrap();

    drop(register);
    let register = Register::open(store(&folder), now).unwrap();
    assert_eq!(ids(&register.records()), [2]);
    assert_eq!(ids(&register.revoked()), [1]);
    let revoked = register.get(record(1, now).id).unwrap();
    assert_eq!(revoked.revoked.as_ref(), Some(&first));
    assert_eq!(revoked.participation, Participation::default());
}

#[test]
fn expired_record_is_retired_and_forgotten_a_month_later() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let after = |days: i64| now + SignedDuration::from_hours(24 * days);
    let register = Register::open(store(&folder), now).unwrap();
    let (claimed, mut unclaimed, revoked) = (record(1, now), record(2, now), record(3, now));
    unclaimed.claimed_at = None;
    register.add_all(vec![claimed, unclaimed, revoked.clone()]).unwrap();
    register.revoke(&[revoked.id], &Revocation::by_operator(now, None)).unwrap();
    let begin = Instant::now();
    let look = |days: u32| {
        register.retire(after(days.into()));
        register.forget(after(days.into()), begin + days * CLOCK_CONFIRMATION).unwrap();
        (ids(&register.records()), ids(&register.all_records()))
    };
    assert_eq!(look(0), (vec![1, 2], vec![1, 2, 3]));
    assert_eq!(look(2), (vec![1], vec![1, 2, 3]), "the unclaimed enrollment expired");
    assert_eq!(look(31), (vec![1], vec![1, 2, 3]), "removal waits for the clock confirmation");
    assert_eq!(look(32), (vec![1], vec![1, 3]));
    assert_eq!(look(365), (vec![], vec![1, 3]), "the claimed certificate expired");
    assert_eq!(look(394), (vec![], vec![1, 3]));
    assert_eq!(look(396), (vec![], vec![1, 3]));
    assert_eq!(
        look(397),
        (vec![], vec![]),
        "a month after expiry the register removes all records"
    );
    assert_eq!(ids(&register.revoked()), [0_u128; 0]);
    drop(register);
    assert_eq!(ids(&Register::open(store(&folder), now).unwrap().all_records()), [0_u128; 0]);
}

#[test]
fn clock_wrong_for_less_than_a_day_removes_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let (now, begin) = (Timestamp::now(), Instant::now());
    let years_ahead = now + SignedDuration::from_hours(24 * 365 * 20);
    let register = Register::open(store(&folder), now).unwrap();
    register.add_all(vec![record(1, now), record(2, now)]).unwrap();
    let hour = CLOCK_CONFIRMATION / 24;
    let look = |at, hours: u32| {
        register.forget(at, begin + hours * hour).unwrap();
        ids(&register.all_records())
    };
    assert_eq!(look(years_ahead, 0), [1, 2]);
    assert_eq!(look(years_ahead, 23), [1, 2]);
    assert_eq!(look(now, 24), [1, 2], "a corrected clock restarts the confirmation");
    assert_eq!(look(years_ahead, 25), [1, 2]);
    assert_eq!(look(years_ahead, 48), [1, 2]);
    assert_eq!(look(years_ahead, 49), [0_u128; 0]);
}

#[test]
fn concurrent_claims_share_one_disk_write() {
    const PROXIES: u8 = 50;
    let (folder, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
    let store = store(&folder);
    let register = Register::open(Arc::<Store>::clone(&store), now).unwrap();
    register
        .add_all(
            (0..PROXIES)
                .map(|number| JoinRecord { claimed_at: None, ..record(number, now) })
                .collect(),
        )
        .unwrap();
    let before = register.generation().borrow().changes;
    std::thread::scope(|threads| {
        // The lock on the records delays the first write, as a busy disk does.
        let records = register.records.lock();
        for number in 0..PROXIES {
            let register = &register;
            threads.spawn(move || {
                register.record_use(record(number, now).id, &first_use(now)).unwrap();
            });
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while register.first_uses.lock().len() < usize::from(PROXIES) {
            assert!(
                Instant::now() < deadline,
                "{} first uses wait",
                register.first_uses.lock().len()
            );
            std::thread::yield_now();
        }
        drop(records);
    });
    assert_eq!(register.generation().borrow().changes, before + 1);
    assert!(stored(&store).iter().all(|record| record.value.claimed_at == Some(now)));
}

/// Two control planes on one store, with this record.
fn two_registers(record: &JoinRecord, now: Timestamp) -> (TempDir, Register, Register) {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let one = Register::open(Arc::<Store>::clone(&store), now).unwrap();
    one.add(record.clone()).unwrap();
    let other = Register::open(store, now).unwrap();
    (folder, one, other)
}

#[test]
fn conflicting_change_is_made_again_on_the_newer_record() {
    let now = Timestamp::now();
    let record = JoinRecord { claimed_at: None, ..record(1, now) };
    let (_folder, one, other) = two_registers(&record, now);
    let revocation = Revocation::by_operator(now, Some("stolen".to_owned()));
    one.revoke(&[record.id], &revocation).unwrap();
    assert!(other.get(record.id).unwrap().revoked.is_none());
    // The claim must not restore what the other control plane has revoked.
    other.record_use(record.id, &first_use(now)).unwrap();
    let kept = other.get(record.id).unwrap();
    assert_eq!((&kept.revoked, kept.claimed_at), (&Some(revocation), Some(now)));
    assert!(other.records().is_empty());
    let stored = other.table.get(&record.id.to_string()).unwrap().unwrap();
    assert_eq!(stored.value, *kept);
    // The first control plane builds on that in turn.
    one.forget(now + SignedDuration::from_hours(24 * 500), Instant::now()).unwrap();
    one.forget(now + SignedDuration::from_hours(24 * 500), Instant::now() + CLOCK_CONFIRMATION)
        .unwrap();
    assert_eq!(one.get(record.id).unwrap(), kept, "the removal of an older record is dropped");
}

#[test]
fn proxies_enrolled_at_once_by_two_control_planes_are_both_kept() {
    let now = Timestamp::now();
    let (_folder, one, other) = two_registers(&record(1, now), now);
    one.add(record(2, now)).unwrap();
    let mut calls = Vec::new();
    let enrolled = other.enroll(|present| {
        calls.push(ids(present));
        let next = if present.len() < 2 { record(2, now) } else { record(3, now) };
        Ok::<_, StoreError>(vec![next])
    });
    enrolled.unwrap();
    assert_eq!(calls, [vec![1], vec![1, 2]], "the second call sees the record of the other one");
    assert_eq!(ids(&other.all_records()), [1, 2, 3]);
}

#[test]
fn unresolvable_conflict_ends_after_a_bounded_number_of_attempts() {
    let now = Timestamp::now();
    let (_folder, one, other) = two_registers(&record(1, now), now);
    let mut attempts = 0;
    let result: Result<(), StoreError> = other.enroll(|_| {
        attempts += 1;
        one.add(JoinRecord { claimed_at: None, ..record(1, now) })?;
        Ok(vec![record(1, now)])
    });
    let error = result.unwrap_err();
    assert!(chain(&error).contains("changed concurrently"), "{}", chain(&error));
    assert_eq!(attempts, 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn register_follows_changes_of_another_control_plane() {
    let now = Timestamp::now();
    let (_folder, one, other) = two_registers(&record(1, now), now);
    let other = Arc::new(other);
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&other).follow(shutdown.clone()));
    let mut generation = other.generation();
    one.add(record(2, now)).unwrap();
    one.revoke(&[record(1, now).id], &Revocation::by_operator(now, None)).unwrap();
    // The records are shown before they are counted.
    let is_shown = |counted: &Generation| {
        counted.members == 2 && ids(&other.records()) == [2] && ids(&other.revoked()) == [1]
    };
    let patience = Duration::from_secs(30);
    let shown = tokio::time::timeout(patience, generation.wait_for(is_shown)).await;
    shown.unwrap().unwrap();

    one.remove(&[record(1, now).id]).unwrap();
    let is_gone = |_: &Generation| ids(&other.all_records()) == [2];
    tokio::time::timeout(patience, generation.wait_for(is_gone)).await.unwrap().unwrap();
    shutdown.cancel();
    task.await.unwrap().unwrap();
}
