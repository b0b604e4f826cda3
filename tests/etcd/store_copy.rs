//! The copy of the store on the disk of a control plane, and the user that the store needs.

use ironmesh_etcd::EtcdOptions;
use ironmesh_store::{RecordError, RecordStore as _};
use ironmesh_store_etcd::{EtcdStoreError, EtcdStoreOptions, StoreCondition, check_user, init};
use ironmesh_tests::{Etcd, eventually};
use tokio::task::block_in_place;

use crate::sessions::options;
use crate::store::{Key, PREFIX, put, value, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn store_opens_from_its_copy_while_etcd_is_down() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    put(&store, "a", "1").unwrap();
    put(&store, "b", "1").unwrap();
    drop(store);
    etcd.kill(0).await;
    let error = key.open_with(Key::options(etcd.endpoint(0))).unwrap_err();
    assert!(matches!(error, EtcdStoreError::Etcd(_)), "without a copy: {error}");
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    assert!(store.condition().unavailable.is_some());
    let error = put(&store, "a", "2").unwrap_err();
    assert!(matches!(error, RecordError::Unavailable(_)), "{error}");

    etcd.start_member(0);
    etcd.ready().await;
    let other = key.open_with(Key::options(etcd.endpoint(0))).unwrap();
    put(&other, "b", "2").unwrap();
    wait_for(&store, "b", "2").await;
    put(&store, "a", "3").unwrap();
    assert_eq!(store.condition(), StoreCondition::default());
    drop(store);
    // The copy has what was stored since.
    etcd.kill(0).await;
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    assert_eq!(
        (value(&store, "a").as_deref(), value(&store, "b").as_deref()),
        (Some("3"), Some("2"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_that_is_older_than_the_copy_is_rejected_unless_accepted() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    put(&store, "a", "1").unwrap();
    let snapshot = etcd.file("snapshot");
    etcd.ctl(&["snapshot", "save", &snapshot.display().to_string()]).await;
    put(&store, "a", "2").unwrap();
    drop(store);
    etcd.kill(0).await;
    etcd.restore(0, &snapshot).await;
    fs_err::remove_file(snapshot).unwrap();
    etcd.start_member(0);
    etcd.ready().await;
    let error = key.open_with(key.copying(etcd.endpoint(0))).unwrap_err();
    assert!(matches!(error, EtcdStoreError::Older { .. }), "{error}");
    assert!(error.to_string().contains("--accept-older-store"), "{error}");
    let accepting = EtcdStoreOptions { accepts_older: true, ..key.copying(etcd.endpoint(0)) };
    let store = key.open_with(accepting).unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    put(&store, "a", "3").unwrap();
    drop(store);
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("3"), "it was accepted for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_was_initialized_again_is_rejected() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    put(&store, "a", "1").unwrap();
    drop(store);
    etcd.ctl(&["del", "--prefix", "/ironmesh/default/"]).await;
    key.init(&etcd);
    let error = key.open_with(key.copying(etcd.endpoint(0))).unwrap_err();
    assert!(matches!(error, EtcdStoreError::NewMesh { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_etcd_is_damage_and_the_copy_is_served() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    key.init(&etcd);
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    put(&store, "a", "1").unwrap();
    drop(store);
    etcd.ctl(&["del", "--prefix", "/ironmesh/default/"]).await;
    let store = key.open_with(key.copying(etcd.endpoint(0))).unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    eventually("the damage to be reported", async || store.condition().damage.ok_or("it is not"))
        .await;
    assert!(put(&store, "a", "2").is_err());
    assert_eq!(store.keys(ironmesh_store::TableName("records_of_a_test")).unwrap(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_that_may_read_beside_the_prefix_is_rejected() {
    let Some(open) = Etcd::start().await else { return };
    let checked = block_in_place(|| check_user(options(open.endpoint(0), PREFIX)));
    let error = checked.unwrap_err();
    assert!(matches!(error, EtcdStoreError::UnlimitedUser(_)), "{error}");
    let secured = Etcd::start_three().await.unwrap();
    for (user, is_limited) in [("root", false), ("mesh", true), ("stranger", true)] {
        let checked = block_in_place(|| check_user(of_user(&secured, user)));
        assert_eq!(checked.is_ok(), is_limited, "{user}: {checked:?}");
    }
}

/// Options of the store as a user of an etcd with TLS.
fn of_user(etcd: &Etcd, user: &str) -> EtcdOptions {
    let file = |kind: &str| etcd.file(&format!("{user}.{kind}"));
    EtcdOptions {
        ca: Some(etcd.file("ca.pem")),
        identity: Some((file("pem"), file("key"))),
        ..options(etcd.endpoint(0), PREFIX)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_writes_are_reported_while_the_commits_of_others_arrive() {
    let Some(etcd) = Etcd::start_three().await else { return };
    let key = Key::new();
    let open = |user: &str| {
        let etcd = of_user(&etcd, user);
        key.open_with(EtcdStoreOptions { etcd, ..Key::options(String::new()) }).unwrap()
    };
    block_in_place(|| init(of_user(&etcd, "store"), &key.load(), "default", "cp1")).unwrap();
    let (store, other) = (open("store"), open("root"));
    put(&store, "a", "1").unwrap();
    let prefix = "/ironmesh/default/state/";
    let grant = async |permission: &str| {
        let grant = ["role", "grant-permission", "state", "--prefix=true", permission, prefix];
        etcd.ctl(&grant).await;
    };
    grant("read").await;
    // With a value that it should repair.
    etcd.ctl(&["put", "/ironmesh/default/state/foreign", "x"]).await;
    eventually("the denied writes to be reported", async || {
        let _ = put(&store, "a", "2");
        store.condition().not_writable.ok_or("they are not")
    })
    .await;
    assert!(store.condition().blocked().unwrap().contains("does not allow"));
    put(&other, "a", "3").unwrap();
    wait_for(&store, "a", "3").await;
    grant("readwrite").await;
    eventually("the end of it to be noticed without a commit", async || {
        let condition = store.condition();
        anyhow::ensure!(condition == StoreCondition::default(), "{condition:?}");
        Ok(())
    })
    .await;
    put(&store, "a", "4").unwrap();
}
