//! The retained policies.

use ironmesh_catalog::{PolicyPin, PolicyRecord, PolicyRevision};
use jiff::Timestamp;

use super::State;
use crate::Store;
use crate::database::POLICY;
use crate::policies::MOST_POLICIES;

pub(super) fn record(revision: &str) -> PolicyRecord {
    PolicyRecord {
        revision: PolicyRevision(revision.into()),
        at: Timestamp::UNIX_EPOCH,
        commit: None,
        by: None,
        message: None,
    }
}

fn revisions(store: &Store) -> Vec<String> {
    store.policies().unwrap().iter().map(|record| record.revision.to_string()).collect()
}

fn text_of(store: &Store, revision: &str) -> Option<String> {
    let documents = store.policy(&PolicyRevision(revision.into())).unwrap()?;
    let parts: Vec<_> =
        documents.into_iter().map(|(path, text)| format!("{path}={text}")).collect();
    Some(parts.join(" "))
}

/// The number of stored texts.
fn texts(store: &Store) -> usize {
    store.all_within(POLICY, "text/").unwrap().len()
}

#[test]
fn stored_policy_writes_only_new_documents() {
    let store = State::new().open().unwrap();
    let kept = || store.last_good_policy().unwrap().unwrap();
    assert_eq!(
        store.put_policy(&record("none"), []).unwrap(),
        1,
        "only the policy record is written"
    );
    assert!(kept().is_empty());
    let documents: Vec<_> = (0..100).map(|n| (format!("{n:02}.toml"), format!("# {n}"))).collect();
    let all = || documents.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    assert_eq!(store.put_policy(&record("1"), all()).unwrap(), 101);
    assert_eq!(store.put_policy(&record("1"), all()).unwrap(), 0);
    let edited = all().map(|(path, text)| (path, if path == "07.toml" { "" } else { text }));
    assert_eq!(
        store.put_policy(&record("2"), edited.skip(2)).unwrap(),
        2,
        "the policy record and one text are written"
    );
    let mut expected: Vec<_> = documents.iter().skip(2).cloned().collect();
    expected[5].1 = String::new();
    assert_eq!(kept(), expected);
    assert_eq!(store.policy(&PolicyRevision("1".into())).unwrap(), Some(documents.clone()));
    // Other values in the table stay.
    store.put(POLICY, "of a newer version", b"7").unwrap();
    store.put_policy(&record("3"), []).unwrap();
    assert_eq!(store.get_value(POLICY, "of a newer version").unwrap().unwrap(), b"7");
}

#[test]
fn recent_policies_are_kept_once_each_newest_first() {
    let state = State::new();
    {
        let store = state.open().unwrap();
        for number in 0..MOST_POLICIES + 5 {
            let (revision, text) = (number.to_string(), format!("# {number}"));
            store.put_policy(&record(&revision), [("a.toml", text.as_str()), ("b", "")]).unwrap();
        }
        let commit = PolicyRecord { commit: Some("abc".into()), ..record("10") };
        store.put_policy(&commit, [("a.toml", "# 10"), ("b", "")]).unwrap();
    }
    let store = state.open().unwrap();
    let others = (5..MOST_POLICIES + 5).rev().filter(|number| *number != 10);
    let expected: Vec<_> = std::iter::once(10).chain(others).map(|n| n.to_string()).collect();
    assert_eq!(revisions(&store), expected);
    assert_eq!(store.policies().unwrap()[0].commit.as_deref(), Some("abc"));
    assert_eq!(text_of(&store, "7").as_deref(), Some("a.toml=# 7 b="));
    assert_eq!(text_of(&store, "4"), None);
    assert_eq!(texts(&store), MOST_POLICIES + 1, "texts of removed policies are removed");
}

#[test]
fn oversized_history_drops_oldest_but_never_the_newest() {
    let store = State::new().open().unwrap();
    let large = ["1", "2", "3", "4"].map(|letter| letter.repeat(100));
    let put = |revision: &str, text: &str| {
        let documents = [("a.toml", text), ("b.toml", "shared")];
        store.put_policy_within(&record(revision), documents, 250).unwrap();
    };
    for (text, kept) in large.iter().zip([&["1"][..], &["2", "1"], &["3", "2"], &["4", "3"]]) {
        put(&text[..1], text);
        assert_eq!(revisions(&store), kept);
    }
    put("5", &"5".repeat(1000));
    assert_eq!((revisions(&store), texts(&store)), (vec!["5".to_owned()], 2));
}

#[test]
fn policy_pin_survives_a_restart_until_removed() {
    let state = State::new();
    let pin = PolicyPin { record: record("1"), folder: Some(PolicyRevision("2".into())) };
    assert_eq!(state.open().unwrap().policy_pin().unwrap(), None);
    state.open().unwrap().put_policy_pin(Some(&pin)).unwrap();
    assert_eq!(state.open().unwrap().policy_pin().unwrap(), Some(pin));
    state.open().unwrap().put_policy_pin(None).unwrap();
    assert_eq!(state.open().unwrap().policy_pin().unwrap(), None);
}

#[test]
fn old_format_last_good_policy_is_read_until_replaced() {
    let policy = [("a.toml", "# a"), ("b.toml", "# b")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let one_value = State::new().open().unwrap();
    one_value.put_json(POLICY, "last_good", &policy).unwrap();
    let values = State::new().open().unwrap();
    values.put(POLICY, "document/", b"").unwrap();
    assert_eq!(values.last_good_policy().unwrap(), Some(vec![]));
    values.put(POLICY, "document/a.toml", b"# a").unwrap();
    values.put(POLICY, "document/b.toml", b"# b").unwrap();
    for store in [one_value, values] {
        assert_eq!(store.last_good_policy().unwrap().as_deref(), Some(&policy[..]));
        assert!(store.policies().unwrap().is_empty());
        store.put_policy(&record("1"), [("a.toml", "# 2")]).unwrap();
        assert_eq!(store.all(POLICY).unwrap().len(), 2, "one policy, one text, nothing else");
        let kept = store.last_good_policy().unwrap();
        assert_eq!(kept, Some(vec![("a.toml".to_owned(), "# 2".to_owned())]));
    }
}
