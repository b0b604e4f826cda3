//! The journal: numbers, bounds per kind, queries, and entries that were changed outside of the store.

use std::sync::Arc;

use ironmesh_catalog::{Actor, JournalEntry, JournalKind, JournalOutcome, JournalQuery};
use jiff::Timestamp;

use super::{JOURNAL, State, copy};
use crate::journal::{MAX_OLDER, MAX_REMOVED};
use crate::{RecordStore as _, Store, mesh_state};

fn entry(kind: JournalKind, second: i64) -> JournalEntry {
    JournalEntry::new(Timestamp::from_second(second).unwrap(), kind, Actor::ControlPlane)
}

fn append(store: &Arc<Store>, entries: &[(JournalKind, i64)]) {
    let mut entries: Vec<_> = entries.iter().map(|(kind, second)| entry(*kind, *second)).collect();
    super::mesh_state(store)
        .append_journal_within(
            &mut entries,
            |kind, _| if kind == JournalKind::Claim { 2 } else { 3 },
        )
        .unwrap();
}

/// Stores an entry as a newer version may write it.
fn put(store: &Store, key: &str, json: &str) {
    let value = json.as_bytes().to_vec().into();
    store.commit(&[mesh_state::put(crate::journal::JOURNAL, key, value)]).unwrap();
}

/// The numbers of the entries of a query.
fn numbers(store: &Arc<Store>, query: &JournalQuery) -> Vec<u64> {
    let (entries, _) = super::mesh_state(store).journal(query).unwrap();
    entries.iter().map(|entry| entry.sequence).collect()
}

fn all(store: &Arc<Store>) -> Vec<u64> {
    numbers(store, &JournalQuery::default())
}

#[test]
fn journal_is_bounded_per_kind() {
    use JournalKind::{Claim, Revoke};
    let store = State::new().open().unwrap();
    append(&store, &[(Revoke, 1), (Claim, 2), (Claim, 3)]);
    append(&store, &[(Claim, 4), (Claim, 5), (Revoke, 6)]);
    assert_eq!(all(&store), [1, 4, 5, 6]);
    append(&store, &[(Revoke, 7), (Revoke, 8)]);
    assert_eq!(all(&store), [4, 5, 6, 7, 8]);
}

#[test]
fn numbers_continue_after_a_restart() {
    use JournalKind::{Claim, Revoke};
    let state = State::new();
    let store = state.open().unwrap();
    append(&store, &[(Revoke, 1), (Claim, 2)]);
    drop(store);
    let store = state.open().unwrap();
    append(&store, &[(Claim, 3), (Claim, 4)]);
    assert_eq!(all(&store), [1, 3, 4]);
    assert_eq!(super::mesh_state(&store).journal(&JournalQuery::default()).unwrap().1, 4);
}

#[test]
fn query_selects_by_time_kind_and_number() {
    use JournalKind::{Claim, Revoke};
    let store = State::new().open().unwrap();
    append(&store, &[(Revoke, 10), (Claim, 20), (Revoke, 30), (Claim, 40), (Revoke, 50)]);
    let none = JournalQuery::default();
    let of_kind = JournalQuery { kind: Some(Revoke), ..none };
    assert_eq!(numbers(&store, &of_kind), [1, 3, 5]);
    let since = Some(Timestamp::from_second(30).unwrap());
    assert_eq!(numbers(&store, &JournalQuery { since, ..none }), [3, 4, 5]);
    let newest = JournalQuery { limit: Some(2), ..none };
    assert_eq!(numbers(&store, &newest), [4, 5]);
    let next = JournalQuery { after: Some(1), ..newest };
    assert_eq!(numbers(&store, &next), [2, 3]);
    assert_eq!(numbers(&store, &JournalQuery { after: Some(u64::MAX), ..none }), [0; 0]);
    let earlier = JournalQuery { before: Some(4), ..newest };
    assert_eq!(numbers(&store, &earlier), [2, 3]);
    assert_eq!(numbers(&store, &JournalQuery { after: Some(1), ..earlier }), [2, 3]);
    assert_eq!(numbers(&store, &JournalQuery { before: Some(0), ..none }), [0; 0]);
    assert_eq!(numbers(&store, &JournalQuery { after: Some(3), ..earlier }), [0; 0]);
}

#[test]
fn query_since_a_time_does_not_read_what_is_far_older() {
    let store = State::new().open().unwrap();
    let append = |count: usize, second: i64| {
        super::mesh_state(&store)
            .append_journal(&mut vec![entry(JournalKind::Revoke, second); count])
            .unwrap();
    };
    append(2, 10);
    // This one would be quarantined if it were read.
    let first = "00000000000000000001/revoke";
    copy(&store, (JOURNAL, "00000000000000000002/revoke"), (JOURNAL, first));
    append(MAX_OLDER, 10);
    append(1, 30);
    // The clock was set back for a while.
    append(MAX_OLDER, 5);
    append(1, 40);
    let older = u64::try_from(MAX_OLDER).unwrap();
    let last = 2 * older + 4;
    let since = Some(Timestamp::from_second(30).unwrap());
    let query = JournalQuery { since, ..JournalQuery::default() };
    assert_eq!(numbers(&store, &query), [last - 1 - older, last]);
    assert!(store.health().quarantined.is_empty());
    assert_eq!(all(&store).len(), 2 * MAX_OLDER + 3);
    assert_eq!(store.health().quarantined.len(), 1);
}

#[test]
fn rejected_entries_displace_no_done_ones() {
    let store = State::new().open().unwrap();
    let done = entry(JournalKind::Revoke, 1);
    let outcome = JournalOutcome::Rejected { reason: "unknown".to_owned() };
    let rejected = JournalEntry { outcome, ..done.clone() };
    let append = |entries: &[JournalEntry]| {
        let bound = |_, is_rejected| if is_rejected { 2 } else { 1 };
        super::mesh_state(&store).append_journal_within(&mut entries.to_vec(), bound).unwrap();
    };
    append(&[done, rejected.clone()]);
    append(&[rejected.clone(), rejected]);
    assert_eq!(all(&store), [1, 3, 4]);
    let query = JournalQuery { kind: Some(JournalKind::Revoke), ..JournalQuery::default() };
    assert_eq!(numbers(&store, &query), [1, 3, 4]);
}

#[test]
fn store_of_a_version_without_a_journal_opens_with_an_empty_one() {
    let state = State::new();
    state.open().unwrap().drop_table(JOURNAL);
    let store = state.open().unwrap();
    assert_eq!(
        super::mesh_state(&store).journal(&JournalQuery::default()).unwrap(),
        (Vec::new(), 0)
    );
    append(&store, &[(JournalKind::Revoke, 1)]);
    assert_eq!(all(&store), [1]);
}

#[test]
fn edited_or_moved_entry_is_quarantined_and_number_not_reused() {
    let store = State::new().open().unwrap();
    append(&store, &[(JournalKind::Revoke, 1), (JournalKind::Revoke, 2)]);
    let key = "00000000000000000002/revoke";
    copy(&store, (JOURNAL, "00000000000000000001/revoke"), (JOURNAL, key));
    assert_eq!(all(&store), [1]);
    let quarantined = store.health().quarantined;
    assert_eq!(
        (quarantined.len(), &*quarantined[0].table, &*quarantined[0].key),
        (1, "journal", key)
    );
    append(&store, &[(JournalKind::Revoke, 3)]);
    assert_eq!(all(&store), [1, 3]);
    // The finding ends when newer entries displace it.
    append(&store, &[(JournalKind::Revoke, 4), (JournalKind::Revoke, 5)]);
    assert_eq!(all(&store), [3, 4, 5]);
    assert!(store.health().quarantined.is_empty());
}

#[test]
fn entry_of_unknown_kind_is_omitted_and_number_not_reused() {
    let store = State::new().open().unwrap();
    put(&store, "00000000000000000001/rename", "{\"of a\": \"newer version\"}");
    append(&store, &[(JournalKind::Revoke, 2)]);
    assert_eq!(all(&store), [2]);
}

#[test]
fn entry_of_a_newer_version_is_omitted_without_a_finding() {
    let store = State::new().open().unwrap();
    let known = serde_json::to_string(&entry(JournalKind::Revoke, 1)).unwrap();
    for (number, from, to) in [(1, "control_plane", "automaton"), (2, "done", "postponed")] {
        let unknown = known.replace(from, to);
        assert_ne!(unknown, known);
        let key = format!("{number:020}/revoke");
        put(&store, &key, &unknown);
    }
    append(&store, &[(JournalKind::Revoke, 3)]);
    assert_eq!(all(&store), [3]);
    assert!(store.health().quarantined.is_empty());
}

#[test]
fn two_control_planes_never_use_one_number() {
    let store = State::new().open().unwrap();
    let control_planes = [super::mesh_state(&store), super::mesh_state(&store)];
    for second in 0..5 {
        for (state, kind) in control_planes.iter().zip([JournalKind::Claim, JournalKind::Revoke]) {
            let mut entries = vec![entry(kind, second); 2];
            state.append_journal(&mut entries).unwrap();
            assert_eq!(entries, []);
        }
    }
    assert_eq!(all(&store), (1..=20).collect::<Vec<_>>());
}

#[test]
fn many_entries_are_several_commits_within_the_bounds() {
    let store = State::new().open().unwrap();
    let state = super::mesh_state(&store);
    let many = |count: usize| vec![entry(JournalKind::Claim, 1); count];
    state.append_journal(&mut many(1_000)).unwrap();
    assert_eq!(all(&store), (1..=1_000).collect::<Vec<_>>());
    // A lower bound removes as many at once as a commit may have, and the rest with later ones.
    let bound = |_, _| 50;
    state.append_journal_within(&mut many(1), bound).unwrap();
    assert_eq!(all(&store).len(), 1_001 - MAX_REMOVED);
    state.append_journal_within(&mut many(1_500), bound).unwrap();
    assert_eq!(all(&store).len(), 50);
}
