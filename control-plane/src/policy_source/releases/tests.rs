use ironmesh_catalog::text::chain;
use jiff::Timestamp;
use tempfile::TempDir;

use super::write::MOST_RELEASES;
use super::*;

fn documents(pairs: &[(&str, &str)]) -> Vec<Document> {
    pairs.iter().map(|(path, text)| Document::new(*path, *text)).collect()
}

fn record(documents: &[Document], at: i64) -> PolicyRecord {
    PolicyRecord {
        revision: revision_of(documents),
        at: Timestamp::from_second(at).unwrap(),
        commit: None,
        by: Some("anna".to_owned()),
        message: Some("why not".to_owned()),
    }
}

/// A state folder with one release.
fn released(text: &str) -> (TempDir, Releases, PolicyRecord) {
    let state = tempfile::tempdir().unwrap();
    let releases = Releases::of(state.path());
    let documents = documents(&[("a.toml", text)]);
    let record = record(&documents, 1);
    releases.publish(&record, &documents).unwrap();
    (state, releases, record)
}

/// The names in the folder of releases.
fn names(releases: &Releases) -> Vec<String> {
    let entries = fs::read_dir(&releases.folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn release_is_read_as_it_was_published() {
    let state = tempfile::tempdir().unwrap();
    let releases = Releases::of(state.path());
    assert!(matches!(releases.read_current(), Err(ReleaseError::Nothing)));
    let all = documents(&[("a.toml", "# a"), ("b/c/d.yaml", ""), ("b/e.toml", "# ü\n")]);
    let record = record(&all, 1);
    releases.publish(&record, &all).unwrap();
    let read = releases.read_current().unwrap();
    assert_eq!((&read.record, &read.documents), (&record, &all));
    assert!(read.findings.is_empty(), "{:?}", read.findings);
    assert_eq!(names(&releases), [CURRENT, &*record.revision.0]);
    // The same documents again, with another record.
    let again = PolicyRecord { message: None, ..record };
    releases.publish(&again, &all).unwrap();
    assert_eq!(releases.read_current().unwrap().record, again);
    assert_eq!(names(&releases), [CURRENT, &*again.revision.0]);
}

#[test]
fn failed_write_keeps_the_current_release_and_no_draft() {
    let (_state, releases, first) = released("# one");
    let before = names(&releases);
    // A document cannot be a folder too, so the second write fails.
    let clash = documents(&[("a.toml", "# two"), ("a.toml/b.toml", "# two")]);
    let error = releases.publish(&record(&clash, 2), &clash).unwrap_err();
    assert!(matches!(error, ReleaseError::Unwritable { .. }), "{error:?}");
    assert!(chain(&error).contains("a.toml"), "{}", chain(&error));
    assert_eq!(names(&releases), before);
    assert_eq!(releases.read_current().unwrap().record, first);
}

#[test]
fn file_in_place_of_the_folder_is_an_error_that_names_it() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join(FOLDER), "").unwrap();
    let releases = Releases::of(state.path());
    let all = documents(&[("a.toml", "# a")]);
    let error = chain(&releases.publish(&record(&all, 1), &all).unwrap_err());
    assert!(
        error.starts_with("cannot write the release") && error.contains("/releases"),
        "{error}"
    );
}

#[test]
fn release_that_cannot_become_current_is_reported() {
    let (_state, releases, _) = released("# one");
    fs::remove_file(releases.current_path()).unwrap();
    fs::create_dir(releases.current_path()).unwrap();
    let all = documents(&[("a.toml", "# two")]);
    let error = releases.publish(&record(&all, 2), &all).unwrap_err();
    assert!(matches!(error, ReleaseError::Unwritable { .. }), "{error:?}");
    assert!(matches!(releases.read_current(), Err(ReleaseError::Unreadable { .. })));
}

#[test]
fn paths_outside_of_the_release_are_rejected() {
    for path in [
        "../a.toml",
        "/etc/a.toml",
        "a/../../b.toml",
        "./a.toml",
        ".a.toml",
        "b/.c/a.toml",
        "",
        "a//b.toml",
        "b/",
        "a.toml/.",
    ] {
        let error = Releases::check_paths(&documents(&[(path, "")])).unwrap_err();
        assert!(matches!(error, ReleaseError::Rejected(_)), "{path}: {error:?}");
    }
    let twice = documents(&[("a.toml", ""), ("a.toml", "# b")]);
    assert!(Releases::check_paths(&twice).is_err());
    // What the reader of folders does not read is no part of a release.
    let (_state, releases, first) = released("# one");
    for path in ["a.json", "a//b.toml", "b/"] {
        let all = documents(&[("a.toml", "# two"), (path, "# three")]);
        assert!(releases.publish(&record(&all, 2), &all).is_err(), "{path}");
    }
    let blank = documents(&[("a.toml", " ")]);
    let error = releases.publish(&record(&blank, 2), &blank).unwrap_err().to_string();
    assert!(error.contains("IM0115"), "{error}");
    assert_eq!(releases.records().unwrap(), [first]);
}

#[test]
fn damaged_releases_are_reported_with_advice() {
    let (_state, releases, record) = released("# one");
    let error = || chain(&releases.read_current().unwrap_err());
    let path = releases.path_of(&record.revision);
    fs::write(path.join("a.toml"), "# on").unwrap();
    assert!(error().contains("its files are not those that were applied"), "{}", error());
    fs::write(path.join(RECORD), "{").unwrap();
    assert!(error().contains("`.release.json` is illegible"), "{}", error());
    assert_eq!(releases.records().unwrap(), []);
    fs::remove_dir_all(&path).unwrap();
    assert!(error().contains("is not a release beside it"), "{}", error());
    let (_state, releases, record) = released("# one");
    fs::remove_file(releases.current_path()).unwrap();
    let error = chain(&releases.read_current().unwrap_err());
    assert!(error.contains("is missing: `ironmesh policy rollback REV`"), "{error}");
    for target in ["/etc", "..", ".new", "current"] {
        fs::os::unix::fs::symlink(target, releases.current_path()).unwrap();
        assert!(matches!(releases.read_current(), Err(ReleaseError::Dangling { .. })), "{target}");
        fs::remove_file(releases.current_path()).unwrap();
    }
    releases.select(&record.revision).unwrap();
    assert_eq!(releases.read_current().unwrap().record, record);
}

#[test]
fn oldest_releases_are_removed_but_never_the_current_one() {
    let (_state, releases, oldest) = released("# 0");
    let number = i64::try_from(MOST_RELEASES).unwrap() + 3;
    for at in 2..number {
        let text = format!("# {at}");
        let all = documents(&[("a.toml", &*text)]);
        releases.publish(&record(&all, at), &all).unwrap();
    }
    releases.select(&oldest.revision).unwrap();
    releases.prune(None);
    let records = releases.records().unwrap();
    assert_eq!(records.len(), MOST_RELEASES + 1);
    assert_eq!(records.last(), Some(&oldest));
    assert_eq!(releases.read_current().unwrap().record, oldest);
    assert_eq!(names(&releases).len(), MOST_RELEASES + 2, "no leftovers");
}

#[test]
fn predecessor_is_kept_although_the_clock_was_set_back() {
    // The first release and the next one are older by their times than all others.
    let (_state, releases, predecessor) = released("# 0");
    let number = i64::try_from(MOST_RELEASES).unwrap() + 3;
    for at in 2..number {
        let text = format!("# {at}");
        let all = documents(&[("a.toml", &*text)]);
        releases.publish(&record(&all, at), &all).unwrap();
    }
    let all = documents(&[("a.toml", "# 1")]);
    let newest = record(&all, 0);
    releases.publish(&newest, &all).unwrap();
    releases.prune(Some(&predecessor.revision));
    let records = releases.records().unwrap();
    assert_eq!(records.len(), MOST_RELEASES + 2);
    assert_eq!(records[MOST_RELEASES..], [predecessor, newest]);
}

#[test]
fn link_that_is_not_durable_is_undone() {
    let (_state, releases, first) = released("# one");
    let all = documents(&[("a.toml", "# two")]);
    let second = record(&all, 2);
    releases.publish(&second, &all).unwrap();
    let failing = |_: &Path| Err(std::io::Error::from(ErrorKind::StorageFull));
    let error = releases.select_with(&first.revision, failing).unwrap_err();
    assert!(matches!(error, ReleaseError::Unwritable { .. }), "{error:?}");
    assert_eq!(releases.current().unwrap(), Some(second.revision));
    fs::remove_file(releases.current_path()).unwrap();
    assert!(releases.select_with(&first.revision, failing).is_err());
    assert_eq!(releases.current().unwrap(), None, "there was no link");
}

#[test]
fn release_is_replaced_on_a_file_system_without_exchange_too() {
    let (_state, releases, first) = released("# one");
    let (path, draft) = (releases.path_of(&first.revision), releases.folder.join(".new"));
    fs::create_dir(&draft).unwrap();
    fs::write(draft.join("a.toml"), "# new").unwrap();
    releases.place_in_two_steps(&draft, &path).unwrap();
    assert_eq!(fs::read_to_string(path.join("a.toml")).unwrap(), "# new");
    assert!(releases.place_in_two_steps(&draft, &path).is_err(), "there is no draft");
    assert_eq!(fs::read_to_string(path.join("a.toml")).unwrap(), "# new");
}
