//! Sessions with a real etcd: transactions, listings, and watches of a prefix.

use ironmesh_etcd::{Cluster, Condition, EtcdOptions, Session, WatchNews, Write};
use ironmesh_tests::Etcd;

/// Options for an etcd without access control.
pub(crate) fn options(endpoint: String, prefix: &str) -> EtcdOptions {
    let (ca, identity, user) = (None, None, None);
    let (section, prefix) = ("[store.etcd]", prefix.to_owned());
    EtcdOptions { section, endpoints: vec![endpoint], prefix, ca, identity, user }
}

async fn session(etcd: &Etcd) -> Session {
    let cluster = Cluster::open(options(etcd.endpoint(0), "/mesh")).unwrap();
    cluster.session().await.unwrap()
}

fn put(key: &str, value: &[u8]) -> Write {
    Write::Put { key: key.to_owned(), value: value.to_vec(), lease: None }
}

fn modified(key: &str, revision: i64) -> Vec<Condition> {
    vec![Condition::Modified { key: key.to_owned(), revision }]
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_larger_than_a_grpc_message_is_at_one_revision() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut session = session(&etcd).await;
    let large = vec![b'x'; 1_000_000];
    for key in ["/mesh/a", "/mesh/b", "/mesh/c", "/mesh/d", "/mesh/e", "/mesh/f"] {
        let done = session.transact(modified(key, 0), vec![put(key, &large)]).await.unwrap();
        assert!(done.succeeded);
    }
    session.transact(Vec::new(), vec![put("/mesh0", b"beside")]).await.unwrap();
    let (listed, revision) = session.list_in_pages("/mesh/", 2).await.unwrap();
    let keys: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["/mesh/a", "/mesh/b", "/mesh/c", "/mesh/d", "/mesh/e", "/mesh/f"]);
    assert!(listed.iter().all(|entry| entry.value == large));
    let (newest_first, _) = session.list("/mesh/").await.unwrap();
    assert_eq!(newest_first.first().unwrap().key, "/mesh/f");
    assert_eq!(newest_first.len(), 6);

    let page = session.page("/mesh/", "/mesh0", 2, Some(revision)).await.unwrap();
    assert!(page.has_more && page.entries.len() == 2);
    session.transact(Vec::new(), vec![Write::Delete { key: "/mesh/c".to_owned() }]).await.unwrap();
    let page = session.page("/mesh/c", "/mesh0", 1, Some(revision)).await.unwrap();
    assert_eq!(page.entries.first().unwrap().key, "/mesh/c", "it was there at that revision");
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_with_an_outdated_condition_writes_nothing() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut session = session(&etcd).await;
    let first = session.transact(modified("/a", 0), vec![put("/a", b"1")]).await.unwrap();
    let writes = || vec![put("/a", b"2"), put("/b", b"2")];
    let failed = session.transact(modified("/a", 0), writes()).await.unwrap();
    assert!(first.succeeded && !failed.succeeded);
    assert_eq!(session.get("/b", None).await.unwrap().0, None);
    let value =
        |value: &[u8]| vec![Condition::Value { key: "/a".to_owned(), value: value.to_vec() }];
    assert!(!session.transact(value(b"2"), writes()).await.unwrap().succeeded);
    assert!(session.transact(value(b"1"), writes()).await.unwrap().succeeded);
    assert_eq!(session.get_stale("/b").await.unwrap().unwrap().value, b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_returns_the_changes_of_one_transaction_together() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut session = session(&etcd).await;
    let first = session.transact(Vec::new(), vec![put("/mesh/a", b"1"), put("/mesh/b", b"1")]);
    let first = first.await.unwrap().revision;
    let writes = vec![put("/mesh/a", b"2"), Write::Delete { key: "/mesh/b".to_owned() }];
    let second = session.transact(Vec::new(), writes).await.unwrap().revision;
    session.transact(Vec::new(), vec![put("/other", b"1")]).await.unwrap();

    let mut watch = session.watch_prefix("/mesh/", first).await.unwrap();
    for (revision, expected) in [
        (first, [("/mesh/a", Some(b"1")), ("/mesh/b", Some(b"1"))]),
        (second, [("/mesh/a", Some(b"2")), ("/mesh/b", None)]),
    ] {
        let WatchNews::Events(events) = watch.next().await else { panic!("no events") };
        let mut seen: Vec<_> = events
            .iter()
            .map(|event| (event.key.as_str(), event.value.as_deref(), event.modified))
            .collect();
        seen.sort_unstable();
        let expected = expected.map(|(key, value)| (key, value.map(|value| &value[..]), revision));
        assert_eq!(seen, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_of_a_compacted_revision_says_so() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut session = session(&etcd).await;
    let mut newest = 0;
    for value in [b"1", b"2", b"3"] {
        newest = session.transact(Vec::new(), vec![put("/mesh/a", value)]).await.unwrap().revision;
    }
    etcd.ctl(&["compact", &newest.to_string()]).await;
    let mut watch = session.watch_prefix("/mesh/", newest - 1).await.unwrap();
    assert_eq!(watch.next().await, WatchNews::Compacted);
}
