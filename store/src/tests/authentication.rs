//! Records that were edited, moved, removed or replaced by an older copy outside of the store.

use ironmesh_catalog::{
    Callers, CertificateStore, Domain, JoinRecord, TcpAccess, TcpAccesses, TrustDomain,
};

use super::{
    JOIN_RECORDS, JoinRecords, MESH, PutCertificates as _, SERVICE_CERTIFICATES, State,
    TCP_ACCESSES, certificate, copy, mesh_state, policies, record, table,
};
use crate::database::{ENDPOINTS, META, POLICY, RECORD_VERSIONS, Table};
use crate::{
    ExpectedVersion, QuarantinedRecord, Record as _, RecordChange, RecordError, RecordStore as _,
    Store,
};

pub(super) fn quarantined(store: &Store) -> Vec<(String, String)> {
    let records = store.health().quarantined.into_iter();
    records.map(|QuarantinedRecord { table, key }| (table, key)).collect()
}

/// Flips the last bit of one stored value.
fn edit(store: &Store, table: Table, key: &str) {
    let mut stored = store.get_raw(table, key).unwrap().unwrap();
    *stored.last_mut().unwrap() ^= 1;
    store.put_raw(table, key, &stored).unwrap();
}

pub(super) fn at(table: &str, key: &str) -> (String, String) {
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
    let value = Some(b"{\"of a\": \"newer version\"}".to_vec().into());
    let (table, expected) = (JoinRecord::TABLE, ExpectedVersion::Absent);
    store.commit(&[RecordChange { table, key: "7".to_owned(), expected, value }]).unwrap();
    assert!(store.join_records().unwrap().is_empty());
    assert_eq!(quarantined(&store), [at("join_records", "7")]);
}

#[test]
fn older_version_of_a_join_record_is_refused() {
    let state = State::new();
    let store = state.open().unwrap();
    let key = record(1).id.to_string();
    let first = store.put_join_record(&record(1)).unwrap();
    let older = store.get_raw(JOIN_RECORDS, &key).unwrap().unwrap();
    store.put_join_record(&record(1)).unwrap();
    store.put_join_record(&record(2)).unwrap();
    store.put_raw(JOIN_RECORDS, &key, &older).unwrap();
    drop(store);

    let store = state.open().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    assert_eq!(quarantined(&store), [at("join_records", &key)]);
    let error = table(&store).get(&key).unwrap_err();
    assert!(matches!(error, RecordError::Corrupt(_)), "{error:?}");
    // Neither does a change build on it.
    for expected in [ExpectedVersion::Absent, ExpectedVersion::Exactly(first)] {
        let put = RecordChange::put(&record(1), expected).unwrap();
        let error = store.commit(&[put]).unwrap_err();
        assert!(matches!(error, RecordError::Corrupt(_)), "{error:?}");
    }
    store.put_join_record(&record(1)).unwrap();
    assert!(quarantined(&store).is_empty());
    assert_eq!(store.join_records().unwrap(), [record(1), record(2)]);
}

#[test]
fn removed_join_record_is_reported_until_it_is_discarded() {
    let store = State::new().open().unwrap();
    store.put_join_records(&[record(1), record(2)]).unwrap();
    store.remove_all(JOIN_RECORDS, &[record(1).id.to_string()]).unwrap();
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    assert_eq!(quarantined(&store), [at("join_records", &record(1).id.to_string())]);
    store.remove_join_records(&[record(1).id]).unwrap();
    assert!(quarantined(&store).is_empty());
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    assert!(quarantined(&store).is_empty());
}

#[test]
fn edited_version_or_revision_costs_one_record_and_no_start() {
    let state = State::new();
    let store = state.open().unwrap();
    let last = store.put_join_records(&[record(1), record(2)]).unwrap();
    edit(&store, RECORD_VERSIONS, &format!("join_records/{}", record(1).id));
    edit(&store, META, "revision");
    drop(store);
    let store = state.open().unwrap();
    assert_eq!(store.join_records().unwrap(), [record(2)]);
    let key = record(1).id.to_string();
    let versions = at("record_versions", &format!("join_records/{key}"));
    assert_eq!(quarantined(&store), [at("join_records", &key), at("meta", "revision"), versions]);
    assert!(store.put_join_record(&record(3)).unwrap() > last, "no version is used twice");
}

/// Accesses to these ports of one service, with this number of withdrawals each.
pub(super) fn accesses(ports: &[(u16, u64)]) -> TcpAccesses {
    let access = |(port, withdrawals): &(u16, u64)| {
        let port = format!("shop/a|{port}").parse().unwrap();
        let callers = Callers::These(["shop/b".parse().unwrap()].into());
        let (withdrawn, named_before) = Default::default();
        (port, TcpAccess { callers, withdrawals: *withdrawals, withdrawn, named_before })
    };
    let withdrawals = ports.iter().map(|(_, withdrawals)| *withdrawals).max().unwrap_or_default();
    TcpAccesses { ports: ports.iter().map(access).collect(), withdrawals }
}

#[test]
fn edited_values_and_records_count_as_missing() {
    let store = State::new().open().unwrap();
    store.put_policy(&policies::record("1"), [("a.toml", "# 1")]).unwrap();
    store.put_policy(&policies::record("2"), [("a.toml", "# 2")]).unwrap();
    mesh_state(&store).put_service_certificate(&certificate("shop/a", "1")).unwrap();
    let newest = "policy/00000000000000000001";
    edit(&store, POLICY, newest);
    edit(&store, SERVICE_CERTIFICATES, "shop/a");
    let last_good = store.last_good_policy().unwrap();
    assert_eq!(last_good, Some(vec![("a.toml".to_owned(), "# 1".to_owned())]));
    assert!(mesh_state(&store).service_certificates().unwrap().is_empty());
    assert_eq!(quarantined(&store), [at("policy", newest), at("service_certificates", "shop/a")]);
    // The store accepts new records in their place.
    store.put_policy(&policies::record("3"), [("a.toml", "# 3")]).unwrap();
    mesh_state(&store).put_service_certificate(&certificate("shop/a", "2")).unwrap();
    assert!(quarantined(&store).is_empty());
    let last_good = store.last_good_policy().unwrap();
    assert_eq!(last_good, Some(vec![("a.toml".to_owned(), "# 3".to_owned())]));
}

#[test]
fn edited_tcp_access_costs_one_port() {
    let store = State::new().open().unwrap();
    let state = mesh_state(&store);
    let (none, first) = (TcpAccesses::default(), accesses(&[(1, 1), (2, 5), (3, 1)]));
    assert!(state.replace_tcp_accesses(&none, &first).unwrap());
    assert_eq!(state.tcp_accesses().unwrap(), first);
    edit(&store, TCP_ACCESSES, "shop/a|1");
    edit(&store, TCP_ACCESSES, "shop/a|3");
    edit(&store, TCP_ACCESSES, "withdrawals");
    let read = state.tcp_accesses().unwrap();
    assert_eq!(read, accesses(&[(2, 5)]), "the count is at least that of each port");
    let at_port = |port| at("tcp_accesses", &format!("shop/a|{port}"));
    let withdrawals = at("tcp_accesses", "withdrawals");
    assert_eq!(quarantined(&store), [at_port(1), at_port(3), withdrawals]);
    // The next write replaces or removes what is not authentic.
    let next = accesses(&[(1, 6), (2, 5)]);
    assert!(state.replace_tcp_accesses(&read, &next).unwrap());
    assert_eq!(state.tcp_accesses().unwrap(), next);
    assert!(quarantined(&store).is_empty());
}

#[test]
fn edited_mesh_names_are_rejected() {
    let store = State::new().open().unwrap();
    let domain = Domain::default();
    mesh_state(&store).put_mesh(&domain, &TrustDomain::new(domain.clone())).unwrap();
    edit(&store, MESH, "current");
    let error = mesh_state(&store).mesh().unwrap_err();
    assert!(error.source.to_string().contains("restore the state folder"), "{}", error.source);
}

#[test]
fn older_authority_is_refused_and_never_counts_as_missing() {
    let store = State::new().open().unwrap();
    mesh_state(&store).put_authority(b"older").unwrap();
    let older = store.get_raw(super::AUTHORITY, "current").unwrap().unwrap();
    mesh_state(&store).put_authority(b"newer").unwrap();
    store.put_raw(super::AUTHORITY, "current", &older).unwrap();
    let error = mesh_state(&store).authority().unwrap_err();
    assert!(error.source.to_string().contains("restore the state folder"), "{}", error.source);
    store.remove_all(super::AUTHORITY, &["current".to_owned()]).unwrap();
    assert!(mesh_state(&store).authority().is_err());
}
