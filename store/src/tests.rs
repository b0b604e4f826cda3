mod accepted_removals;
mod authentication;
mod failures;
mod high_water;
mod journal;
mod migration;
mod policies;
mod record_cipher;
mod records;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ironmesh_catalog::{
    CertificateHistory, CertificateStore, Domain, Endpoint, JoinRecord, KeptEndpoints,
    Participation, Provider, ProxyId, Secret, ServiceCertificate, StoreError, TrustDomain,
};
use jiff::Timestamp;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::database::{META, Table};

const AUTHORITY: Table = redb::TableDefinition::new("authority");
const SERVICE_CERTIFICATES: Table = redb::TableDefinition::new("service_certificates");
const JOIN_RECORDS: Table = redb::TableDefinition::new("join_records");
const JOURNAL: Table = redb::TableDefinition::new("journal");
const MESH: Table = redb::TableDefinition::new("mesh");
const TCP_ACCESSES: Table = redb::TableDefinition::new("tcp_accesses");

const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n";

/// A state folder that does not exist yet; the test removes it at its end.
struct State(TempDir);

impl State {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn database(&self) -> PathBuf {
        self.folder().join("state.redb")
    }

    fn kek(&self) -> PathBuf {
        self.folder().join("kek")
    }

    fn key(&self) -> Result<KeyEncryptionKey, KeyError> {
        KeyEncryptionKey::load_or_create(&self.kek(), Store::database_exists(&self.folder()))
    }

    fn mark(&self) -> PathBuf {
        self.folder().join("high-water")
    }

    fn open(&self) -> Result<Arc<Store>, OpenError> {
        Store::open(&self.folder(), self.key().unwrap()).map(Arc::new)
    }
}

/// Certificates in place of those that the store has.
trait PutCertificates {
    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError>;
    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError>;
}

impl PutCertificates for MeshState {
    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError> {
        let old = self.authority()?;
        assert!(self.replace_authority(old.as_deref(), material)?);
        Ok(())
    }

    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError> {
        let old = self.service_certificate(&certificate.account)?;
        assert!(self.replace_service_certificate(old.as_ref(), certificate)?);
        Ok(())
    }
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn certificate(account: &str, serial: &str) -> ServiceCertificate {
    ServiceCertificate {
        account: account.parse().unwrap(),
        chain: "-----BEGIN CERTIFICATE-----".to_owned(),
        key: Secret::new(PEM.to_owned()),
        serial: serial.to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::UNIX_EPOCH,
        renew_at: Timestamp::UNIX_EPOCH,
        history: CertificateHistory::default(),
    }
}

fn record(id: u128) -> JoinRecord {
    let service = "shop/bookstore".parse().unwrap();
    JoinRecord {
        claimed_at: (id == 1).then_some(Timestamp::UNIX_EPOCH),
        participation: Participation(
            [(ironmesh_catalog::ServiceName::clone(&service), 14001)].into(),
        ),
        ..JoinRecord::new(
            ProxyId(Uuid::from_u128(id)),
            vec![service],
            "[2001:db8::1]:15003".parse().unwrap(),
            "2026-11-21T07:00:00Z".parse().unwrap(),
            "2027-11-21T07:00:00Z".parse().unwrap(),
        )
    }
}

/// Join records, stored without an expected version.
trait JoinRecords {
    fn put_join_records(&self, records: &[JoinRecord]) -> Result<RecordVersion, RecordError>;
    fn put_join_record(&self, record: &JoinRecord) -> Result<RecordVersion, RecordError> {
        self.put_join_records(std::slice::from_ref(record))
    }
    fn remove_join_records(&self, proxies: &[ProxyId]) -> Result<RecordVersion, RecordError>;
    fn join_records(&self) -> Result<Vec<JoinRecord>, RecordError>;
}

impl JoinRecords for Arc<Store> {
    fn put_join_records(&self, records: &[JoinRecord]) -> Result<RecordVersion, RecordError> {
        let put = |record| RecordChange::put(record, ExpectedVersion::Any).unwrap();
        self.commit(&records.iter().map(put).collect::<Vec<_>>())
    }

    fn remove_join_records(&self, proxies: &[ProxyId]) -> Result<RecordVersion, RecordError> {
        let remove =
            |id: &ProxyId| RecordChange::remove::<JoinRecord>(id.to_string(), ExpectedVersion::Any);
        self.commit(&proxies.iter().map(remove).collect::<Vec<_>>())
    }

    fn join_records(&self) -> Result<Vec<JoinRecord>, RecordError> {
        let listed = table(self).list()?.into_iter();
        Ok(listed.map(|record| record.value).collect())
    }
}

fn mesh_state(store: &Arc<Store>) -> Arc<MeshState> {
    MeshState::new(Arc::<Store>::clone(store))
}

fn table(store: &Arc<Store>) -> RecordTable<JoinRecord> {
    RecordTable::new(Arc::<Store>::clone(store))
}

fn copy(store: &Store, from: (Table, &str), to: (Table, &str)) {
    let value = store.get_raw(from.0, from.1).unwrap().unwrap();
    store.put_raw(to.0, to.1, &value).unwrap();
}

#[test]
fn stored_data_survives_a_restart() {
    let state = State::new();
    let mesh = (Domain::default(), TrustDomain::new(Domain::new("example.org").unwrap()));
    let policy = vec![("shop/a.toml".to_owned(), "[[service]]\n".to_owned())];
    {
        let store = state.open().unwrap();
        assert_eq!(mesh_state(&store).mesh().unwrap(), None);
        assert_eq!(mesh_state(&store).authority().unwrap(), None);
        assert_eq!(store.last_good_policy().unwrap(), None);
        assert!(mesh_state(&store).service_certificates().unwrap().is_empty());
        assert!(store.join_records().unwrap().is_empty());
        mesh_state(&store).put_mesh(&mesh.0, &mesh.1).unwrap();
        mesh_state(&store).put_authority(b"material").unwrap();
        store.put_policy(&policies::record("1"), [("shop/a.toml", "[[service]]\n")]).unwrap();
        mesh_state(&store).put_service_certificate(&certificate("shop/a", "1")).unwrap();
        mesh_state(&store).put_service_certificate(&certificate("shop/b", "2")).unwrap();
        mesh_state(&store).put_service_certificate(&certificate("shop/a", "3")).unwrap();
        for id in [300, 2, 1 << 100, 1] {
            store.put_join_record(&record(id)).unwrap();
        }
        store.put_join_record(&record(2)).unwrap();
    }
    let store = state.open().unwrap();
    assert_eq!(mesh_state(&store).mesh().unwrap(), Some(mesh));
    assert_eq!(mesh_state(&store).authority().unwrap().unwrap(), b"material");
    assert_eq!(store.last_good_policy().unwrap(), Some(policy));
    let kept = [certificate("shop/a", "3"), certificate("shop/b", "2")];
    assert_eq!(mesh_state(&store).service_certificates().unwrap(), kept);
    assert_eq!(store.join_records().unwrap(), [1, 2, 300, 1 << 100].map(record));
}

#[test]
fn domain_and_trust_domain_cannot_change_later() {
    let state = State::new();
    let store = state.open().unwrap();
    let (domain, other) = (Domain::default(), Domain::new("other.internal").unwrap());
    let trust_domain = TrustDomain::new(domain.clone());
    mesh_state(&store).put_mesh(&domain, &trust_domain).unwrap();
    mesh_state(&store).put_mesh(&domain, &trust_domain).unwrap();
    assert!(mesh_state(&store).put_mesh(&other, &trust_domain).is_err());
    assert!(mesh_state(&store).put_mesh(&domain, &TrustDomain::new(other)).is_err());
    assert_eq!(mesh_state(&store).mesh().unwrap(), Some((domain, trust_domain)));
}

#[test]
fn wrong_key_is_rejected_and_the_right_one_still_opens() {
    let state = State::new();
    mesh_state(&state.open().unwrap()).put_authority(b"material").unwrap();
    let mark = fs_err::read(state.mark()).unwrap();
    let wrong = state.0.path().join("wrong");
    let key = KeyEncryptionKey::load_or_create(&wrong, false).unwrap();
    let error = Store::open(&state.folder(), key).unwrap_err();
    assert!(matches!(&error, OpenError::WrongKey { key, .. } if *key == wrong), "{error}");
    assert!(error.to_string().contains(wrong.to_str().unwrap()), "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(fs_err::read(state.mark()).unwrap(), mark);
    assert_eq!(mesh_state(&state.open().unwrap()).authority().unwrap().unwrap(), b"material");
}

#[test]
fn missing_key_is_never_replaced_if_a_database_exists() {
    let state = State::new();
    drop(state.open().unwrap());
    fs_err::remove_file(state.kek()).unwrap();
    let error = state.key().unwrap_err();
    assert!(matches!(error, KeyError::Missing { .. }), "{error}");
    assert!(!state.kek().exists());
}

#[test]
fn exposed_or_malformed_key_is_rejected() {
    let state = State::new();
    state.key().unwrap();
    set_mode(&state.kek(), 0o640);
    let error = state.key().unwrap_err();
    assert!(matches!(error, KeyError::OpenToOthers { mode: 0o640, .. }), "{error}");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    set_mode(&state.kek(), 0o400);
    state.key().unwrap();
    set_mode(&state.kek(), 0o600);
    let text = fs_err::read_to_string(state.kek()).unwrap();
    for bad in ["", &text[1..], &format!("{text}00"), &text.replacen(&text[..2], "+f", 1), "ü"] {
        fs_err::write(state.kek(), bad).unwrap();
        let error = state.key().unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{bad:?}: {error}");
    }
    fs_err::write(state.kek(), [0xff; 64]).unwrap();
    assert!(matches!(state.key().unwrap_err(), KeyError::Malformed { .. }));
    fs_err::write(state.kek(), text.to_uppercase().trim_end()).unwrap();
    state.key().unwrap();
}

#[test]
fn key_is_stable_across_starts_and_unique_per_state_folder() {
    let (one, other) = (State::new(), State::new());
    assert_eq!(one.key().unwrap().bytes(), one.key().unwrap().bytes());
    assert_ne!(one.key().unwrap().bytes(), other.key().unwrap().bytes());
    assert!(!format!("{:?}", one.key().unwrap()).contains("bytes"));
}

#[test]
fn state_folder_in_use_is_rejected() {
    let state = State::new();
    let store = state.open().unwrap();
    let error = state.open().unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("another `ironmesh serve`"), "{error}");
    drop(store);
    state.open().unwrap();
}

#[test]
fn private_keys_are_not_readable_in_the_files() {
    let state = State::new();
    let store = state.open().unwrap();
    mesh_state(&store).put_authority(PEM.as_bytes()).unwrap();
    mesh_state(&store).put_service_certificate(&certificate("shop/a", "1")).unwrap();
    store.put_policy(&policies::record("1"), [("a.toml", "in the clear")]).unwrap();
    drop(store);
    let raw = fs_err::read(state.database()).unwrap();
    let has = |text: &[u8]| raw.windows(text.len()).any(|window| window == text);
    assert!(has(b"in the clear"), "the search itself works");
    assert!(!has(b"PRIVATE KEY"));
    assert!(!has(b"MIGHAgEAMBMGByqGSM49"));
}

#[test]
fn files_are_owner_only_and_no_temporary_files_remain() {
    let state = State::new();
    drop(state.open().unwrap());
    assert_eq!(mode(&state.folder()), 0o700);
    let mut names: Vec<_> =
        fs_err::read_dir(state.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["high-water", "kek", "state.redb"]);
    for name in names {
        assert_eq!(mode(&state.folder().join(name)), 0o600);
    }
}

#[test]
fn own_folder_and_database_permissions_are_tightened() {
    let state = State::new();
    fs_err::create_dir(state.folder()).unwrap();
    set_mode(&state.folder(), 0o755);
    drop(state.open().unwrap());
    assert_eq!(mode(&state.folder()), 0o700);
    set_mode(&state.folder(), 0o750);
    set_mode(&state.database(), 0o664);
    drop(state.open().unwrap());
    assert_eq!((mode(&state.folder()), mode(&state.database())), (0o700, 0o600));
}

#[test]
fn open_folder_with_other_files_is_rejected_unchanged() {
    let state = State::new();
    fs_err::create_dir(state.folder()).unwrap();
    set_mode(&state.folder(), 0o755);
    fs_err::write(state.folder().join("notes.txt"), "mine").unwrap();
    let error = state.open().unwrap_err();
    assert!(matches!(error, OpenError::OpenToOthers { mode: 0o755, .. }), "{error}");
    assert!(error.to_string().contains("chmod 700"), "{error}");
    assert_eq!(mode(&state.folder()), 0o755);
    assert!(!state.database().exists());
}

#[test]
fn sealed_value_does_not_open_in_a_different_place() {
    let state = State::new();
    let store = state.open().unwrap();
    mesh_state(&store).put_service_certificate(&certificate("shop/a", "1")).unwrap();
    copy(&store, (SERVICE_CERTIFICATES, "shop/a"), (SERVICE_CERTIFICATES, "shop/b"));
    assert_eq!(mesh_state(&store).service_certificates().unwrap(), [certificate("shop/a", "1")]);
    copy(&store, (SERVICE_CERTIFICATES, "shop/a"), (AUTHORITY, "current"));
    assert!(mesh_state(&store).authority().is_err());
    store.put_raw(AUTHORITY, "current", b"short").unwrap();
    assert!(mesh_state(&store).authority().is_err());
    let replaced = mesh_state(&store).replace_authority(None, b"m");
    assert!(replaced.is_err(), "an authority that is not authentic is never replaced");
    // Sealing the same plaintext twice gives different bytes.
    let state = State::new();
    let store = state.open().unwrap();
    mesh_state(&store).put_authority(b"m").unwrap();
    let first = store.get_raw(AUTHORITY, "current").unwrap();
    mesh_state(&store).put_authority(b"m").unwrap();
    assert_ne!(store.get_raw(AUTHORITY, "current").unwrap(), first);
}

#[test]
fn newer_format_is_rejected_and_nothing_is_changed() {
    let state = State::new();
    let store = state.open().unwrap();
    store.put_join_record(&record(1)).unwrap();
    store.put_raw(META, open::FORMAT_KEY, (open::FORMAT + 1).to_string().as_bytes()).unwrap();
    drop(store);
    let mark = fs_err::read(state.mark()).unwrap();
    let error = state.open().unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 5, known: 4, .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("format 5") && words.contains("formats up to 4"), "{words}");
    assert_eq!(fs_err::read(state.mark()).unwrap(), mark);
    // As the newer version would find it again.
    let database = redb::Database::open(state.database()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert(open::FORMAT_KEY, b"4".as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert_eq!(state.open().unwrap().join_records().unwrap(), [record(1)]);
}

#[test]
fn foreign_database_file_is_rejected_unchanged() {
    let state = State::new();
    state.key().unwrap();
    for content in [&b""[..], b"not a database"] {
        fs_err::write(state.database(), content).unwrap();
        let error = state.open().unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert_eq!(fs_err::read(state.database()).unwrap(), content);
    }
    fs_err::remove_file(state.database()).unwrap();
    drop(redb::Database::create(state.database()).unwrap());
    assert!(matches!(state.open().unwrap_err(), OpenError::Damaged { .. }));
}

#[test]
fn uncreatable_folder_error_names_the_path() {
    // A path below a regular file fails for root, too.
    let state = State::new();
    let key = state.key().unwrap();
    let folder = state.kek().join("state");
    let error = Store::open(&folder, key).unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
    let error = KeyEncryptionKey::load_or_create(&folder.join("kek"), false).unwrap_err();
    assert!(matches!(error, KeyError::Unusable { .. }), "{error}");
}

#[test]
fn concurrent_first_starts_agree_on_one_key_and_database() {
    let state = State::new();
    let start = || match state.open() {
        Ok(store) => Some(store),
        Err(OpenError::InUse { .. }) => None,
        Err(other) => panic!("{other}: {:?}", std::error::Error::source(&other)),
    };
    // Each thread holds its result until all starts have ended, so exactly one start succeeds.
    let opened: Vec<Arc<Store>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.len(), 1);
    drop(opened);
    state.open().unwrap();
}

#[test]
fn join_record_of_old_format_is_read_and_removals_persist() {
    let state = State::new();
    let store = state.open().unwrap();
    let old = record(1);
    let mut json: serde_json::Value = serde_json::to_value(&old).unwrap();
    assert!(
        json.as_object_mut().unwrap().remove("revoked").is_none(),
        "JSON omits an empty `revoked`"
    );
    let (table, key) = (JoinRecord::TABLE, old.id.to_string());
    let value = Some(json.to_string().into_bytes().into());
    let put = RecordChange { table, key, expected: ExpectedVersion::Absent, value };
    store.commit(&[put]).unwrap();
    for id in [2, 3, 4] {
        store.put_join_record(&record(id)).unwrap();
    }
    store.remove_join_records(&[record(2).id, record(4).id, record(5).id]).unwrap();
    drop(store);
    assert_eq!(state.open().unwrap().join_records().unwrap(), [record(1), record(3)]);
}

#[test]
fn join_record_machine_is_stored_and_missing_in_old_records() {
    let state = State::new();
    let store = state.open().unwrap();
    let mut newer = record(1);
    newer.machine = Some(Uuid::from_u128(7));
    store.put_join_records(std::slice::from_ref(&newer)).unwrap();
    assert_eq!(store.join_records().unwrap(), std::slice::from_ref(&newer));
    // The record as versions without machine addresses wrote it.
    let older = serde_json::to_value(record(1)).unwrap();
    assert_eq!(older.get("machine"), None);
    assert_eq!(serde_json::from_value::<JoinRecord>(older).unwrap(), record(1));
}

#[test]
fn kept_endpoints_are_stored_removed_and_empty_in_old_state() {
    let state = State::new();
    let kept = |last: u8, service: &str| KeptEndpoints {
        provider: Provider::Consul,
        service: service.parse().unwrap(),
        learned_at: Timestamp::UNIX_EPOCH,
        endpoints: Arc::new(vec![Endpoint::new(Provider::Consul, [10, 0, 0, last].into())]),
    };
    let (one, other) = (kept(1, "shop/a"), kept(2, "shop/b"));
    {
        let store = state.open().unwrap();
        store.keep_endpoints(&[one.clone(), other.clone()], &[]).unwrap();
        assert_eq!(store.kept_endpoints().unwrap().0, [one, other]);
    }
    {
        let store = state.open().unwrap();
        let newer = kept(3, "shop/a");
        let gone = (Provider::Consul, "shop/b".parse().unwrap());
        store.keep_endpoints(std::slice::from_ref(&newer), &[gone]).unwrap();
        assert_eq!(store.kept_endpoints().unwrap().0, [newer]);
        store.put(database::ENDPOINTS, "nomad/shop/c", br#"{"provider":"nomad"}"#).unwrap();
        let (kept, unreadable) = store.kept_endpoints().unwrap();
        assert_eq!((kept.len(), unreadable), (1, vec!["nomad/shop/c".to_owned()]));
        store.drop_table(database::ENDPOINTS);
    }
    let store = state.open().unwrap();
    assert_eq!(store.kept_endpoints().unwrap(), (vec![], vec![]));
}
