//! Failures while the store is in use: a failing disk and a removed file.

use std::sync::Arc;

use ironmesh_catalog::CertificateStore;
use ironmesh_catalog::text::chain;

use super::{JoinRecords, PutCertificates as _, State, certificate, mesh_state, record};
use crate::{DatabaseFileFault, OpenError, Store, StoreHealth};

/// A store with one certificate, on a disk that has failed once.
fn store_after_failure(state: &State) -> Arc<Store> {
    let store = state.open().unwrap();
    mesh_state(&store).put_service_certificate(&certificate("shop/a", "1")).unwrap();
    store.engine.file().faults.set_full(true);
    assert!(store.put_join_record(&record(1)).is_err());
    assert!(store.engine.file().faults.failed() > 0);
    store
}

#[test]
fn failed_write_is_reported_until_the_store_recovers() {
    let state = State::new();
    let store = state.open().unwrap();
    assert_eq!(store.health(), StoreHealth::default());
    drop(store);
    let store = store_after_failure(&state);
    // The disk accepts writes again, but the store is not reopened.
    store.engine.file().faults.set_full(false);
    let error = store.put_join_record(&record(2)).unwrap_err();
    assert!(chain(&error).contains("the store is closed"), "{}", chain(&error));
    assert!(store.join_records().is_err());
    let failure = store.health().failure.unwrap();
    assert!(failure.contains("no storage space"), "{failure}");

    store.recover().unwrap();
    assert_eq!(store.health(), StoreHealth::default());
    assert_eq!(mesh_state(&store).service_certificates().unwrap(), [certificate("shop/a", "1")]);
    store.put_join_record(&record(3)).unwrap();
    drop(store);
    let store = state.open().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(3)], "no failed write is stored");
    let probe = store.get_raw(crate::database::META, "probe").unwrap();
    assert_eq!(probe, None, "the probe is removed");
}

#[test]
fn recovery_on_full_disk_fails_and_keeps_the_fault() {
    let state = State::new();
    let store = store_after_failure(&state);
    for _ in 0..3 {
        assert!(store.recover().is_err());
        assert!(store.health().failure.is_some());
        assert!(store.put_join_record(&record(2)).is_err());
    }
    store.engine.file().faults.set_full(false);
    store.recover().unwrap();
    store.put_join_record(&record(2)).unwrap();
}

#[test]
fn store_keeps_its_lock_while_it_is_closed_and_after_recovery() {
    let state = State::new();
    let store = store_after_failure(&state);
    let is_locked = || matches!(state.open(), Err(OpenError::InUse { .. }));
    assert!(is_locked());
    store.engine.file().faults.set_full(false);
    store.recover().unwrap();
    assert!(is_locked());
    drop(store);
    state.open().unwrap();
}

#[test]
fn empty_write_does_not_clear_a_fault() {
    let state = State::new();
    let store = store_after_failure(&state);
    store.engine.file().faults.set_full(false);
    store.engine.reopen().unwrap();
    assert_eq!(store.change(crate::database::POLICY, |_| Ok(0)).unwrap(), 0);
    assert!(store.health().failure.is_some());
}

#[test]
fn removed_and_replaced_database_files_are_detected() {
    let state = State::new();
    let store = state.open().unwrap();
    fs_err::rename(state.folder(), state.0.path().join("away")).unwrap();
    assert_eq!(store.health().place, Some(DatabaseFileFault::Missing));
    drop(state.open().unwrap());
    assert_eq!(store.health().place, Some(DatabaseFileFault::Replaced));
    fs_err::remove_dir_all(state.folder()).unwrap();
    fs_err::rename(state.0.path().join("away"), state.folder()).unwrap();
    assert_eq!(store.health().place, None);
}
