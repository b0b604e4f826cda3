//! Databases of older formats, as the versions that had them wrote them.

use ironmesh_catalog::{CertificateStore, Domain, KeptEndpoints, Provider, TrustDomain};
use jiff::Timestamp;
use redb::TableHandle as _;

use super::authentication::{at, quarantined};
use super::{JoinRecords, State, certificate, policies, record, table};
use crate::database::{ENDPOINTS, JOIN_RECORDS, META, POLICY, RECORD_VERSIONS, Table};
use crate::open::{CANARY, FORMAT_KEY, canary_of};
use crate::{OpenError, RecordVersion, Store};

/// A join record as versions without a schema number wrote it.
const OLD_RECORD: &str = r#"{"id":"00000000-0000-0000-0000-000000000001","services":["shop/bookstore"],"mesh_address":"[2001:db8::1]:15003","joined_at":"2026-11-21T07:00:00Z","certificate_expires_at":"2027-11-21T07:00:00Z","claimed_at":"1970-01-01T00:00:00Z","participation":[["shop/bookstore",14001]]}"#;

/// Converts a store to an older format.
fn downgrade(store: &Store, format: u32) {
    let put = |table: Table, key: &str, value: &[u8]| match format {
        1 => store.put_raw(table, key, value).unwrap(),
        _ => store.put(table, key, value).unwrap(),
    };
    store.remove_all(META, &["revision".to_owned()]).unwrap();
    for table in [META, POLICY, ENDPOINTS] {
        for (key, value) in store.all(table).unwrap() {
            put(table, &key, &value);
        }
    }
    for (key, _) in store.all_raw(JOIN_RECORDS).unwrap() {
        store.remove_all(JOIN_RECORDS, &[key]).unwrap();
    }
    for id in [1, 2] {
        let json = OLD_RECORD.replace("000000000001", &format!("{id:012}"));
        let json = if id == 1 { json } else { json.replace("\"1970-01-01T00:00:00Z\"", "null") };
        put(JOIN_RECORDS, &record(id).id.to_string(), json.as_bytes());
    }
    store.drop_table(RECORD_VERSIONS);
    store.put_raw(META, FORMAT_KEY, format.to_string().as_bytes()).unwrap();
    store.put_sealed(META, CANARY, &canary_of(format)).unwrap();
}

#[test]
fn older_formats_are_migrated_once_and_authenticated_since() {
    for format in [1, 2] {
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
            store.put_policy(&policies::record("1"), [("a.toml", "# 1")]).unwrap();
            store.keep_endpoints(std::slice::from_ref(&endpoints), &[]).unwrap();
            downgrade(&store, format);
            let raw = store.get_raw(JOIN_RECORDS, &record(1).id.to_string()).unwrap().unwrap();
            assert!(raw.ends_with(OLD_RECORD.as_bytes()));
        }
        fs_err::remove_file(state.mark()).unwrap();
        for _ in 0..2 {
            let store = state.open().unwrap();
            assert_eq!(store.mesh().unwrap().as_ref(), Some(&mesh));
            assert_eq!(store.authority().unwrap().unwrap(), b"material");
            assert_eq!(store.service_certificates().unwrap(), [certificate("shop/a", "1")]);
            assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
            let versions: Vec<_> =
                table(&store).list().unwrap().iter().map(|one| one.version).collect();
            assert_eq!(versions, [RecordVersion(1), RecordVersion(1)]);
            assert_eq!(store.last_good_policy().unwrap(), policy);
            assert_eq!(store.kept_endpoints().unwrap().0, std::slice::from_ref(&endpoints));
            assert_eq!(store.health(), crate::StoreHealth::default());
            assert_eq!(store.get_raw(META, FORMAT_KEY).unwrap().unwrap(), b"3");
        }
        // A record of the older format does not pass any more.
        let store = state.open().unwrap();
        let key = record(3).id.to_string();
        let json = serde_json::to_vec(&record(3)).unwrap();
        store.put(JOIN_RECORDS, &key, &json).unwrap();
        assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
        assert_eq!(quarantined(&store), [at("join_records", &key)]);
    }
}

#[test]
fn join_record_edited_before_migration_stays_quarantined() {
    let state = State::new();
    let store = state.open().unwrap();
    downgrade(&store, 2);
    let key = record(1).id.to_string();
    let mut stored = store.get_raw(JOIN_RECORDS, &key).unwrap().unwrap();
    *stored.last_mut().unwrap() ^= 1;
    store.put_raw(JOIN_RECORDS, &key, &stored).unwrap();
    drop(store);
    let store = state.open().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    assert_eq!(quarantined(&store), [at(JOIN_RECORDS.name(), &key)]);
}

#[test]
fn migrated_database_that_states_an_older_format_is_rejected() {
    for format in [b"1", b"2"] {
        let state = State::new();
        let store = state.open().unwrap();
        store.put_raw(META, FORMAT_KEY, format).unwrap();
        drop(store);
        let error = state.open().unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    assert_ne!(canary_of(1), canary_of(2));
    assert_eq!(canary_of(2), b"canary of format 2");
}
