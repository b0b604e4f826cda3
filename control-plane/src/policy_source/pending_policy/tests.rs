//! Holds of large removals from the policy folder, and policy that is never held back.

use std::path::PathBuf;

use fs_err as fs;
use ironmesh_catalog::PolicyRevision;
use ironmesh_config_sources::{Folder, read_folder};
use ironmesh_store::Store;
use tempfile::TempDir;
use tokio::sync::watch;

use super::super::source::Reading;
use super::super::tests::{HOLD, store};
use super::super::{PolicyState, Source};
use super::*;

/// A machine with a store, and with a policy folder in which each service has its own file.
struct Machine {
    root: TempDir,
    store: Arc<Store>,
}

impl Machine {
    fn new(services: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("policy")).unwrap();
        let store = store(&root.path().join("state"));
        let machine = Self { root, store };
        (0..services).for_each(|number| machine.add(number));
        machine
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("policy")
    }

    fn file(&self, number: u32) -> PathBuf {
        self.folder().join(format!("{number}.toml"))
    }

    fn add(&self, number: u32) {
        fs::write(self.file(number), format!("[[service]]\nname = \"s{number}\"\n")).unwrap();
    }

    fn remove(&self, numbers: std::ops::Range<u32>) {
        numbers.for_each(|number| fs::remove_file(self.file(number)).unwrap());
    }

    async fn open(
        &self,
        hold: std::time::Duration,
    ) -> (PolicySource, watch::Receiver<PolicyState>) {
        let source = Source::folder(self.folder());
        let opened = PolicySource::open(source, Arc::clone(&self.store), hold).await;
        let (source, _, state) = opened.unwrap();
        (source, state)
    }

    fn read(&self, source: &mut PolicySource) {
        let Folder { documents, findings } = read_folder(&self.folder()).unwrap();
        source.apply_reading(Ok(Reading { documents, findings, pushed: None }));
    }
}

/// The number of active services; and of a held-back removal, the objects removed and all objects.
fn hold_state(state: &watch::Receiver<PolicyState>) -> (usize, Option<(usize, usize)>) {
    let state = state.borrow();
    let held = state.view.held.as_ref().map(|held| (held.removed, held.of));
    (state.specification.as_ref().map_or(0, |active| active.services.len()), held)
}

fn codes_of(state: &watch::Receiver<PolicyState>) -> Vec<String> {
    state.borrow().view.findings.iter().map(|finding| finding.code.clone()).collect()
}

#[tokio::test]
async fn large_removal_is_held_back_until_it_is_released() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    machine.remove(0..6);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (10, Some((6, 10))));
    assert_eq!(codes_of(&state), ["IM0118"]);
    assert!(state.borrow().view.stale_since.is_some());
    let due = source.held.as_ref().unwrap().due();
    // A change that removes nothing more does not extend the hold.
    machine.add(20);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (10, Some((6, 10))));
    assert_eq!(source.held.as_ref().unwrap().due(), due);
    // More files are removed: the hold starts anew, but never lasts beyond `latest`.
    machine.remove(6..8);
    machine.remove(20..21);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (10, Some((8, 10))));
    let held = source.held.as_mut().unwrap();
    assert!(held.due() > due);
    held.latest = due;
    machine.remove(8..9);
    machine.read(&mut source);
    assert_eq!(source.held.as_ref().unwrap().due(), due);
    machine.add(8);
    machine.read(&mut source);
    source.activate_after_hold();
    assert_eq!(hold_state(&state), (2, None));
    assert_eq!((codes_of(&state).len(), state.borrow().view.stale_since), (0, None));
}

#[tokio::test]
async fn restored_files_end_a_hold() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    machine.remove(0..6);
    machine.read(&mut source);
    (0..6).for_each(|number| machine.add(number));
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (10, None));
    assert_eq!((codes_of(&state).len(), state.borrow().view.stale_since), (0, None));
    source.activate_after_hold();
    assert_eq!(hold_state(&state), (10, None));
}

#[tokio::test]
async fn small_removals_and_renames_are_active_at_once() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    machine.remove(0..4);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (6, None));
    machine.remove(4..10);
    (10..16).for_each(|number| machine.add(number));
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (6, None));
    let (mut source, state) = Machine::new(4).open(HOLD).await;
    source.apply_reading(Ok(Reading::default()));
    assert_eq!(hold_state(&state), (0, None), "a policy of four objects is too small for a hold");
}

// `rsync --delete` removes one file after the other.
#[tokio::test]
async fn consecutive_removals_are_counted_together() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    for number in 0..4 {
        machine.remove(number..number + 1);
        machine.read(&mut source);
        assert_eq!(hold_state(&state), (9 - usize::try_from(number).unwrap(), None));
    }
    machine.remove(4..5);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (6, Some((5, 10))));
}

#[tokio::test]
async fn accepted_removal_is_active_at_once_and_names_its_operator() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    let request = |revision: Option<&str>| AcceptRemovalRequest {
        revision: revision.map(str::to_owned),
        by: Some("anna".to_owned()),
    };
    let refused = source.accept(&request(None)).unwrap_err().to_string();
    assert!(refused.contains("no removal from the policy folder is held back"), "{refused}");
    machine.remove(0..6);
    machine.read(&mut source);
    let refused = source.accept(&request(Some("another"))).unwrap_err().to_string();
    assert!(refused.contains("not `another`"), "{refused}");
    let revision = state.borrow().view.held.as_ref().unwrap().revision.clone();
    let accepted = source.accept(&request(Some(&revision[..4]))).unwrap();
    assert_eq!(accepted.removals.to_string(), "6 of 10 objects: 6 service");
    assert_eq!(accepted.policy.by.as_deref(), Some("anna"));
    assert_eq!(accepted.policy.revision, PolicyRevision(revision.into()));
    assert_eq!(hold_state(&state), (4, None));
    // The store keeps the accepted policy for restarts and rollbacks.
    assert_eq!(machine.store.policies().unwrap()[0], accepted.policy);
}

#[tokio::test]
async fn push_is_never_held_back() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(HOLD).await;
    let record = new_record(&PolicyRevision("pushed".into()));
    source.apply_reading(Ok(Reading { pushed: Some(record), ..Reading::default() }));
    assert_eq!(hold_state(&state), (0, None));
}

#[tokio::test]
async fn hold_of_zero_holds_nothing_back() {
    let machine = Machine::new(10);
    let (mut source, state) = machine.open(std::time::Duration::ZERO).await;
    machine.remove(0..9);
    machine.read(&mut source);
    assert_eq!(hold_state(&state), (1, None));
}

// Invariant 1: a start serves the last good policy, too.
#[tokio::test]
async fn start_with_an_emptied_folder_serves_the_last_good_policy() {
    let machine = Machine::new(10);
    let (mut source, _) = machine.open(HOLD).await;
    source.keeper.keep();
    drop(source);
    machine.remove(0..9);
    let (_, state) = machine.open(HOLD).await;
    assert_eq!(hold_state(&state), (10, Some((9, 10))));
    assert_eq!(codes_of(&state), ["IM0118"]);
    machine.remove(9..10);
    let (mut source, state) = machine.open(HOLD).await;
    assert_eq!(hold_state(&state), (10, None));
    assert_eq!(codes_of(&state), ["IM0115"]);
    source.activate_after_hold();
    assert_eq!(hold_state(&state), (10, None), "an empty folder never becomes active");
}

#[tokio::test]
async fn emptied_folder_never_replaces_the_active_policy() {
    let machine = Machine::new(2);
    let (mut source, state) = machine.open(HOLD).await;
    machine.remove(0..2);
    machine.read(&mut source);
    assert_eq!((hold_state(&state), codes_of(&state)), ((2, None), vec!["IM0115".to_owned()]));
    fs::write(machine.folder().join("none.toml"), "# Nothing is allowed.\n").unwrap();
    machine.read(&mut source);
    assert_eq!((hold_state(&state), codes_of(&state)), ((0, None), Vec::new()));
}

#[tokio::test]
async fn ignored_file_finding_appears_and_ends_with_the_file() {
    let machine = Machine::new(1);
    let (mut source, state) = machine.open(HOLD).await;
    let typo = machine.folder().join("shop.tml");
    fs::write(&typo, "").unwrap();
    machine.read(&mut source);
    assert_eq!(codes_of(&state), ["IM0116"]);
    fs::remove_file(typo).unwrap();
    machine.read(&mut source);
    assert!(codes_of(&state).is_empty());
}
