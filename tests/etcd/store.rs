//! The store in etcd, with a real etcd: commits, lost answers, outages, and writes by others.

use std::sync::Arc;

use fs_err as fs;
use ironmesh_catalog::{CertificateStore as _, Domain, TrustDomain};
use ironmesh_store::{
    ExpectedVersion, KeyEncryptionKey, MeshState, RecordChange, RecordError, RecordStore as _,
    RecordVersion, TableName,
};
use ironmesh_store_etcd::{EtcdStore, EtcdStoreError, EtcdStoreOptions, Initialized, init};
use ironmesh_tests::{Etcd, eventually};
use tempfile::TempDir;
use tokio::task::{block_in_place, spawn_blocking};

use crate::answers::{Answers, Mode};
use crate::sessions::options;

const TABLE: TableName = TableName("records_of_a_test");
pub(crate) const PREFIX: &str = "/ironmesh/default";
const HEAD: &str = "/ironmesh/default/state/head";

/// The key-encryption key of a mesh, in a file.
pub(crate) struct Key(TempDir);

impl Key {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap())
    }

    pub(crate) fn load(&self) -> KeyEncryptionKey {
        KeyEncryptionKey::load_or_create(&self.0.path().join("kek"), false).unwrap()
    }

    pub(crate) fn init(&self, etcd: &Etcd) -> Initialized {
        let options = options(etcd.endpoint(0), PREFIX);
        block_in_place(|| init(options, &self.load(), "default", "cp1")).unwrap()
    }

    fn try_open(&self, endpoint: String, mesh: &str) -> Result<Arc<EtcdStore>, EtcdStoreError> {
        self.open_with(EtcdStoreOptions { mesh: mesh.to_owned(), ..Self::options(endpoint) })
    }

    /// Options without a copy on the disk.
    pub(crate) fn options(endpoint: String) -> EtcdStoreOptions {
        EtcdStoreOptions {
            etcd: options(endpoint, PREFIX),
            mesh: "default".to_owned(),
            writer: "cp1".to_owned(),
            copy: None,
            accepts_older: false,
        }
    }

    /// Options with a copy on the disk.
    pub(crate) fn copying(&self, endpoint: String) -> EtcdStoreOptions {
        EtcdStoreOptions { copy: Some(self.0.path().to_owned()), ..Self::options(endpoint) }
    }

    pub(crate) fn open_with(
        &self,
        options: EtcdStoreOptions,
    ) -> Result<Arc<EtcdStore>, EtcdStoreError> {
        block_in_place(|| EtcdStore::open(options, self.load()))
    }

    pub(crate) fn open(&self, endpoint: String) -> Arc<EtcdStore> {
        self.try_open(endpoint, "default").unwrap()
    }
}

fn change(key: &str, expected: ExpectedVersion, value: Option<&str>) -> RecordChange {
    let value = value.map(|value| value.as_bytes().to_vec().into());
    RecordChange { table: TABLE, key: key.to_owned(), expected, value }
}

pub(crate) fn put(store: &EtcdStore, key: &str, value: &str) -> Result<RecordVersion, RecordError> {
    block_in_place(|| store.commit(&[change(key, ExpectedVersion::Any, Some(value))]))
}

pub(crate) fn value(store: &EtcdStore, key: &str) -> Option<String> {
    let record = store.get(TABLE, key).unwrap()?;
    Some(String::from_utf8(record.value.to_vec()).unwrap())
}

pub(crate) async fn wait_for(store: &EtcdStore, key: &str, expected: &str) {
    eventually(&format!("`{key}` to be `{expected}`"), async || match value(store, key) {
        Some(found) if found == expected => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_mesh_is_sealed_and_survives_a_restart() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    let error = key.try_open(etcd.endpoint(0), "default").unwrap_err();
    assert!(matches!(error, EtcdStoreError::NotInitialized(_)), "{error}");
    assert_eq!(key.init(&etcd), Initialized::Created);
    assert_eq!(key.init(&etcd), Initialized::Present);
    let (domain, secret) = (Domain::default(), "-----BEGIN PRIVATE KEY-----");
    let mesh = (domain.clone(), TrustDomain::new(domain));
    {
        let store = key.open(etcd.endpoint(0));
        let state = MeshState::new(Arc::<EtcdStore>::clone(&store));
        block_in_place(|| {
            state.put_mesh(&mesh.0, &mesh.1).unwrap();
            assert!(state.replace_authority(None, secret.as_bytes()).unwrap());
        });
        assert_eq!(state.mesh().unwrap().as_ref(), Some(&mesh), "a writer reads its own writes");
    }
    let state = MeshState::new(key.open(etcd.endpoint(0)));
    assert_eq!(state.mesh().unwrap(), Some(mesh));
    assert_eq!(state.authority().unwrap().unwrap(), secret.as_bytes());
    drop(state);

    let stored = etcd.ctl(&["get", "--prefix", "/", "--write-out=fields"]).await;
    assert!(stored.contains("authority/current"));
    assert!(!stored.contains("PRIVATE KEY") && !stored.contains("mesh.internal"));
    let error = key.try_open(etcd.endpoint(0), "other").unwrap_err();
    assert!(matches!(error, EtcdStoreError::OtherMesh { .. }), "{error}");
    let error = Key::new().try_open(etcd.endpoint(0), "default").unwrap_err();
    assert!(matches!(error, EtcdStoreError::OtherKey { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_catches_up_has_earlier_commits_of_others() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let (one, other) = (key.open(etcd.endpoint(0)), key.open(etcd.endpoint(0)));
    // Its watch alone is often later than this.
    for number in 0..200 {
        put(&one, "a", &number.to_string()).unwrap();
        block_in_place(|| other.catch_up()).unwrap();
        assert_eq!(value(&other, "a"), Some(number.to_string()));
    }
    etcd.kill(0).await;
    let error = block_in_place(|| other.catch_up()).unwrap_err();
    assert!(matches!(error, RecordError::Unavailable(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_two_stores_conflict_by_version_and_reach_both() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let (one, other) = (key.open(etcd.endpoint(0)), key.open(etcd.endpoint(0)));
    let mut watch = other.watch(TABLE).unwrap();
    assert!(watch.changed().await.unwrap().is_complete);
    let first = put(&one, "a", "1").unwrap();
    let changes = watch.changed().await.unwrap();
    assert_eq!(changes.records, [("a".to_owned(), Some(first))].into());
    // Each of both writes the same record a hundred times, always on the newest version.
    let race = |store: Arc<EtcdStore>| {
        spawn_blocking(move || {
            let mut done = 0;
            while done < 100 {
                let read = store.get(TABLE, "a").unwrap().unwrap();
                let count: u32 = str::from_utf8(&read.value).unwrap().parse().unwrap();
                let next = (count + 1).to_string();
                let expected = ExpectedVersion::Exactly(read.version);
                match store.commit(&[change("a", expected, Some(&next))]) {
                    Ok(_) => done += 1,
                    Err(RecordError::Conflict(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let (first, second) = (race(Arc::clone(&one)), race(Arc::clone(&other)));
    first.await.unwrap();
    second.await.unwrap();
    wait_for(&one, "a", "201").await;
    wait_for(&other, "a", "201").await;
    // Waiting commits share transactions, and none is lost.
    let all: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &one } else { &other });
            spawn_blocking(move || {
                let change = change(&format!("n{number}"), ExpectedVersion::Absent, Some("1"));
                store.commit(&[change]).unwrap();
            })
        })
        .collect();
    for commit in all {
        commit.await.unwrap();
    }
    assert_eq!(key.open(etcd.endpoint(0)).list(TABLE).unwrap().len(), 51);
    assert_eq!(one.condition(), ironmesh_store_etcd::StoreCondition::default());
}

/// A member that ends after the store was read is an outage as any other.
#[tokio::test(flavor = "multi_thread")]
async fn store_opens_although_etcd_ends_after_it_was_read() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let relay = Answers::start(etcd.socket(0)).await;
    relay.set(Mode::ForwardOne);
    let store = key.open(relay.endpoint());
    eventually("the outage to be reported", async || {
        store.condition().unavailable.map(drop).ok_or("none")
    })
    .await;
    relay.set(Mode::Forward);
    eventually("etcd to be usable", async || put(&store, "a", "1").map(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_with_a_lost_answer_is_stored_once() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let relay = Answers::start(etcd.socket(0)).await;
    let (store, other) = (key.open(relay.endpoint()), key.open(etcd.endpoint(0)));
    // The answer that is withheld may be that of another request, after which nothing is sent: then it is tried again.
    for round in 1..=10 {
        eventually("etcd to be usable", async || put(&store, "probe", "1").map(drop)).await;
        relay.set(Mode::WithholdAnswers);
        let text = round.to_string();
        let committing = {
            let (store, text) = (Arc::clone(&store), text.clone());
            spawn_blocking(move || store.commit(&[change("a", ExpectedVersion::Any, Some(&text))]))
        };
        eventually("the commit to be stored or rejected", async || {
            let is_stored = value(&other, "a").as_deref() == Some(text.as_str());
            (is_stored || committing.is_finished()).then_some(()).ok_or("neither")
        })
        .await;
        let stored =
            other.get(TABLE, "a").unwrap().filter(|record| *record.value == text.as_bytes());
        relay.set(Mode::Forward);
        let outcome = committing.await.unwrap();
        let (Some(stored), Ok(version)) = (stored, &outcome) else {
            assert!(matches!(outcome, Err(RecordError::Unavailable(_))), "{outcome:?}");
            continue;
        };
        assert_eq!(*version, stored.version);
        assert_eq!(value(&store, "a"), Some(text));
        let next = put(&store, "a", "next").unwrap();
        assert_eq!(next, RecordVersion(stored.version.0 + 1), "no other commit was made");
        return;
    }
    panic!("no answer to a commit was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_by_others_have_no_effect_and_are_repaired() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open(etcd.endpoint(0));
    put(&store, "a", "1").unwrap();
    put(&store, "b", "1").unwrap();
    let (a, b) =
        ("/ironmesh/default/state/records/records_of_a_test/a", "/ironmesh/default/state/x");
    for arguments in [&["put", a, "edited"][..], &["del", a], &["put", b, "added"], &["del", HEAD]]
    {
        etcd.ctl(arguments).await;
        eventually(&format!("{arguments:?} to be repaired"), async || {
            assert_eq!(value(&store, "a").as_deref(), Some("1"));
            key.try_open(etcd.endpoint(0), "default").map(drop)
        })
        .await;
    }
    put(&store, "a", "2").unwrap();
    assert_eq!(value(&key.open(etcd.endpoint(0)), "a").as_deref(), Some("2"));
    eventually("no foreign key", async || match store.condition().foreign {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_fails_commits_and_ends_without_a_restart() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open(etcd.endpoint(0));
    put(&store, "a", "1").unwrap();
    etcd.kill(0).await;
    eventually("the outage to be noticed", async || {
        store.condition().unavailable.map(drop).ok_or("it is not")
    })
    .await;
    let error = put(&store, "a", "2").unwrap_err();
    assert!(matches!(error, RecordError::Unavailable(_)), "{error}");
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    etcd.start_member(0);
    etcd.ready().await;
    eventually("commits to succeed again", async || put(&store, "a", "3").map(drop)).await;
    assert_eq!(store.condition().unavailable, None);
    assert_eq!(value(&key.open(etcd.endpoint(0)), "a").as_deref(), Some("3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_during_an_outage_loses_no_change() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let relay = Answers::start(etcd.socket(0)).await;
    let (store, other) = (key.open(relay.endpoint()), key.open(etcd.endpoint(0)));
    put(&other, "gone", "1").unwrap();
    wait_for(&store, "gone", "1").await;
    let mut watch = store.watch(TABLE).unwrap();
    watch.changed().await.unwrap();
    relay.set(Mode::Refuse);
    let version = put(&other, "a", "2").unwrap();
    block_in_place(|| other.commit(&[change("gone", ExpectedVersion::Any, None)])).unwrap();
    put(&other, "b", "1").unwrap();
    let status = etcd.ctl(&["endpoint", "status", "--write-out=json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = &status[0]["Status"]["header"]["revision"];
    etcd.ctl(&["compact", &revision.to_string()]).await;
    relay.set(Mode::Forward);
    wait_for(&store, "b", "1").await;
    let changes = watch.changed().await.unwrap();
    assert_eq!(changes.records.get("a"), Some(&Some(version)));
    assert_eq!(changes.records.get("gone"), Some(&None));
    put(&store, "a", "3").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_restored_from_a_backup_changes_nothing_and_stores_nothing() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open(etcd.endpoint(0));
    put(&store, "a", "1").unwrap();
    let snapshot = etcd.file("snapshot");
    etcd.ctl(&["snapshot", "save", &snapshot.display().to_string()]).await;
    put(&store, "a", "2").unwrap();
    etcd.kill(0).await;
    etcd.restore(0, &snapshot).await;
    fs::remove_file(snapshot).unwrap();
    etcd.start_member(0);
    etcd.ready().await;
    eventually("the older state to be noticed", async || {
        store.condition().rolled_back_to.ok_or("it is not")
    })
    .await;
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
    let error = put(&store, "a", "3").unwrap_err();
    assert!(matches!(error, RecordError::Unavailable(_)), "{error}");
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_values_across_a_compaction_are_repaired() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let relay = Answers::start(etcd.socket(0)).await;
    let store = key.open(relay.endpoint());
    put(&store, "a", "1").unwrap();
    put(&store, "b", "1").unwrap();
    relay.set(Mode::Refuse);
    let record = |key: &str| format!("/ironmesh/default/state/records/records_of_a_test/{key}");
    etcd.ctl(&["put", &record("a"), "edited"]).await;
    etcd.ctl(&["del", &record("b")]).await;
    etcd.ctl(&["put", &record("c"), "added"]).await;
    let status = etcd.ctl(&["endpoint", "status", "--write-out=json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = &status[0]["Status"]["header"]["revision"];
    etcd.ctl(&["compact", &revision.to_string()]).await;
    relay.set(Mode::Forward);
    eventually("the values to be repaired", async || {
        key.try_open(etcd.endpoint(0), "default").map(drop)
    })
    .await;
    put(&store, "a", "2").unwrap();
    let fresh = key.open(etcd.endpoint(0));
    assert_eq!(
        (value(&fresh, "a").as_deref(), value(&fresh, "b").as_deref()),
        (Some("2"), Some("1"))
    );
    assert_eq!(value(&fresh, "c"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_etcd_delays_one_commit_and_the_others_fail_at_once() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let relay = Answers::start(etcd.socket(0)).await;
    let store = key.open(relay.endpoint());
    put(&store, "a", "1").unwrap();
    relay.set(Mode::WithholdAnswers);
    let error = put(&store, "a", "2").unwrap_err();
    assert!(matches!(error, RecordError::Unavailable(_)), "{error}");
    assert!(store.condition().blocked().is_some(), "the next commit would wait as long");
    let again = put(&store, "a", "3").unwrap_err();
    assert!(matches!(again, RecordError::Unavailable(_)), "{again}");
    relay.set(Mode::Forward);
    eventually("commits to succeed again", async || put(&store, "a", "4").map(drop)).await;
    assert_eq!(store.condition(), ironmesh_store_etcd::StoreCondition::default());
}
