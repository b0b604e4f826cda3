//! The trait of a store of records: compare-and-swap, atomic commits, watches, and records of newer versions.

use std::future::Future as _;
use std::ops::{ControlFlow, Range};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ironmesh_catalog::{JoinRecord, UnknownFields};
use serde_json::{Value, json};

use super::{JoinRecords, State, record, table};
use crate::embedded_records::definition;
use crate::{
    ExpectedVersion, Order, Record as _, RecordAddress, RecordChange, RecordError,
    RecordStore as _, RecordVersion, RecordWatch, TableChanges, TableName,
};

/// A table that only these tests use.
const OTHER: TableName = TableName("tokens_of_a_test");

fn put(id: u128, expected: ExpectedVersion) -> RecordChange {
    RecordChange::put(&record(id), expected).unwrap()
}

fn other(key: &str, expected: ExpectedVersion, value: Option<&str>) -> RecordChange {
    let value = value.map(|value| value.as_bytes().to_vec().into());
    RecordChange { table: OTHER, key: key.to_owned(), expected, value }
}

fn conflicts(error: RecordError) -> Vec<RecordAddress> {
    match error {
        RecordError::Conflict(records) => records,
        other => panic!("{other:?}"),
    }
}

/// The changes that a watch has now.
fn changes(watch: &mut RecordWatch) -> Option<Result<TableChanges, RecordError>> {
    match pin!(watch.changed()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(changes) => Some(changes),
        Poll::Pending => None,
    }
}

#[test]
fn commit_expects_versions_and_changes_all_or_nothing() {
    use ExpectedVersion::{Absent, Any, Exactly};
    let store = State::new().open().unwrap();
    let first = store.commit(&[put(1, Absent), other("a", Absent, Some("1"))]).unwrap();
    assert_eq!(table(&store).get(&record(1).id.to_string()).unwrap().unwrap().version, first);
    let second = store.commit(&[other("a", Exactly(first), Some("2"))]).unwrap();
    assert!(second > first);

    let stale = [put(1, Exactly(first)), other("a", Exactly(first), Some("3")), put(2, Any)];
    let address = |table, key: &str| RecordAddress { table, key: key.to_owned() };
    assert_eq!(conflicts(store.commit(&stale).unwrap_err()), [address(OTHER, "a")]);
    let absent = [put(1, Absent), put(2, Absent), put(3, Exactly(first))];
    let expected = [1, 3].map(|id| address(JoinRecord::TABLE, &record(id).id.to_string()));
    assert_eq!(conflicts(store.commit(&absent).unwrap_err()), expected);
    assert_eq!(store.join_records().unwrap(), [record(1)]);
    assert_eq!(store.get(OTHER, "a").unwrap().unwrap().value.as_slice(), b"2");
    assert!(store.health().quarantined.is_empty());

    store.commit(&[other("a", Exactly(second), None), put(2, Any)]).unwrap();
    assert_eq!(store.get(OTHER, "a").unwrap(), None);
    let again = store.commit(&[other("a", Absent, Some("4"))]).unwrap();
    assert!(again > second, "a version is not used again after a removal");
    assert_eq!(conflicts(store.commit(&[other("a", Exactly(second), None)]).unwrap_err()).len(), 1);
}

#[test]
fn visit_reads_a_range_in_either_order_until_it_breaks() {
    let store = State::new().open().unwrap();
    let visited = |keys: Range<&str>, order, limit: usize| {
        let mut seen = Vec::new();
        let visited = store.visit(OTHER, keys, order, &mut |key, record| {
            seen.push(format!("{key}{}", str::from_utf8(&record.value).unwrap()));
            if seen.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited.unwrap();
        seen
    };
    assert_eq!(visited("a".."z", Order::Ascending, 9), [""; 0], "there is no such table");
    let all: Vec<_> =
        ["a", "b", "c", "d"].map(|key| other(key, ExpectedVersion::Absent, Some("1"))).into();
    store.commit(&all).unwrap();
    assert_eq!(store.keys(OTHER).unwrap(), ["a", "b", "c", "d"]);
    assert_eq!(visited("b".."d", Order::Ascending, 9), ["b1", "c1"]);
    assert_eq!(visited("b".."d", Order::Descending, 9), ["c1", "b1"]);
    assert_eq!(visited("b".."~", Order::Ascending, 2), ["b1", "c1"]);
    assert_eq!(visited("a".."~", Order::Descending, 1), ["d1"]);
    assert_eq!(visited("d".."b", Order::Ascending, 9), [""; 0]);

    store.put_raw(definition(OTHER), "c", b"edited").unwrap();
    assert_eq!(visited("a".."~", Order::Ascending, 9), ["a1", "b1", "d1"]);
    assert_eq!(store.quarantined(OTHER), ["c".to_owned()].into());
    assert_eq!(store.keys(OTHER).unwrap(), ["a", "b", "c", "d"]);
}

#[test]
fn values_of_changes_are_not_in_debug_output() {
    let change = other("a", ExpectedVersion::Any, Some("secret"));
    let text = format!("{change:?}");
    assert!(text.contains("bytes: Some(6)") && !text.contains("115"), "{text}");
}

#[test]
fn commit_rejects_records_that_occur_twice_or_are_too_large() {
    let store = State::new().open().unwrap();
    let any = ExpectedVersion::Any;
    let twice = [other("a", any, Some("1")), other("a", any, None)];
    let large = [other("a", any, Some(&"x".repeat(17_000_000)))];
    for bad in [&twice[..], &large[..]] {
        let error = store.commit(bad).unwrap_err();
        assert!(matches!(error, RecordError::Invalid { .. }), "{error:?}");
    }
    assert_eq!(store.list(OTHER).unwrap(), []);
}

#[test]
fn tables_and_versions_survive_a_restart() {
    let state = State::new();
    let put = [other("a", ExpectedVersion::Absent, Some("1"))];
    let version = state.open().unwrap().commit(&put).unwrap();
    let store = state.open().unwrap();
    let listed = store.list(OTHER).unwrap();
    let [(key, record)] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((key.as_str(), record.version, record.value.as_slice()), ("a", version, &b"1"[..]));
    assert!(store.commit(&[other("b", ExpectedVersion::Absent, Some("2"))]).unwrap() > version);
}

#[test]
fn watch_reports_current_state_then_last_change_of_each_record() {
    let store = State::new().open().unwrap();
    let any = ExpectedVersion::Any;
    let first = store.commit(&[other("a", any, Some("1")), other("b", any, Some("1"))]).unwrap();
    let mut watch = store.watch(OTHER).unwrap();
    let now = changes(&mut watch).unwrap().unwrap();
    let both = [("a".to_owned(), Some(first)), ("b".to_owned(), Some(first))];
    assert_eq!(now, TableChanges { is_complete: true, records: both.into() });
    assert!(changes(&mut watch).is_none());

    store.put_join_record(&record(1)).unwrap();
    assert!(changes(&mut watch).is_none(), "a change of another table");
    store.commit(&[other("a", any, Some("2"))]).unwrap();
    let last = store.commit(&[other("a", any, Some("3")), other("b", any, None)]).unwrap();
    let conflict = store.commit(&[other("a", ExpectedVersion::Absent, Some("4"))]);
    assert!(conflict.is_err());
    let changed = [("a".to_owned(), Some(last)), ("b".to_owned(), None)];
    let expected = TableChanges { is_complete: false, records: changed.into() };
    assert_eq!(changes(&mut watch).unwrap().unwrap(), expected);
    assert!(changes(&mut watch).is_none());
    drop(store);
    let ended = changes(&mut watch).unwrap().unwrap_err();
    assert!(matches!(ended, RecordError::Unavailable(_)), "{ended:?}");
}

#[test]
fn full_disk_makes_records_unavailable_until_recovery() {
    let store = State::new().open().unwrap();
    let before = store.put_join_record(&record(1)).unwrap();
    let mut watch = store.watch(JoinRecord::TABLE).unwrap();
    changes(&mut watch).unwrap().unwrap();
    store.engine.file().faults.set_full(true);
    for error in [
        store.put_join_records(&[record(2), record(3)]).unwrap_err(),
        store.get(JoinRecord::TABLE, "1").unwrap_err(),
        store.list(JoinRecord::TABLE).unwrap_err(),
        store.watch(JoinRecord::TABLE).unwrap_err(),
    ] {
        assert!(matches!(error, RecordError::Unavailable(_)), "{error:?}");
    }
    store.engine.file().faults.set_full(false);
    store.recover().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(1)]);
    assert!(changes(&mut watch).is_none(), "a failed commit is not reported");
    let after = store.put_join_record(&record(2)).unwrap();
    assert!(after > RecordVersion(before.0 + 1), "the failed commit may have used a revision");
    assert!(changes(&mut watch).is_some());
}

/// The stored JSON of a join record.
fn stored(store: &crate::Store, id: u128) -> Value {
    let record = store.get(JoinRecord::TABLE, &record(id).id.to_string()).unwrap().unwrap();
    serde_json::from_slice(&record.value).unwrap()
}

#[test]
fn record_of_a_newer_version_keeps_its_fields_and_schema() {
    let store = State::new().open().unwrap();
    store.put_join_record(&record(1)).unwrap();
    let own = stored(&store, 1);
    assert_eq!(own["schema"], JoinRecord::SCHEMA);

    let mut newer = own;
    newer["schema"] = json!(7);
    newer["engine"] = json!({ "name": "grpc", "options": [1, 2] });
    let (table_name, key) = (JoinRecord::TABLE, record(1).id.to_string());
    let value = Some(newer.to_string().into_bytes().into());
    let expected = ExpectedVersion::Any;
    store.commit(&[RecordChange { table: table_name, key: key.clone(), expected, value }]).unwrap();

    let read = table(&store).get(&key).unwrap().unwrap();
    assert_eq!(read.value.unknown.get("engine"), Some(&newer["engine"]));
    let changed = JoinRecord { claimed_at: None, ..read.value };
    let put = RecordChange::put(&changed, ExpectedVersion::Exactly(read.version)).unwrap();
    store.commit(&[put]).unwrap();
    newer["claimed_at"] = Value::Null;
    assert_eq!(stored(&store, 1), newer);
}

#[test]
fn record_with_too_many_unknown_bytes_is_quarantined() {
    let store = State::new().open().unwrap();
    let mut json = serde_json::to_value(record(1)).unwrap();
    for (bytes, is_read) in
        [(UnknownFields::MAX_BYTES / 2, true), (UnknownFields::MAX_BYTES, false)]
    {
        json["more"] = json!("x".repeat(bytes));
        let (table, key) = (JoinRecord::TABLE, record(1).id.to_string());
        let value = Some(json.to_string().into_bytes().into());
        let expected = ExpectedVersion::Any;
        store.commit(&[RecordChange { table, key, expected, value }]).unwrap();
        assert_eq!(store.join_records().unwrap().len(), usize::from(is_read));
    }
    assert_eq!(store.quarantined(JoinRecord::TABLE).len(), 1);
}
