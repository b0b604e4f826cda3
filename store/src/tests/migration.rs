//! Databases of older formats, as the versions that had them wrote them.

use std::sync::Arc;

use ironmesh_catalog::{
    Actor, CertificateStore, Domain, JournalEntry, JournalKind, JournalQuery, KeptEndpoints,
    Provider, RevocationLists, TrustDomain,
};
use jiff::Timestamp;
use redb::TableHandle as _;

use super::authentication::{accesses, at, quarantined};
use super::{
    AUTHORITY, JOIN_RECORDS, JOURNAL, JoinRecords, MESH, PutCertificates as _,
    SERVICE_CERTIFICATES, State, TCP_ACCESSES, certificate, mesh_state, policies, record, table,
};
use crate::database::{ENDPOINTS, META, POLICY, RECORD_VERSIONS, Table};
use crate::open::{CANARY, FORMAT_KEY, canary_of};
use crate::{HighWaterFault, OpenError, RecordStore as _, RecordVersion, Store, TableName};

/// A join record as versions without a schema number wrote it.
const OLD_RECORD: &str = r#"{"id":"00000000-0000-0000-0000-000000000001","services":["shop/bookstore"],"mesh_address":"[2001:db8::1]:15003","joined_at":"2026-11-21T07:00:00Z","certificate_expires_at":"2027-11-21T07:00:00Z","claimed_at":"1970-01-01T00:00:00Z","participation":[["shop/bookstore",14001]]}"#;

const REVOCATION_LISTS: Table = redb::TableDefinition::new("revocation_lists");

/// Converts a store to an older format.
fn downgrade(store: &Arc<Store>, format: u32) {
    let put = |table: Table, key: &str, value: &[u8]| match format {
        1 => store.put_raw(table, key, value).unwrap(),
        _ => store.put(table, key, value).unwrap(),
    };
    let seal = |table: Table, key: &str, value: &[u8]| {
        let sealed = store.sealer.seal(table.name(), key, value).unwrap();
        store.put_raw(table, key, &sealed).unwrap();
    };
    // What was a value, and is a record.
    for (table, place) in [
        (AUTHORITY, None),
        (SERVICE_CERTIFICATES, None),
        (JOURNAL, None),
        (MESH, Some((META, "mesh"))),
        (REVOCATION_LISTS, Some((POLICY, "revocation_lists"))),
    ] {
        for (key, record) in store.list(TableName(leaked(table))).unwrap() {
            match place {
                Some((table, key)) => store.put(table, key, &record.value).unwrap(),
                None if table.name() == JOURNAL.name() => {
                    store.put(table, &key, &record.value).unwrap();
                }
                None => seal(table, &key, &record.value),
            }
        }
        if place.is_some() {
            store.drop_table(table);
        }
    }
    let accesses = mesh_state(store).tcp_accesses().unwrap();
    let ports: Vec<_> = accesses.ports.iter().collect();
    let json = serde_json::to_vec(&(accesses.withdrawals, ports)).unwrap();
    store.put(POLICY, "tcp_accesses", &json).unwrap();
    store.drop_table(TCP_ACCESSES);
    for (key, _) in store.all_raw(RECORD_VERSIONS).unwrap() {
        if format < 3 || !key.starts_with("join_") {
            store.remove_all(RECORD_VERSIONS, &[key]).unwrap();
        }
    }
    if format < 3 {
        store.remove_all(META, &["revision".to_owned()]).unwrap();
        for (key, _) in store.all_raw(JOIN_RECORDS).unwrap() {
            store.remove_all(JOIN_RECORDS, &[key]).unwrap();
        }
        for id in [1, 2] {
            let json = OLD_RECORD.replace("000000000001", &format!("{id:012}"));
            let json =
                if id == 1 { json } else { json.replace("\"1970-01-01T00:00:00Z\"", "null") };
            put(JOIN_RECORDS, &record(id).id.to_string(), json.as_bytes());
        }
    }
    for table in [META, POLICY, ENDPOINTS] {
        for (key, value) in store.all(table).unwrap() {
            put(table, &key, &value);
        }
    }
    store.put_raw(META, FORMAT_KEY, format.to_string().as_bytes()).unwrap();
    seal(META, CANARY, &canary_of(format));
}

fn leaked(table: Table) -> &'static str {
    table.name().to_owned().leak()
}

#[test]
fn older_formats_are_migrated_once_and_authenticated_since() {
    for format in [1, 2, 3] {
        let state = State::new();
        let domain = Domain::default();
        let mesh = (domain.clone(), TrustDomain::new(domain));
        let policy = Some(vec![("a.toml".to_owned(), "# 1".to_owned())]);
        let endpoints = KeptEndpoints {
            provider: Provider::Consul,
            service: "shop/a".parse().unwrap(),
            learned_at: Timestamp::UNIX_EPOCH,
            endpoints: Arc::default(),
        };
        let entry = JournalEntry::new(Timestamp::UNIX_EPOCH, JournalKind::Revoke, Actor::Proxy);
        let (serials, issuers, last_listed) = Default::default();
        let lists =
            RevocationLists { number: 7, serials, issuers, pem: "a list".into(), last_listed };
        {
            let store = state.open().unwrap();
            store.put_join_records(&[record(1), record(2)]).unwrap();
            store.put_policy(&policies::record("1"), [("a.toml", "# 1")]).unwrap();
            store.keep_endpoints(std::slice::from_ref(&endpoints), &[]).unwrap();
            let shared = mesh_state(&store);
            shared.put_mesh(&mesh.0, &mesh.1).unwrap();
            shared.put_authority(b"material").unwrap();
            shared.put_service_certificate(&certificate("shop/a", "1")).unwrap();
            shared.append_journal(&mut vec![entry.clone()]).unwrap();
            assert!(
                shared.replace_tcp_accesses(&accesses(&[]), &accesses(&[(1, 1), (2, 3)])).unwrap()
            );
            assert!(shared.replace_revocation_lists(None, &lists).unwrap());
            downgrade(&store, format);
            let raw = store.get_raw(JOIN_RECORDS, &record(1).id.to_string()).unwrap().unwrap();
            assert_eq!(raw.ends_with(OLD_RECORD.as_bytes()), format < 3);
        }
        fs_err::remove_file(state.mark()).unwrap();
        for _ in 0..2 {
            let store = state.open().unwrap();
            let shared = mesh_state(&store);
            assert_eq!(shared.mesh().unwrap().as_ref(), Some(&mesh));
            assert_eq!(shared.authority().unwrap().unwrap(), b"material");
            assert_eq!(shared.service_certificates().unwrap(), [certificate("shop/a", "1")]);
            assert_eq!(shared.tcp_accesses().unwrap(), accesses(&[(1, 1), (2, 3)]));
            assert_eq!(shared.revocation_lists().unwrap().as_ref(), Some(&lists));
            let journal = shared.journal(&JournalQuery::default()).unwrap();
            assert_eq!(journal, (vec![JournalEntry { sequence: 1, ..entry.clone() }], 1));
            assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
            let versions: Vec<_> =
                table(&store).list().unwrap().iter().map(|one| one.version).collect();
            assert_eq!(versions, [RecordVersion(1), RecordVersion(1)]);
            assert_eq!(store.last_good_policy().unwrap(), policy);
            assert_eq!(store.kept_endpoints().unwrap().0, std::slice::from_ref(&endpoints));
            assert_eq!(store.health(), crate::StoreHealth::default());
            assert_eq!(store.get_raw(META, FORMAT_KEY).unwrap().unwrap(), b"4");
            for (table, key) in
                [(META, "mesh"), (POLICY, "tcp_accesses"), (POLICY, "revocation_lists")]
            {
                assert_eq!(store.get_raw(table, key).unwrap(), None);
            }
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
fn values_edited_before_migration_are_refused() {
    let state = State::new();
    let store = state.open().unwrap();
    let shared = mesh_state(&store);
    let domain = Domain::default();
    shared.put_mesh(&domain, &TrustDomain::new(domain.clone())).unwrap();
    shared.put_authority(b"material").unwrap();
    shared.put_service_certificate(&certificate("shop/a", "1")).unwrap();
    assert!(shared.replace_tcp_accesses(&accesses(&[]), &accesses(&[(1, 1)])).unwrap());
    drop(shared);
    downgrade(&store, 3);
    for (table, key) in [
        (META, "mesh"),
        (AUTHORITY, "current"),
        (SERVICE_CERTIFICATES, "shop/a"),
        (POLICY, "tcp_accesses"),
    ] {
        let mut stored = store.get_raw(table, key).unwrap().unwrap();
        *stored.last_mut().unwrap() ^= 1;
        store.put_raw(table, key, &stored).unwrap();
    }
    drop(store);
    let store = state.open().unwrap();
    let shared = mesh_state(&store);
    assert!(shared.mesh().is_err(), "the names have no default");
    assert!(shared.authority().is_err(), "no second authority is created");
    assert_eq!(shared.service_certificates().unwrap(), []);
    assert_eq!(shared.tcp_accesses().unwrap(), accesses(&[]));
}

#[test]
fn join_record_edited_before_migration_stays_quarantined() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_records(&[record(1), record(2)]).unwrap();
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
fn older_copy_is_reported_although_it_is_migrated() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_record(&record(1)).unwrap();
    downgrade(&store, 3);
    let copy = fs_err::read(state.database()).unwrap();
    let last = store.put_join_record(&record(2)).unwrap();
    drop(store);
    fs_err::write(state.database(), copy).unwrap();
    for _ in 0..2 {
        let store = state.open().unwrap();
        let expected = HighWaterFault::OlderCopy { found: last.0 - 1, mark: last.0 };
        assert_eq!(store.health().high_water, Some(expected));
        assert_eq!(store.join_records().unwrap(), [record(1)]);
    }
}

#[test]
fn migrated_database_that_states_an_older_format_is_rejected() {
    for format in [b"1", b"2", b"3"] {
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
