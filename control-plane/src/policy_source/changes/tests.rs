use ironmesh_catalog::JournalQuery;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use ironmesh_store::MeshState;

use super::super::tests::store;
use super::*;

/// Changes that are recorded in a journal of their own.
struct Recorded {
    changes: Changes,
    journal: Journal,
    _root: TempDir,
}

impl Recorded {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::new(MeshState::new(store(root.path())));
        // After its end, entries are written when they are recorded.
        let ended = CancellationToken::new();
        ended.cancel();
        journal.clone().run(ended).await.unwrap();
        let changes = Changes { journal: Some(journal.clone()), ..Changes::default() };
        Self { changes, journal, _root: root }
    }

    /// The recorded revisions, commits and authors.
    fn lines(&self) -> Vec<String> {
        let page = self.journal.page(&JournalQuery::default()).unwrap();
        let line = |entry: JournalEntry| {
            let JournalSubject { revision, commit, .. } = entry.subject;
            let Actor::Author { name } = entry.who else { panic!("{:?}", entry.who) };
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            format!("{} {} {}", revision.unwrap(), or_none(commit), or_none(name))
        };
        page.entries.into_iter().map(line).collect()
    }
}

fn change(revision: &str) -> JournalEntry {
    let subject = JournalSubject {
        revision: Some(PolicyRevision(revision.into())),
        ..JournalSubject::default()
    };
    let who = Actor::Author { name: None };
    JournalEntry { subject, ..JournalEntry::new(Timestamp::UNIX_EPOCH, JournalKind::Policy, who) }
}

/// What a search found; `-dirty` documents have no author.
fn found(revision: &str, commit: Result<Option<&str>, &str>) -> FoundCommit {
    let clean = matches!(commit, Ok(Some(commit)) if !is_dirty(commit));
    FoundCommit {
        revision: PolicyRevision(revision.into()),
        commit: commit.map(|commit| commit.map(str::to_owned)).map_err(str::to_owned),
        author: clean.then(|| "anna".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_waits_for_its_commit_and_is_recorded_once() {
    let mut recorded = Recorded::new().await;
    recorded.changes.add(change("1"), true);
    assert!(recorded.lines().is_empty());
    for _ in 0..2 {
        recorded.changes.complete(&found("1", Ok(Some("c1"))));
        assert_eq!(recorded.lines(), ["1 c1 anna"]);
    }
    // Sources without commits do not wait.
    recorded.changes.add(change("2"), false);
    assert_eq!(recorded.lines()[1..], ["2 - -"]);
    // A failed search, and a folder without a checkout.
    recorded.changes.add(change("3"), true);
    recorded.changes.complete(&found("3", Err("git fails")));
    recorded.changes.add(change("4"), true);
    recorded.changes.complete(&found("4", Ok(None)));
    assert_eq!(recorded.lines()[2..], ["3 - -", "4 - -"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_commit_of_the_same_documents_is_a_second_entry() {
    let mut recorded = Recorded::new().await;
    recorded.changes.add(change("1"), true);
    for commit in ["c1+dirty", "c1+dirty", "c2", "c3"] {
        recorded.changes.complete(&found("1", Ok(Some(commit))));
    }
    assert_eq!(recorded.lines(), ["1 c1+dirty -", "1 c2 anna"]);
    // After a different change, a commit of the first documents is none of it.
    recorded.changes.add(change("2"), true);
    recorded.changes.complete(&found("2", Ok(Some("c3+dirty"))));
    recorded.changes.add(change("3"), true);
    recorded.changes.complete(&found("2", Ok(Some("c4"))));
    assert_eq!(recorded.lines()[2..], ["2 c3+dirty -", "3 - -"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_whose_search_was_replaced_is_recorded_without_a_commit() {
    let mut recorded = Recorded::new().await;
    recorded.changes.add(change("1"), true);
    recorded.changes.complete(&found("2", Ok(Some("c2"))));
    assert_eq!(recorded.lines(), ["1 - -"]);
    // The next change, and the end of the control plane, do the same.
    recorded.changes.add(change("3"), true);
    recorded.changes.add(change("4"), true);
    recorded.changes.flush();
    assert_eq!(recorded.lines()[1..], ["3 - -", "4 - -"]);
}
