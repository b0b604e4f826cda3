//! Which requests share a transaction, and which conflict.

use std::collections::VecDeque;

use ironmesh_store::{ExpectedVersion, RecordVersion};

use super::model::{BY, Mesh, change, values};
use crate::batch::{Batch, MAX_BYTES, MAX_CHANGES, Request, batch};

fn request(number: usize, changes: &[(&str, ExpectedVersion, &str)]) -> Request<usize> {
    let changes = changes.iter().map(|(key, expected, value)| {
        let mut change = change(key, Some(value));
        change.expected = *expected;
        change
    });
    Request { changes: changes.collect(), reply: number }
}

fn accepted(batch: &Batch<usize>) -> Vec<usize> {
    batch.accepted.iter().map(|request| request.reply).collect()
}

#[test]
fn waiting_requests_share_a_transaction() {
    use ExpectedVersion::{Absent, Any, Exactly};
    let mut mesh = Mesh::new("/ironmesh/default");
    let mut replica = mesh.replica();
    let mut queue: VecDeque<_> = [
        request(1, &[("a", Absent, "1"), ("b", Any, "1")]),
        request(2, &[("c", Exactly(RecordVersion(1)), "1")]),
        request(3, &[("d", Absent, "1")]),
        request(4, &[("b", Any, "2")]),
        request(5, &[("e", Absent, "1")]),
    ]
    .into();
    let first = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert_eq!(accepted(&first), [1, 3]);
    assert_eq!(first.conflicts.iter().map(|(one, _)| one.reply).collect::<Vec<_>>(), [2]);
    assert_eq!(first.conflicts[0].1[0].key, "c");
    assert!(replica.send(&mut mesh, first.commit.unwrap()));
    let second = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert_eq!((accepted(&second), queue.len()), (vec![4, 5], 0));
    assert!(replica.send(&mut mesh, second.commit.unwrap()));
    let expected = values(&[("a", "1"), ("b", "2"), ("d", "1"), ("e", "1")]);
    assert_eq!(replica.values(&mesh), expected);
    assert_eq!(mesh.replica().values(&mesh), expected);
    assert_eq!(replica.mirror.head().revision, 2);
}

#[test]
fn transaction_is_bounded_by_changes_and_bytes() {
    let mesh = Mesh::new("/ironmesh/default");
    let replica = mesh.replica();
    let any = ExpectedVersion::Any;
    let many = |number: usize, count: usize| {
        let keys: Vec<_> = (0..count).map(|key| format!("{number}-{key}")).collect();
        let changes: Vec<_> = keys.iter().map(|key| (key.as_str(), any, "1")).collect();
        request(number, &changes)
    };
    let mut queue: VecDeque<_> = [many(1, MAX_CHANGES - 1), many(2, 1), many(3, 1)].into();
    let full = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert_eq!(accepted(&full), [1, 2]);
    assert!(full.commit.unwrap().writes.len() <= 128);
    let large = "x".repeat(MAX_BYTES / 2);
    let mut queue: VecDeque<_> =
        [request(1, &[("a", any, &large)]), request(2, &[("b", any, &large)])].into();
    let full = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert_eq!((accepted(&full), queue.len()), (vec![1], 1));
}

#[test]
fn request_without_changes_waits_for_a_current_mirror_alone() {
    let mesh = Mesh::new("/ironmesh/default");
    let replica = mesh.replica();
    let any = ExpectedVersion::Any;
    let mut queue: VecDeque<_> = [request(1, &[]), request(2, &[("a", any, "1")])].into();
    let both = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert_eq!(accepted(&both), [2]);
    let waiting: Vec<_> = both.conflicts.iter().map(|(one, of)| (one.reply, of.len())).collect();
    assert_eq!(waiting, [(1, 0)]);
    let mut queue: VecDeque<_> = [request(1, &[])].into();
    let alone = batch(&replica.mirror, &mesh.cipher, &mut queue, BY).unwrap();
    assert!(alone.commit.is_none(), "it writes nothing");
}

#[test]
fn empty_batch_has_nothing_to_send() {
    let mesh = Mesh::new("/ironmesh/default");
    let mut none = VecDeque::<Request<usize>>::new();
    let batch = batch(&mesh.replica().mirror, &mesh.cipher, &mut none, BY).unwrap();
    assert!(batch.commit.is_none() && batch.accepted.is_empty());
}
