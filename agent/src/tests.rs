//! Tests of the files of a machine, and of when they change.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fs_err as fs;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{Domain, ProxyId, TrustDomain};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{Authority, generate_proxy_key_and_csr, proxy_csr};
use ironmesh_enrollment::{ControlPlaneAddress, RetryNotice};
use ironmesh_sidecar_folder::EnrollmentState;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tempfile::TempDir;

use crate::machine_folder::MachineFolder;
use crate::pending_key::PendingKey;
use crate::{AgentError, RenewOutcome, RenewWhen, due_at, renew};

const DAY: Duration = Duration::from_secs(86_400);

/// The folder of a proxy, whose certificate was issued at `now` for a day.
pub(crate) struct Machine {
    folder: TempDir,
    issued_at: Timestamp,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let issued_at = Timestamp::now();
        let trust_domain = TrustDomain::new(Domain::default());
        let authority = Authority::ephemeral(&trust_domain, issued_at).unwrap();
        let (key, csr) = generate_proxy_key_and_csr().unwrap();
        let id: ProxyId = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap();
        let services = ["shop/bookstore".parse().unwrap()];
        let issued = authority.issue_proxy_certificate(&csr, id, &services, DAY, issued_at);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("proxy.crt", &issued.unwrap().chain);
        write("proxy.key", key.expose());
        write("ca.crt", &authority.trust_bundle().roots);
        // Nothing listens there.
        let addresses = EnrollmentState::new(&[("127.0.0.1".to_owned(), 1)], Some(issued_at));
        write("enrollment.json", &addresses.to_json());
        Self { folder, issued_at }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn proxy(&self) -> VerifiedProxy {
        MachineFolder::open(self.path()).unwrap().files.proxy
    }

    /// The name, content and modification time of each file.
    fn files(&self) -> BTreeSet<(String, String, std::time::SystemTime)> {
        let files = fs::read_dir(self.path()).unwrap().map(Result::unwrap);
        files
            .map(|file| {
                let changed = file.metadata().unwrap().modified().unwrap();
                let content = fs::read_to_string(file.path()).unwrap();
                (file.file_name().into_string().unwrap(), content, changed)
            })
            .collect()
    }

    fn after(&self, hours: i64) -> Timestamp {
        self.issued_at + SignedDuration::from_hours(hours)
    }
}

#[test]
fn due_point_is_stable_and_spread_before_two_thirds() {
    let machine = Machine::new();
    let (proxy, issued_at) = (machine.proxy(), Some(machine.issued_at));
    assert_eq!(due_at(&proxy, issued_at), due_at(&proxy, issued_at));
    let lifetime = proxy.not_after.duration_since(machine.issued_at).as_secs_f64();
    // The serials of a fleet.
    let points: Vec<f64> = (0..100)
        .map(|index: u32| {
            let serial = format!("0123456789abcdef{:08x}", index * (u32::MAX / 99));
            let due = due_at(&VerifiedProxy { serial, ..proxy.clone() }, issued_at);
            due.duration_since(machine.issued_at).as_secs_f64() / lifetime
        })
        .collect();
    assert!(points.iter().all(|point| (0.499..=0.631).contains(point)), "{points:?}");
    for tenth in 0..10 {
        let begin = 0.5 + 0.013 * f64::from(tenth);
        let inside = points.iter().filter(|point| (begin..begin + 0.013).contains(*point)).count();
        assert!((8..=12).contains(&inside), "{inside} of 100 from {begin} on");
    }
}

#[test]
fn unknown_time_of_issue_counts_as_thirty_days_before_expiry() {
    let proxy = Machine::new().proxy();
    let before_expiry = |issued_at| proxy.not_after.duration_since(due_at(&proxy, issued_at));
    let unknown = before_expiry(None);
    assert!(SignedDuration::from_hours(24 * 9) <= unknown && unknown.as_hours() <= 24 * 15);
    // A wrong one counts as unknown.
    assert_eq!(before_expiry(Some(proxy.not_after)), unknown);
}

#[tokio::test(start_paused = true)]
async fn renewal_before_the_due_point_contacts_no_control_plane() {
    let machine = Machine::new();
    let before = machine.files();
    let outcome =
        renew(machine.path(), RenewWhen::Due, machine.after(11), &[], |_, _| {}).await.unwrap();
    let RenewOutcome::NotDue { due_at, expires_at, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(machine.after(11) < due_at && due_at < machine.after(17) && due_at < expires_at);
    assert_eq!(machine.files(), before);
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_leaves_all_files_unchanged() {
    static NOTICES: AtomicUsize = AtomicUsize::new(0);
    let machine = Machine::new();
    let before = machine.files();
    let notice: RetryNotice = |error, left| {
        assert!(error.brief().starts_with("cannot reach https://127.0.0.1:1: "), "{error}");
        assert!(left > Duration::from_secs(50), "{left:?}");
        NOTICES.fetch_add(1, Ordering::Relaxed);
    };
    // Due, forced, and expired.
    for (when, hours) in [(RenewWhen::Due, 18), (RenewWhen::Now, 1), (RenewWhen::Due, 30)] {
        let error =
            renew(machine.path(), when, machine.after(hours), &[], notice).await.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains("its files are unchanged"), "{error}");
        assert_eq!(machine.files(), before);
    }
    assert_eq!(NOTICES.load(Ordering::Relaxed), 3, "one for each run");
}

#[tokio::test(start_paused = true)]
async fn renewal_is_due_when_the_addresses_differ() {
    let machine = Machine::new();
    let before = machine.files();
    let address = |port| ControlPlaneAddress { host: "127.0.0.1".to_owned(), port };
    let run = async |addresses: &[ControlPlaneAddress]| {
        let now = machine.after(11);
        renew(machine.path(), RenewWhen::Due, now, addresses, |_, _| {}).await
    };
    // The same as in the folder, in one form or the other.
    let same = run(&[address(1)]).await;
    assert!(matches!(same, Ok(RenewOutcome::NotDue { .. })), "{same:?}");
    // Another one, one more, and one of two in a different order: the request goes to these.
    for addresses in [vec![address(2)], vec![address(1), address(2)], vec![address(2), address(1)]]
    {
        let error = run(&addresses).await.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        let first = format!("127.0.0.1:{}", addresses[0].port);
        assert!(error.to_string().contains(&first) || chain(&error).contains(&first), "{error:?}");
    }
    assert_eq!(machine.files(), before, "a failed renewal does not store the addresses");
}

#[tokio::test]
async fn locked_folder_is_not_renewed_by_a_second_run() {
    let machine = Machine::new();
    let first = MachineFolder::open(machine.path()).unwrap();
    let second =
        renew(machine.path(), RenewWhen::Now, machine.issued_at, &[], |_, _| {}).await.unwrap_err();
    assert!(matches!(second, AgentError::Locked { .. }), "{second}");
    drop(first);
    MachineFolder::open(machine.path()).unwrap();
}

#[tokio::test]
async fn folder_without_an_address_names_the_file_to_write() {
    let machine = Machine::new();
    let file = machine.path().join("enrollment.json");
    for content in [None, Some("{}"), Some("{\"addresses\": []}"), Some("{\"addresses\": [\"/\"]}")]
    {
        match content {
            None => fs::remove_file(&file).unwrap(),
            Some(content) => fs::write(&file, content).unwrap(),
        }
        let error = renew(machine.path(), RenewWhen::Now, machine.issued_at, &[], |_, _| {})
            .await
            .unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("enrollment.json") && words.contains("https://HOST:15129"),
            "{words}"
        );
    }
}

#[test]
fn folder_without_a_proxy_is_rejected_with_the_missing_files() {
    let machine = Machine::new();
    fs::remove_file(machine.path().join("proxy.key")).unwrap();
    fs::remove_file(machine.path().join("ca.crt")).unwrap();
    let error = MachineFolder::open(machine.path()).unwrap_err().to_string();
    assert!(error.contains("is not the folder of a proxy: it has no proxy.key, ca.crt"), "{error}");
}

#[test]
fn files_are_replaced_together_or_not_at_all() {
    let machine = Machine::new();
    let read = |name: &str| fs::read_to_string(machine.path().join(name)).unwrap();
    let before = machine.files();
    let folder = MachineFolder::open(machine.path()).unwrap();
    // The second file cannot be written.
    let obstacle = machine.path().join(".proxy.crt.new");
    fs::create_dir(&obstacle).unwrap();
    folder.replace(&[("ca.crt", "roots"), ("proxy.crt", "new")]).unwrap_err();
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(machine.files(), before);
    // A run that was interrupted left this one.
    fs::write(&obstacle, "half").unwrap();
    folder.replace(&[("ca.crt", "roots"), ("proxy.crt", "new")]).unwrap();
    assert_eq!((read("ca.crt"), read("proxy.crt")), ("roots".to_owned(), "new".to_owned()));
    assert_eq!(machine.files().len(), before.len());
    let mode = fs::metadata(machine.path().join("proxy.crt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn unfinished_join_keeps_its_key_for_the_same_token() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("proxy");
    let [one, other] = ["0000000000000001", "0000000000000002"];
    let first = PendingKey::open(&out, one).unwrap();
    let (key, path) = (first.key().expose().to_owned(), first.path().to_owned());
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = PendingKey::open(&out, one).unwrap_err();
    assert!(matches!(second, AgentError::Locked { .. }), "{second}");
    drop(first);

    let again = PendingKey::open(&out, one).unwrap();
    assert_eq!(again.key().expose(), key);
    assert_ne!(PendingKey::open(&out, other).unwrap().key().expose(), key);
    again.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn partly_written_key_is_made_anew_and_an_exposed_one_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("proxy");
    let token = "0000000000000001";
    let path = PendingKey::open(&out, token).unwrap().path().to_owned();
    let half: String = fs::read_to_string(&path).unwrap().chars().take(80).collect();
    fs::write(&path, &half).unwrap();
    let key = PendingKey::open(&out, token).unwrap();
    proxy_csr(key.key()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), key.key().expose());
    drop(key);
    fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = PendingKey::open(&out, token).unwrap_err();
    assert!(matches!(error, AgentError::ExposedKey { .. }), "{error}");
}

#[test]
fn request_of_a_stored_key_is_for_that_key() {
    let machine = Machine::new();
    let folder = MachineFolder::open(machine.path()).unwrap();
    let request = proxy_csr(&folder.files.identity.key).unwrap();
    let request = ironmesh_cert::MachineRequest::parse(&request).unwrap();
    assert_eq!(request.public_key(), folder.files.proxy.public_key);
    CertificateDer::from_pem_slice(folder.files.identity.certificate.as_bytes()).unwrap();
}
