use std::sync::Arc;

use fs_err as fs;
use ironmesh_catalog::PolicyRevision;
use ironmesh_config_language::{limits, revision_of};
use ironmesh_store::Store;
use tempfile::TempDir;

use super::super::source::Reading;
use super::super::tests::{HOLD, store};
use super::*;

/// A control plane's state, with releases.
struct Machine {
    root: TempDir,
    store: Arc<Store>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = store(root.path());
        Self { root, store }
    }

    fn releases(&self) -> Releases {
        Releases::of(self.root.path())
    }

    async fn start(&self) -> PolicySource {
        let source = Source::releases(self.releases());
        PolicySource::open(source, Arc::clone(&self.store), HOLD).await.unwrap().0
    }
}

fn request(text: &str) -> ApplyRequest {
    ApplyRequest {
        documents: vec![("a.toml".to_owned(), text.to_owned())],
        commit: Some("0123456789ab".to_owned()),
        by: Some("anna".to_owned()),
        message: Some("release".to_owned()),
    }
}

fn revision(text: &str) -> PolicyRevision {
    revision_of(&[Document::new("a.toml", text)])
}

fn rollback_to(text: &str) -> RollbackRequest {
    let (revision, by) = (revision(text).to_string(), Some("otto".to_owned()));
    RollbackRequest { revision, expect: None, by, message: None }
}

/// The active revision.
fn active(source: &PolicySource) -> Option<PolicyRevision> {
    source.state.borrow().specification.as_ref().map(|active| active.revision.clone())
}

fn unreadable(source: &PolicySource) -> String {
    source.state.borrow().view.unreadable.clone().unwrap_or_default()
}

#[tokio::test]
async fn applied_policy_is_active_stored_and_kept_over_a_restart() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    assert_eq!(active(&source), None);
    assert!(unreadable(&source).contains("`ironmesh policy apply DIR`"), "{}", unreadable(&source));
    let applied = source.apply(request("# one")).unwrap();
    assert!(!applied.is_old);
    let view = source.state.borrow().view.clone();
    assert_eq!(view.active_record.as_ref(), Some(&applied.policy));
    assert_eq!((view.stale_since, view.unreadable, view.rendered), (None, None, String::new()));
    let stored = machine.store.last_good_policy().unwrap();
    assert_eq!(stored, Some(vec![("a.toml".to_owned(), "# one".to_owned())]));
    let again = source.apply(request("# one")).unwrap();
    assert!(again.is_old);
    assert_eq!(again.policy, applied.policy);
    let source = machine.start().await;
    assert_eq!(active(&source), Some(revision("# one")));
    assert_eq!(source.state.borrow().view.active_record, Some(applied.policy));
}

/// Invariant 1.
#[tokio::test]
async fn rejected_apply_changes_nothing() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    source.apply(request("# one")).unwrap();
    let before = machine.releases().records().unwrap();
    let with = |path: &str| {
        let mut request = request("# two");
        request.documents.push((path.to_owned(), "# two".to_owned()));
        request
    };
    let long_name = format!("{}.toml", "a".repeat(300));
    for (request, expected) in [
        (request("[["), "IM0101"),
        (request(""), "IM0115"),
        (with("../a.toml"), "`../a.toml` is not the path of a document"),
        (with("a.toml/."), "`a.toml/.` is not the path of a document"),
        (with("a.toml/b.toml"), "`a.toml` is a document and a folder"),
        (with(&long_name), "is too long"),
    ] {
        let error = source.apply(request).unwrap_err();
        assert!(matches!(error, ApiError::BadRequest(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(active(&source), Some(revision("# one")));
        assert_eq!(machine.releases().records().unwrap(), before);
    }
    let source = machine.start().await;
    assert_eq!(active(&source), Some(revision("# one")));
    assert_eq!(unreadable(&source), "");
}

#[tokio::test]
async fn unwritable_releases_keep_the_active_policy() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    source.apply(request("# one")).unwrap();
    fs::remove_dir_all(machine.root.path().join("releases")).unwrap();
    fs::write(machine.root.path().join("releases"), "").unwrap();
    let error = source.apply(request("# two")).unwrap_err();
    assert!(matches!(error, ApiError::Internal(_)), "{error:?}");
    let (one, two) = (revision("# one"), revision("# two"));
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot write the release {two} to `")), "{text}");
    assert!(text.contains(&format!("revision {one} stays active: free disk space")), "{text}");
    assert_eq!(active(&source), Some(one.clone()));
    // The store has the last good policy.
    let source = machine.start().await;
    assert_eq!(active(&source), Some(one));
    assert!(unreadable(&source).contains("cannot be read"), "{}", unreadable(&source));
}

#[tokio::test]
async fn rollback_selects_a_release_and_survives_a_restart() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    source.apply(request("# one")).unwrap();
    source.apply(request("# two")).unwrap();
    let done = source.roll_back(&rollback_to("# one")).unwrap();
    assert!(!done.is_old && !done.is_folder && done.folder.is_none());
    let expected = format!("rollback to {}", revision("# one"));
    assert_eq!(done.policy.message.as_deref(), Some(&*expected));
    assert_eq!(done.policy.by.as_deref(), Some("otto"));
    assert_eq!(done.policy.commit.as_deref(), Some("0123456789ab"));
    assert_eq!(active(&source), Some(revision("# one")));
    assert!(source.roll_back(&rollback_to("# one")).unwrap().is_old);
    assert!(source.roll_back(&rollback_to("# three")).is_err());
    let source = machine.start().await;
    assert_eq!(active(&source), Some(revision("# one")));
    assert_eq!(source.state.borrow().view.active_record, Some(done.policy));
    assert_eq!(source.state.borrow().view.rolled_back, None, "there is no pin");
}

#[tokio::test]
async fn rollback_without_a_new_record_keeps_its_attribution() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    let applied = source.apply(request("# one")).unwrap();
    source.apply(request("# two")).unwrap();
    let done = source.roll_back(&rollback_to("# one")).unwrap();
    // As if the disk had not accepted the record.
    let releases = machine.releases();
    releases.put_record(&applied.policy).unwrap();
    let Release { record, documents, findings } = releases.read_current().unwrap();
    assert_ne!(record, done.policy);
    source.apply_reading(Ok(Reading { documents, findings, pushed: Some(record) }));
    assert_eq!(source.state.borrow().view.active_record, Some(done.policy));
}

#[tokio::test]
async fn too_large_policy_is_rejected_with_one_finding() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    let mut large = request("# one");
    large.documents =
        (0..=limits::DOCUMENTS).map(|n| (format!("{n}.toml"), String::new())).collect();
    let error = source.apply(large).unwrap_err().to_string();
    assert_eq!(error.matches("there are more than").count(), 1, "{error}");
}

#[tokio::test]
async fn rollback_changes_nothing_unless_the_expected_revision_is_active() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    source.apply(request("# one")).unwrap();
    source.apply(request("# two")).unwrap();
    let rollback =
        |expect: &str| RollbackRequest { expect: Some(expect.to_owned()), ..rollback_to("# one") };
    let (one, two) = (revision("# one").to_string(), revision("# two").to_string());
    let error = source.roll_back(&rollback(&one)).unwrap_err();
    assert!(matches!(error, ApiError::BadRequest(_)), "{error:?}");
    let expected = format!("not rolled back: `{one}` is not active, but the revision {two} since ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(error.to_string().ends_with(", by anna (\"release\")"), "{error}");
    assert_eq!(active(&source), Some(revision("# two")));
    source.roll_back(&rollback(&two[..6])).unwrap();
    assert_eq!(active(&source), Some(revision("# one")));
}

/// Invariant 1.
#[tokio::test]
async fn start_with_a_damaged_release_uses_the_last_good_policy() {
    let machine = Machine::new();
    let mut source = machine.start().await;
    source.apply(request("# one")).unwrap();
    source.apply(request("# two")).unwrap();
    let current = machine.releases().current_path();
    let damages: [(&str, &dyn Fn()); 3] = [
        ("are not those that were applied", &|| fs::write(current.join("a.toml"), "# t").unwrap()),
        ("is not a release beside it", &|| {
            fs::remove_dir_all(fs::canonicalize(&current).unwrap()).unwrap();
        }),
        ("is missing", &|| fs::remove_file(&current).unwrap()),
    ];
    for (expected, damage) in damages {
        damage();
        let mut source = machine.start().await;
        assert_eq!(active(&source), Some(revision("# two")), "{expected}");
        assert!(unreadable(&source).contains(expected), "{}", unreadable(&source));
        assert!(source.state.borrow().view.stale_since.is_some());
        // The same documents repair it.
        assert!(!source.apply(request("# two")).unwrap().is_old);
        assert_eq!(unreadable(&source), "");
        assert_eq!(active(&machine.start().await), Some(revision("# two")));
    }
}

#[tokio::test]
async fn apply_to_another_source_names_that_source() {
    let machine = Machine::new();
    let folder = machine.root.path().join("policy");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.toml"), "# one").unwrap();
    let source = Source::folder(folder.clone());
    let opened = PolicySource::open(source, Arc::clone(&machine.store), HOLD).await;
    let error = opened.unwrap().0.apply(request("# two")).unwrap_err().to_string();
    assert!(error.contains(&format!("the folder `{}`", folder.display())), "{error}");
    assert!(error.contains("policy.source = \"releases\""), "{error}");
}
