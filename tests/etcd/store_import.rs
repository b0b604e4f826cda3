//! Imports into etcd: what one leaves behind when it is interrupted, and what it may replace.

use ironmesh_store::{KeyEncryptionKey, RecordStore as _, TableName};
use ironmesh_store_etcd::{EtcdImport, EtcdImportError, EtcdStore, EtcdStoreError, init};
use ironmesh_tests::Etcd;
use tokio::task::block_in_place;

use crate::sessions::options;
use crate::store::{Key, PREFIX, put as commit, value};

const TABLE: TableName = TableName("join_records");

fn begin(etcd: &Etcd, key: &KeyEncryptionKey) -> Result<EtcdImport, EtcdImportError> {
    let options = options(etcd.endpoint(0), PREFIX);
    block_in_place(|| EtcdImport::begin(options, key, "default", "cp1"))
}

/// Puts this many records, of which each has a number.
fn put(import: &mut EtcdImport, count: usize) -> Result<(), EtcdImportError> {
    let record = |number: usize| number.to_string();
    let put = |number| import.put(TABLE, record(number), &record(number).into_bytes().into());
    block_in_place(|| (0..count).try_for_each(put))
}

fn open(etcd: &Etcd, key: &Key) -> Result<std::sync::Arc<EtcdStore>, EtcdStoreError> {
    key.open_with(Key::options(etcd.endpoint(0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_import_is_no_store_and_the_next_one_replaces_it() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    let mut import = begin(&etcd, &key.load()).unwrap();
    // Two transactions are stored, and the rest is not.
    put(&mut import, 250).unwrap();
    block_in_place(|| drop(import));
    assert_eq!(etcd.keys(&format!("{PREFIX}/state/records/")).await.len(), 200);
    let error = open(&etcd, &key).unwrap_err();
    assert!(matches!(error, EtcdStoreError::Importing(_)), "{error}");
    let initialized = block_in_place(|| {
        init(options(etcd.endpoint(0), PREFIX), &key.load(), "default", "cp1").unwrap_err()
    });
    assert!(matches!(initialized, EtcdStoreError::Importing(_)), "{initialized}");
    // Only the key of the interrupted import may replace it.
    let error = begin(&etcd, &Key::new().load()).unwrap_err();
    assert!(error.to_string().contains("different key-encryption key"), "{error}");

    let mut import = begin(&etcd, &key.load()).unwrap();
    put(&mut import, 120).unwrap();
    block_in_place(|| import.finish()).unwrap();
    let store = open(&etcd, &key).unwrap();
    let records = block_in_place(|| store.list(TABLE)).unwrap();
    assert_eq!(records.len(), 120);
    assert!(records.iter().all(|(key, record)| **record.value == *key.as_bytes()));
    // It is a store like any other.
    commit(&store, "a", "1").unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    let error = begin(&etcd, &key.load()).unwrap_err();
    assert!(matches!(error, EtcdImportError::Exists(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_import_ends_the_first() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    let mut first = begin(&etcd, &key.load()).unwrap();
    put(&mut first, 150).unwrap();
    let mut second = begin(&etcd, &key.load()).unwrap();
    put(&mut second, 10).unwrap();
    let error = block_in_place(|| first.finish()).unwrap_err();
    assert!(matches!(error, EtcdImportError::Superseded(_)), "{error}");
    block_in_place(|| second.finish()).unwrap();
    let store = open(&etcd, &key).unwrap();
    assert_eq!(block_in_place(|| store.list(TABLE)).unwrap().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn import_rejects_what_etcd_cannot_store_or_does_not_know() {
    let Some(etcd) = Etcd::start().await else { return };
    let key = Key::new();
    etcd.ctl(&["put", &format!("{PREFIX}/state/records/a/b"), "foreign"]).await;
    let error = begin(&etcd, &key.load()).unwrap_err();
    assert!(matches!(error, EtcdImportError::Foreign { count: 1, .. }), "{error}");
    etcd.ctl(&["del", "--prefix", &format!("{PREFIX}/state/")]).await;

    let mut import = begin(&etcd, &key.load()).unwrap();
    let large = vec![0; EtcdImport::MAX_RECORD + 1].into();
    let error = block_in_place(|| import.put(TABLE, "large".to_owned(), &large)).unwrap_err();
    assert!(matches!(error, EtcdImportError::TooLarge { .. }), "{error}");
    // The largest records are transactions of their own, within the limits of etcd.
    for number in 0..3 {
        let large = vec![number; EtcdImport::MAX_RECORD].into();
        block_in_place(|| import.put(TABLE, number.to_string(), &large)).unwrap();
    }
    block_in_place(|| import.finish()).unwrap();
    assert_eq!(block_in_place(|| open(&etcd, &key).unwrap().list(TABLE)).unwrap().len(), 3);
}
