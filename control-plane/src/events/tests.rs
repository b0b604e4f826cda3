//! The ring and the cursors of readers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ironmesh_api::FindingChange;
use ironmesh_catalog::{Actor, JournalEntry, JournalKind, ProxyId};
use ironmesh_store::{KeyEncryptionKey, Store};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::*;

fn state(folder: &TempDir) -> Arc<MeshState> {
    let (state, key) = (folder.path().join("state"), folder.path().join("kek"));
    let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&state)).unwrap();
    MeshState::new(Arc::new(Store::open(&state, kek).unwrap()))
}

fn append(state: &MeshState, count: usize) {
    let entry = JournalEntry::new(Timestamp::UNIX_EPOCH, JournalKind::Policy, Actor::ControlPlane);
    state.append_journal(&mut vec![entry; count]).unwrap();
}

/// The events of a control plane with a ring of this size.
fn start(state: &Arc<MeshState>, process: u32, size: usize) -> Events {
    let (ring, state) = (Arc::new(Ring::new(process, size, MAX_BYTES)), Arc::clone(state));
    let store_reads = Arc::new(Semaphore::new(MAX_STORE_READS));
    let events = Events { ring, state, store_reads };
    events.read_journal().unwrap();
    events
}

fn cursor(events: &Events, since: Option<&str>, follow: bool, with_journal: bool) -> Cursor {
    Cursor::new(
        Arc::clone(&events.ring),
        Arc::clone(&events.state),
        Arc::clone(&events.store_reads),
        since.map(|id| id.parse().unwrap()),
        follow,
        with_journal,
    )
}

/// An event as its reader gets it.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    id: Option<String>,
    kind: String,
    /// The number of an entry, or of an observed event of a test.
    number: Option<u64>,
}

fn parse(frames: &[Bytes]) -> Vec<Got> {
    let event = |frame: &Bytes| {
        let text = std::str::from_utf8(frame).unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        let data: serde_json::Value = serde_json::from_str(&field("data: ").unwrap()).unwrap();
        Got {
            id: field("id: "),
            kind: field("event: ").unwrap(),
            number: data["sequence"].as_u64().or_else(|| data["n"].as_u64()),
        }
    };
    frames.iter().map(event).collect()
}

/// All that a reader gets before it would wait.
async fn read(cursor: &mut Cursor) -> Vec<Got> {
    let mut all = Vec::new();
    // A wait that is dropped loses nothing. The paused clock goes on only while nothing runs, and reads of the store count.
    while let Ok(Some(frames)) = timeout(Duration::from_millis(200), cursor.take()).await {
        all.extend(parse(&frames));
    }
    all
}

fn observe(events: &Events, number: u64) {
    events.publish(EventKind::Findings, &json!({ "n": number }));
}

fn kinds(events: &[Got]) -> Vec<&str> {
    events.iter().map(|event| &*event.kind).collect()
}

fn numbers(events: &[Got]) -> Vec<u64> {
    let entries = events.iter().filter(|event| event.kind == "journal");
    entries.map(|event| event.number.unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn reader_gets_a_reset_and_then_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 3);
    let events = start(&state, 1, 100);
    let mut cursor = cursor(&events, None, true, true);
    assert_eq!(kinds(&read(&mut cursor).await), ["reset"]);
    observe(&events, 1);
    append(&state, 1);
    events.read_journal().unwrap();
    let got = read(&mut cursor).await;
    assert_eq!((kinds(&got), numbers(&got)), (vec!["findings", "journal"], vec![4]));
}

#[tokio::test(start_paused = true)]
async fn known_id_resumes_exactly_and_others_with_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 2);
    let events = start(&state, 1, 100);
    observe(&events, 1);
    append(&state, 1);
    events.read_journal().unwrap();
    let all = read(&mut cursor(&events, None, false, true)).await;
    assert_eq!(kinds(&all), ["journal", "journal", "findings", "journal"]);
    let second = all[1].id.as_deref().unwrap();
    let exact = read(&mut cursor(&events, Some(second), false, true)).await;
    assert_eq!(kinds(&exact), ["findings", "journal"]);
    // At another control plane, or after a restart.
    let restarted = start(&state, 2, 100);
    let resumed = read(&mut cursor(&restarted, Some(second), false, true)).await;
    assert_eq!((kinds(&resumed), numbers(&resumed)), (vec!["journal", "reset"], vec![3]));
    // An entry that was sent again does not promise the observed events before it.
    let again = resumed[0].id.as_deref().unwrap();
    assert_eq!(kinds(&read(&mut cursor(&restarted, Some(again), false, true)).await), ["reset"]);
    let reset = resumed[1].id.as_deref().unwrap();
    assert!(read(&mut cursor(&restarted, Some(reset), false, true)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn entries_that_left_the_ring_are_read_from_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 200);
    let events = start(&state, 1, 10);
    let got = read(&mut cursor(&events, Some("0"), false, true)).await;
    assert_eq!(numbers(&got), (1..=200).collect::<Vec<_>>());
    assert_eq!(got.last().unwrap().kind, "reset");
}

#[tokio::test(start_paused = true)]
async fn overtaken_reader_gets_lagged_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let events = start(&state(&folder), 1, 10);
    let mut cursor = cursor(&events, None, true, true);
    read(&mut cursor).await;
    (0..11).for_each(|number| observe(&events, number));
    let last = parse(&cursor.take().await.unwrap());
    assert_eq!((kinds(&last), last[0].id.as_ref()), (vec!["lagged"], None));
    assert!(cursor.take().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn reader_without_the_right_gets_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 20);
    let events = start(&state, 1, 10);
    observe(&events, 1);
    for (since, expected) in [
        (None, vec!["findings"]),
        (Some("0"), vec!["reset"]),
        (Some("5-00000002-9"), vec!["reset"]),
    ] {
        let got = read(&mut cursor(&events, since, false, false)).await;
        assert_eq!(kinds(&got), expected, "{since:?}");
    }
    let mut live = cursor(&events, None, true, false);
    read(&mut live).await;
    append(&state, 1);
    events.read_journal().unwrap();
    observe(&events, 2);
    assert_eq!(kinds(&read(&mut live).await), ["findings"]);
}

#[tokio::test(start_paused = true)]
async fn newer_id_waits_for_its_entry_and_a_foreign_one_is_reset() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 2);
    let events = start(&state, 1, 10);
    let start = Instant::now();
    let mut newer = cursor(&events, Some("4"), true, true);
    let taken = timeout(Duration::from_secs(1), newer.take()).await;
    assert!(taken.is_err(), "{taken:?}");
    append(&state, 3);
    events.read_journal().unwrap();
    let got = parse(&newer.take().await.unwrap());
    assert_eq!(numbers(&got), [5]);

    let mut foreign = cursor(&events, Some("900"), true, true);
    let got = foreign.take().await.unwrap();
    assert!(std::str::from_utf8(&got[0]).unwrap().contains("/v1/journal"), "{got:?}");
    assert!(start.elapsed() >= Duration::from_secs(10));
}

#[test]
fn ring_is_bounded_by_events_and_by_bytes() {
    let ring = Ring::new(1, 10, 1_000);
    for _ in 0..100 {
        ring.push_observed(EventKind::Findings, &"x".repeat(90));
    }
    let (begin, _) = ring.begin();
    let (end, _) = ring.end();
    assert!((5..10).contains(&(end - begin)), "{begin} to {end}");
    let ring = Ring::new(1, 10, 1_000);
    (0..100).for_each(|_| ring.push_observed(EventKind::Findings, &0));
    assert_eq!((ring.begin().0, ring.end().0), (91, 101));
}

/// A step of a random run with two control planes and one reader.
#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Observe,
    /// One control plane reads what was appended.
    Follow(bool),
    /// The reader takes so many batches.
    Take(usize),
    /// The reader is cut, and resumes at this control plane after its last event.
    Resume(bool),
    Restart(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..100_usize).prop_map(Step::Append),
        Just(Step::Observe),
        any::<bool>().prop_map(Step::Follow),
        (1..4_usize).prop_map(Step::Take),
        any::<bool>().prop_map(Step::Resume),
        any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_entry_is_received_once_over_cuts_and_restarts(steps in steps()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(random_run(steps));
    }
}

async fn random_run(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let state = state(&folder);
    append(&state, 5);
    let mut planes = [start(&state, 1, 40), start(&state, 2, 40)];
    let (mut process, mut appended) = (2, 5_u64);
    let mut reader = cursor(&planes[0], Some("0"), true, true);
    let (mut id, mut received) = ("0".to_owned(), Vec::new());
    let mut note = |events: Vec<Got>, id: &mut String| {
        received.extend(numbers(&events));
        if let Some(newest) = events.into_iter().filter_map(|event| event.id).next_back() {
            *id = newest;
        }
    };
    for step in steps {
        match step {
            Step::Append(count) => {
                append(&state, count);
                appended += count as u64;
            }
            Step::Observe => planes.iter().for_each(|events| observe(events, 0)),
            Step::Follow(second) => planes[usize::from(second)].read_journal().unwrap(),
            Step::Take(batches) => {
                for _ in 0..batches {
                    if let Ok(Some(frames)) = timeout(Duration::from_millis(5), reader.take()).await
                    {
                        note(parse(&frames), &mut id);
                    }
                }
            }
            Step::Resume(second) => {
                reader = cursor(&planes[usize::from(second)], Some(&id), true, true);
            }
            Step::Restart(second) => {
                process += 1;
                planes[usize::from(second)] = start(&state, process, 40);
                reader = cursor(&planes[usize::from(second)], Some(&id), true, true);
            }
        }
    }
    planes[0].read_journal().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    reader = cursor(&planes[0], Some(&id), true, true);
    while id.split('-').next().unwrap().parse::<u64>().unwrap() < appended {
        let frames = tokio::time::timeout_at(deadline, reader.take()).await.unwrap();
        match frames {
            Some(frames) => note(parse(&frames), &mut id),
            None => reader = cursor(&planes[0], Some(&id), true, true),
        }
    }
    let expected: Vec<_> = (1..=appended).collect();
    assert_eq!(received.iter().copied().collect::<BTreeSet<_>>().len(), received.len(), "twice");
    assert_eq!(received, expected);
}

#[tokio::test(start_paused = true)]
async fn changed_states_are_one_event_of_each_kind() {
    let folder = tempfile::tempdir().unwrap();
    let events = start(&state(&folder), 1, 100);
    let [first, second] = [1, 2].map(|number| ProxyId(Uuid::from_u128(number)));
    let finding = FindingChange {
        code: "IM0726".to_owned(),
        severity: "warning".to_owned(),
        objects: Vec::new(),
        silenced: false,
    };
    let before =
        Observed { updating: Arc::new(BTreeSet::from([first, second])), ..Observed::default() };
    let after = Observed {
        ready: true,
        disconnected: Arc::new(BTreeSet::from([second])),
        findings: Arc::new(BTreeMap::from([("a".to_owned(), finding)])),
        ..Observed::default()
    };
    after.publish_changes(&before, &events);
    after.publish_changes(&after.clone(), &events);
    let mut cursor = cursor(&events, None, false, true);
    let frames = cursor.take().await.unwrap();
    assert_eq!(kinds(&parse(&frames)), ["readiness", "proxies", "findings"]);
    let text = String::from_utf8(frames.concat()).unwrap();
    // The proxy that is gone has not ACKed anything.
    let synced = format!("\"synced\":{{\"count\":1,\"ids\":[\"{first}\"]}}");
    let disconnected = format!("\"disconnected\":{{\"count\":1,\"ids\":[\"{second}\"]}}");
    assert!(text.contains(&synced) && text.contains(&disconnected), "{text}");
}
