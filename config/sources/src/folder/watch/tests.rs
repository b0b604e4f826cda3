use std::os::unix::fs::symlink;
use std::path::Path;

use fs_err as fs;
use ironmesh_catalog::PolicyRevision;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::folder::layout::{Identity, Layout};
use crate::folder::load_folder;

fn identity(path: &Path) -> Option<Identity> {
    Layout::of(path).identity
}

/// Two folders, `one` and `two`, with a document each.
fn two_folders() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir_all(root.path().join(name).join("policy")).unwrap();
        fs::write(root.path().join(name).join("policy/a.toml"), format!("# {name}")).unwrap();
    }
    root
}

/// Puts a link to `target` in the place of `link`, in one step.
fn swap_link(link: &Path, target: &str) {
    let new = link.with_file_name("new-link");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn changed_target_of_an_ancestor_link_is_a_swap() {
    let root = two_folders();
    let current = root.path().join("current");
    symlink("one", &current).unwrap();
    let path = current.join("policy");
    let before = identity(&path);
    swap_link(&current, "two");
    let after = identity(&path);
    assert_eq!(decide(true, before.as_ref(), after.as_ref()), Decision::Now);
    // A swap in two steps, without a rename, has the same effect.
    assert_eq!(decide(false, before.as_ref(), after.as_ref()), Decision::Now);
    assert_eq!(decide(false, None, after.as_ref()), Decision::Now);
}

#[test]
fn folder_renamed_into_place_is_a_swap_and_created_one_is_not() {
    let root = two_folders();
    let path = root.path().join("one");
    let before = identity(&path);
    fs::rename(&path, root.path().join("old")).unwrap();
    assert_eq!(decide(true, before.as_ref(), identity(&path).as_ref()), Decision::Settle);
    fs::rename(root.path().join("two"), &path).unwrap();
    let after = identity(&path);
    for before in [before.as_ref(), None] {
        assert_eq!(decide(true, before, after.as_ref()), Decision::Now);
        assert_eq!(decide(false, before, after.as_ref()), Decision::Settle);
    }
}

#[test]
fn changed_target_of_an_inner_link_is_a_swap() {
    let root = two_folders();
    symlink("one", root.path().join("..data")).unwrap();
    symlink("..data/policy/a.toml", root.path().join("a.toml")).unwrap();
    let before = identity(root.path());
    swap_link(&root.path().join("..data"), "two");
    assert_eq!(decide(true, before.as_ref(), identity(root.path()).as_ref()), Decision::Now);
}

#[test]
fn edit_in_place_settles_even_with_a_rename() {
    let root = two_folders();
    let before = identity(root.path());
    fs::write(root.path().join("one/new"), "# new").unwrap();
    fs::rename(root.path().join("one/new"), root.path().join("one/policy/a.toml")).unwrap();
    assert_eq!(decide(true, before.as_ref(), identity(root.path()).as_ref()), Decision::Settle);
}

#[test]
fn nearest_ancestor_of_a_missing_folder_is_watched() {
    let root = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(root.path()).unwrap();
    let layout = Layout::of(&real.join("a/b/policy"));
    assert!(layout.identity.is_none());
    assert!(layout.watched.contains_key(&real));
    assert!(layout.concerns(&real.join("a")) && !layout.concerns(&real.join("x")));
}

/// Watches `path`, makes a change, and waits for the signal after which the folder reads as
/// expected. The deadline is below 30 s, the interval of the periodic read.
async fn notices(path: &Path, expected: &[(&str, &str)], change: impl FnOnce()) {
    let wanted: PolicyRevision = {
        let documents = expected
            .iter()
            .map(|(path, text)| ironmesh_config_language::Document::new(*path, *text));
        ironmesh_config_language::load_documents(documents).revision
    };
    let mut watch = watch_folder(path.to_owned()).unwrap();
    change();
    let noticed = async {
        loop {
            watch.changed().await;
            if load_folder(path).is_ok_and(|loaded| loaded.revision == wanted) {
                return;
            }
        }
    };
    let in_time = timeout(Duration::from_secs(20), noticed).await;
    assert!(
        in_time.is_ok(),
        "not noticed; now: {:?}",
        load_folder(path).map(|loaded| loaded.documents)
    );
}

#[tokio::test]
async fn edited_and_new_files_are_noticed() {
    let root = two_folders();
    let path = root.path().join("one/policy");
    notices(&path, &[("a.toml", "# edited")], || {
        fs::write(path.join("a.toml"), "# edited").unwrap();
    })
    .await;
    notices(&path, &[("a.toml", "# edited"), ("deep/er/b.toml", "# b")], || {
        fs::create_dir_all(path.join("deep/er")).unwrap();
        fs::write(path.join("deep/er/b.toml"), "# b").unwrap();
    })
    .await;
}

#[tokio::test]
async fn swapped_ancestor_link_and_later_edits_are_noticed() {
    let root = two_folders();
    let current = root.path().join("current");
    symlink("one", &current).unwrap();
    let path = current.join("policy");
    let mut watch = watch_folder(path.clone()).unwrap();
    let patience = Duration::from_secs(20);
    swap_link(&current, "two");
    timeout(patience, watch.changed()).await.unwrap();
    assert_eq!(&*load_folder(&path).unwrap().documents[0].text, "# two");
    notices(&path, &[("a.toml", "# edited")], || {
        fs::write(root.path().join("two/policy/a.toml"), "# edited").unwrap();
    })
    .await;
    // The first watch follows the link, too.
    timeout(patience, watch.changed()).await.unwrap();
}

#[tokio::test]
async fn replaced_folder_is_noticed() {
    let root = two_folders();
    let path = root.path().join("one/policy");
    notices(&path, &[("a.toml", "# two")], || {
        fs::rename(root.path().join("one"), root.path().join("old")).unwrap();
        fs::rename(root.path().join("two"), root.path().join("one")).unwrap();
    })
    .await;
}

#[tokio::test]
async fn missing_folder_is_noticed_once_created() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("etc/ironmesh/policy");
    notices(&path, &[("a.toml", "# a")], || {
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("a.toml"), "# a").unwrap();
    })
    .await;
}

#[tokio::test]
async fn edit_of_a_linked_file_is_noticed() {
    let root = two_folders();
    let path = root.path().join("one/policy");
    fs::create_dir(path.join(".files")).unwrap();
    fs::write(path.join(".files/b.toml"), "# two").unwrap();
    symlink(".files/b.toml", path.join("b.toml")).unwrap();
    notices(&path, &[("a.toml", "# one"), ("b.toml", "# edited")], || {
        fs::write(path.join(".files/b.toml"), "# edited").unwrap();
    })
    .await;
}

#[tokio::test]
async fn watch_task_ends_when_its_receiver_is_dropped() {
    let root = two_folders();
    let alarm = Arc::new(Alarm::default());
    let armed = Armed::new(root.path(), &alarm).unwrap();
    let (sender, signal) = watch::channel(0);
    drop(signal);
    let ended = timeout(Duration::from_secs(20), run(root.path().to_owned(), armed, alarm, sender));
    ended.await.unwrap();
}

#[tokio::test]
async fn read_access_is_not_a_change() {
    use notify::event::{AccessKind, AccessMode, EventKind};
    let root = two_folders();
    let real = fs::canonicalize(root.path()).unwrap();
    let (alarm, layout) = (Alarm::default(), Layout::of(&real));
    let is_raised_by = async |kind| {
        let event = notify::Event::new(kind).add_path(real.join("one/policy/a.toml"));
        alarm.event(Ok(event), &layout);
        timeout(Duration::ZERO, alarm.raised()).await.is_ok()
    };
    assert!(!is_raised_by(EventKind::Access(AccessKind::Open(AccessMode::Any))).await);
    assert!(!is_raised_by(EventKind::Access(AccessKind::Close(AccessMode::Read))).await);
    assert!(is_raised_by(EventKind::Access(AccessKind::Close(AccessMode::Write))).await);
}

#[test]
fn editor_lock_file_is_not_a_swap() {
    let root = two_folders();
    let before = identity(root.path());
    symlink("someone@host.1", root.path().join(".#a.toml")).unwrap();
    assert_eq!(decide(false, before.as_ref(), identity(root.path()).as_ref()), Decision::Settle);
}

#[test]
fn continuous_edits_are_debounced_up_to_a_maximum() {
    let first = Settling::after_event(None);
    assert_eq!(first.until - first.began, SETTLE);
    let began = Instant::now() - SETTLE_AT_MOST;
    let late = Settling::after_event(Some(Settling { began, until: began }));
    assert_eq!(late.until, began + SETTLE_AT_MOST);
}

/// `scp` over a slow line: half of the file exists, and its writer pauses.
#[tokio::test]
async fn partial_file_is_not_read_before_its_writer_closes_it() {
    use std::io::Write as _;
    let root = two_folders();
    let path = root.path().join("one/policy");
    let mut watch = watch_folder(path.clone()).unwrap();
    let mut writer = fs::File::create(path.join("a.toml")).unwrap();
    writer.write_all(b"# half").unwrap();
    // Complete edits settle long before this deadline.
    let early = timeout(SETTLE * 10, watch.changed()).await;
    assert!(early.is_err(), "the watch reported an incomplete file");
    writer.write_all(b" and half").unwrap();
    drop(writer);
    timeout(Duration::from_secs(20), watch.changed()).await.unwrap();
    assert_eq!(&*load_folder(&path).unwrap().documents[0].text, "# half and half");
}

#[test]
fn wait_for_a_writer_that_never_closes_is_bounded() {
    let began = Instant::now();
    let waiting = Settling { began, until: began }.for_writer().unwrap();
    assert!(waiting.until > began && waiting.began == began);
    let long_ago = Settling { began: began - WRITE_AT_MOST, until: began };
    assert!(long_ago.for_writer().is_none());
}
