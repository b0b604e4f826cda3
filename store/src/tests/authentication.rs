//! Records that were edited or moved outside of the store, and databases of the format that had no tags.

use ironmesh_catalog::{
    CertificateStore, Domain, KeptEndpoints, Provider, TcpAccesses, TrustDomain,
};
use jiff::Timestamp;

use super::{State, certificate, copy, policies, record};
use crate::database::{ENDPOINTS, JOIN_RECORDS, META, POLICY, SERVICE_CERTIFICATES, Table};
use crate::open::{CANARY, FORMAT_KEY, canary_of};
use crate::{OpenError, QuarantinedRecord, Store};

fn quarantined(store: &Store) -> Vec<(String, String)> {
    let records = store.health().quarantined.into_iter();
    records.map(|QuarantinedRecord { table, key }| (table, key)).collect()
}

/// Flips the last bit of one stored value.
fn edit(store: &Store, table: Table, key: &str) {
    let mut stored = store.get_raw(table, key).unwrap().unwrap();
    *stored.last_mut().unwrap() ^= 1;
    store.put_raw(table, key, &stored).unwrap();
}

fn at(table: &str, key: &str) -> (String, String) {
    (table.to_owned(), key.to_owned())
}

#[test]
fn edited_join_record_is_quarantined_and_the_others_are_read() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_records(&[record(1), record(2)]).unwrap();
    // The flipped byte belongs to a port of the record.
    let key = record(1).id.to_string();
    let mut stored = store.get_raw(JOIN_RECORDS, &key).unwrap().unwrap();
    let port = stored.windows(5).position(|window| window == b"15003").unwrap();
    stored[port + 2] = b'8';
    store.put_raw(JOIN_RECORDS, &key, &stored).unwrap();
    drop(store);

    let store = state.open().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    assert_eq!(quarantined(&store), [at("join_records", &key)]);
    // The record stays quarantined until it is written again or removed.
    store.remove_join_records(&[record(1).id]).unwrap();
    assert!(quarantined(&store).is_empty());
    assert_eq!(store.join_records().unwrap(), [record(2)]);
}

#[test]
fn moved_join_record_is_quarantined() {
    let store = State::new().open().unwrap();
    store.put_join_records(&[record(1), record(2)]).unwrap();
    let (one, two) = (record(1).id.to_string(), record(2).id.to_string());
    copy(&store, (JOIN_RECORDS, &one), (JOIN_RECORDS, &two));
    copy(&store, (JOIN_RECORDS, &one), (ENDPOINTS, &one));
    assert_eq!(store.join_records().unwrap(), [record(1)]);
    assert_eq!(store.kept_endpoints().unwrap(), (vec![], vec![]));
    assert_eq!(quarantined(&store), [at("endpoints", &one), at("join_records", &two)]);
}

#[test]
fn authentic_join_record_that_cannot_be_read_is_quarantined() {
    let store = State::new().open().unwrap();
    store.put(JOIN_RECORDS, "7", b"{\"of a\": \"newer version\"}").unwrap();
    assert!(store.join_records().unwrap().is_empty());
    assert_eq!(quarantined(&store), [at("join_records", "7")]);
}

#[test]
fn edited_values_of_other_tables_count_as_missing() {
    let store = State::new().open().unwrap();
    store.put_policy(&policies::record("1"), [("a.toml", "# 1")]).unwrap();
    store.put_policy(&policies::record("2"), [("a.toml", "# 2")]).unwrap();
    store.put_tcp_accesses(&TcpAccesses::default()).unwrap();
    store.put_service_certificate(&certificate("shop/a", "1")).unwrap();
    let newest = "policy/00000000000000000001";
    edit(&store, POLICY, newest);
    edit(&store, POLICY, "tcp_accesses");
    edit(&store, SERVICE_CERTIFICATES, "shop/a");
    let last_good = store.last_good_policy().unwrap();
    assert_eq!(last_good, Some(vec![("a.toml".to_owned(), "# 1".to_owned())]));
    assert_eq!(store.tcp_accesses().unwrap().withdrawals, 0);
    assert!(store.service_certificates().unwrap().is_empty());
    let expected =
        [at("policy", newest), at("policy", "tcp_accesses"), at("service_certificates", "shop/a")];
    assert_eq!(quarantined(&store), expected);
    // The store accepts new records in their place.
    store.put_policy(&policies::record("3"), [("a.toml", "# 3")]).unwrap();
    store.put_tcp_accesses(&TcpAccesses::default()).unwrap();
    store.put_service_certificate(&certificate("shop/a", "2")).unwrap();
    assert!(quarantined(&store).is_empty());
    let last_good = store.last_good_policy().unwrap();
    assert_eq!(last_good, Some(vec![("a.toml".to_owned(), "# 3".to_owned())]));
}

#[test]
fn edited_mesh_names_are_rejected() {
    let store = State::new().open().unwrap();
    let domain = Domain::default();
    store.put_mesh(&domain, &TrustDomain::new(domain.clone())).unwrap();
    edit(&store, META, "mesh");
    let error = store.mesh().unwrap_err();
    assert!(error.source.to_string().contains("restore the state folder"), "{}", error.source);
}

/// Converts a store to format 1, as versions without authentication wrote it.
fn downgrade(store: &Store) {
    for table in [META, JOIN_RECORDS, POLICY, ENDPOINTS] {
        for (key, value) in store.all(table).unwrap() {
            store.put_raw(table, &key, &value).unwrap();
        }
    }
    store.put_raw(META, FORMAT_KEY, b"1").unwrap();
    store.put_sealed(META, CANARY, b"canary").unwrap();
}

#[test]
fn database_of_format_1_is_migrated_once_and_authenticated_since() {
    let state = State::new();
    let domain = Domain::default();
    let mesh = (domain.clone(), TrustDomain::new(domain));
    let policy = Some(vec![("a.toml".to_owned(), "# 1".to_owned())]);
    let endpoints = KeptEndpoints {
        provider: Provider::Consul,
        service: "shop/a".parse().unwrap(),
        learned_at: Timestamp::UNIX_EPOCH,
        endpoints: std::sync::Arc::default(),
    };
    {
        let store = state.open().unwrap();
        store.put_mesh(&mesh.0, &mesh.1).unwrap();
        store.put_authority(b"material").unwrap();
        store.put_service_certificate(&certificate("shop/a", "1")).unwrap();
        store.put_join_records(&[record(1), record(2)]).unwrap();
        store.put_policy(&policies::record("1"), [("a.toml", "# 1")]).unwrap();
        store.keep_endpoints(std::slice::from_ref(&endpoints), &[]).unwrap();
        downgrade(&store);
        let json = store.get_raw(JOIN_RECORDS, &record(1).id.to_string()).unwrap().unwrap();
        assert_eq!(json, serde_json::to_vec(&record(1)).unwrap(), "as format 1 has it");
    }
    for _ in 0..2 {
        let store = state.open().unwrap();
        assert_eq!(store.mesh().unwrap().as_ref(), Some(&mesh));
        assert_eq!(store.authority().unwrap().unwrap(), b"material");
        assert_eq!(store.service_certificates().unwrap(), [certificate("shop/a", "1")]);
        assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
        assert_eq!(store.last_good_policy().unwrap(), policy);
        assert_eq!(store.kept_endpoints().unwrap().0, std::slice::from_ref(&endpoints));
        assert!(quarantined(&store).is_empty());
        assert_eq!(store.get_raw(META, FORMAT_KEY).unwrap().unwrap(), b"2");
    }
    let store = state.open().unwrap();
    let key = record(3).id.to_string();
    store.put_raw(JOIN_RECORDS, &key, &serde_json::to_vec(&record(3)).unwrap()).unwrap();
    assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
    assert_eq!(quarantined(&store), [at("join_records", &key)]);
}

#[test]
fn migrated_database_that_states_format_1_is_rejected() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_raw(META, FORMAT_KEY, b"1").unwrap();
    drop(store);
    let error = state.open().unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert_ne!(canary_of(1), canary_of(2));
}
