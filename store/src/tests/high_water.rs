//! The high-water mark: older copies of the whole state, and marks that are missing, foreign or forged.

use std::sync::Arc;

use super::{JoinRecords, State, record};
use crate::{HighWaterFault, RecordStore as _, RecordVersion, Store};

/// A copy of the database with one join record, which the state since has replaced.
fn state_and_older_copy() -> (State, Vec<u8>) {
    let state = State::new();
    state.open().unwrap().put_join_record(&record(1)).unwrap();
    let copy = fs_err::read(state.database()).unwrap();
    let store = state.open().unwrap();
    for id in [1, 2] {
        store.put_join_record(&record(id)).unwrap();
    }
    (state, copy)
}

fn fault(store: &Arc<Store>) -> Option<HighWaterFault> {
    store.health().high_water
}

#[test]
fn older_copy_is_reported_until_the_mark_is_removed() {
    let (state, copy) = state_and_older_copy();
    fs_err::write(state.database(), copy).unwrap();
    let expected = Some(HighWaterFault::OlderCopy { found: 1, mark: 3 });
    {
        let store = state.open().unwrap();
        assert_eq!(fault(&store), expected);
        // The store serves, and uses no revision twice.
        assert_eq!(store.join_records().unwrap(), [record(1)]);
        assert_eq!(store.put_join_record(&record(3)).unwrap(), RecordVersion(4));
    }
    let store = state.open().unwrap();
    assert_eq!(fault(&store), expected, "also when the revision has passed the mark");
    drop(store);
    fs_err::remove_file(state.mark()).unwrap();
    assert_eq!(fault(&state.open().unwrap()), None);
    assert!(state.mark().exists());
}

#[test]
fn older_copy_is_reported_at_each_start_without_commits() {
    let (state, copy) = state_and_older_copy();
    fs_err::write(state.database(), copy).unwrap();
    for _ in 0..3 {
        let expected = Some(HighWaterFault::OlderCopy { found: 1, mark: 3 });
        assert_eq!(fault(&state.open().unwrap()), expected);
    }
}

#[test]
fn forged_and_foreign_marks_are_reported() {
    let (other, _) = state_and_older_copy();
    let foreign = fs_err::read_to_string(other.mark()).unwrap();
    let (state, _) = state_and_older_copy();
    let own = fs_err::read_to_string(state.mark()).unwrap();
    assert!(own.contains("{\"revision\":3}"), "{own}");
    for bad in [foreign, own.replace("3}", "1}"), String::new(), "?\n?\n".to_owned()] {
        fs_err::write(state.mark(), bad).unwrap();
        for _ in 0..2 {
            let store = state.open().unwrap();
            assert_eq!(fault(&store), Some(HighWaterFault::Unusable));
            assert_eq!(store.join_records().unwrap().len(), 2);
        }
    }
    fs_err::remove_file(state.mark()).unwrap();
    assert_eq!(fault(&state.open().unwrap()), None);
}

#[test]
fn successor_of_a_lost_database_continues_its_revisions() {
    let (state, copy) = state_and_older_copy();
    fs_err::remove_file(state.database()).unwrap();
    for _ in 0..2 {
        assert_eq!(fault(&state.open().unwrap()), None, "its authority is new: no copy is served");
    }
    fs_err::write(state.database(), copy).unwrap();
    let expected = HighWaterFault::OlderCopy { found: 1, mark: 3 };
    assert_eq!(fault(&state.open().unwrap()), Some(expected));
}

#[test]
fn mark_is_written_before_an_answer_and_not_by_each_commit() {
    let state = State::new();
    let store = state.open().unwrap();
    let before = fs_err::read(state.mark()).unwrap();
    store.put_join_record(&record(1)).unwrap();
    assert_eq!(fs_err::read(state.mark()).unwrap(), before);
    store.record_high_water().unwrap();
    let after = fs_err::read_to_string(state.mark()).unwrap();
    assert!(after.ends_with("\n{\"revision\":1}\n"), "{after}");
    // A process that is killed later has lost nothing of it.
    store.put_join_record(&record(2)).unwrap();
    store.engine.file().faults.set_full(true);
    assert!(store.put_join_record(&record(3)).is_err());
    store.record_high_water().unwrap();
    let after = fs_err::read_to_string(state.mark()).unwrap();
    assert!(after.contains("{\"revision\":2}"), "a failed commit does not count: {after}");
}

#[test]
fn failed_write_of_the_mark_is_a_failure_until_it_succeeds() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_record(&record(1)).unwrap();
    // A folder in the place of the draft cannot be removed as a file.
    let draft = state.folder().join("high-water.mark.new");
    fs_err::create_dir(&draft).unwrap();
    assert!(store.record_high_water().is_err());
    assert!(store.recover().is_err());
    assert!(store.health().failure.is_some());
    fs_err::remove_dir(&draft).unwrap();
    store.recover().unwrap();
    assert_eq!(store.health().failure, None);
    let mark = fs_err::read_to_string(state.mark()).unwrap();
    assert!(mark.contains("{\"revision\":1}"), "{mark}");
}

#[test]
fn removed_state_folder_gets_no_mark() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_record(&record(1)).unwrap();
    fs_err::remove_dir_all(state.folder()).unwrap();
    store.record_high_water().unwrap();
    assert_eq!(store.health().failure, None);
    drop(store);
    assert!(!state.folder().exists());
}
