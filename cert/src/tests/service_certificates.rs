use std::collections::BTreeSet;

use ironmesh_catalog::{ServiceAccount, ServiceCertificate};
use jiff::SignedDuration;

use super::*;
use crate::{ClockReading, KeepError, ServiceCertificates};

struct Mesh {
    store: Arc<MemoryStore>,
    authority: Authority,
    certificates: ServiceCertificates,
    start: Timestamp,
}

impl Mesh {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let start = now();
        let authority = Authority::open(&*store, &trust_domain(), start).unwrap();
        let certificates = ServiceCertificates::open(store.clone()).unwrap();
        Self { store, authority, certificates, start }
    }

    fn restart(&mut self) {
        self.certificates = ServiceCertificates::open(self.store.clone()).unwrap();
    }

    /// Whether something changed, and whose certificate could not be renewed.
    fn ensure(&mut self, accounts: &[&str], hours: i64) -> (bool, Vec<String>) {
        self.ensure_steady(accounts, hours, 0)
    }

    /// The same after the clock has run steadily for `steady` hours.
    fn ensure_steady(&mut self, accounts: &[&str], hours: i64, steady: u64) -> (bool, Vec<String>) {
        let accounts: BTreeSet<_> = accounts.iter().map(|a| account(a)).collect();
        let steady_for = Duration::from_secs(steady * 3600);
        let clock = ClockReading { now: self.at(hours), steady_for };
        let ensured = self.certificates.ensure(&accounts, &self.authority, DAY, clock).unwrap();
        let failed = ensured.failures.iter().map(|(account, _)| account.to_string()).collect();
        (ensured.changed, failed)
    }

    fn at(&self, hours: i64) -> Timestamp {
        self.start + SignedDuration::from_hours(hours)
    }

    fn serial(&self, name: &str) -> Option<String> {
        self.certificates.current().get(&account(name)).map(|c| c.serial.clone())
    }
}

fn account(name: &str) -> ServiceAccount {
    name.parse().unwrap()
}

#[test]
fn only_accounts_in_use_have_certificates() {
    let mut mesh = Mesh::new();
    assert!(mesh.certificates.current().is_empty());
    assert_eq!(next_renewal(&mesh.certificates), None);
    assert_eq!(mesh.ensure(&["a", "b"], 0), (true, vec![]));
    let (a, b) = (mesh.serial("a"), mesh.serial("b"));
    assert!(a.is_some() && b.is_some() && a != b);
    assert_eq!(mesh.ensure(&["a", "b"], 1), (false, vec![]));
    assert_eq!(mesh.ensure(&["a"], 1), (true, vec![]));
    assert_eq!(mesh.serial("b"), None);
    // It comes back as it was.
    assert_eq!(mesh.ensure(&["a", "b"], 1), (true, vec![]));
    assert_eq!((mesh.serial("a"), mesh.serial("b")), (a, b));
}

#[test]
fn restart_keeps_the_certificates() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a", "b"], 0);
    let before = mesh.certificates.current();
    mesh.restart();
    assert_eq!(mesh.ensure(&["a", "b"], 1), (true, vec![]));
    assert_eq!(mesh.certificates.current(), before);
}

#[test]
fn certificate_is_renewed_after_two_thirds_of_its_life() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a"], 0);
    let first = mesh.serial("a");
    let due = next_renewal(&mesh.certificates).unwrap();
    let hours = (due.as_second() - mesh.start.as_second()) / 3_600;
    assert!((14..=17).contains(&hours), "{hours}");
    assert_eq!(mesh.ensure(&["a"], hours), (false, vec![]));
    assert_eq!(mesh.ensure(&["a"], hours + 1), (true, vec![]));
    assert_ne!(mesh.serial("a"), first);
    assert!(next_renewal(&mesh.certificates).unwrap() > due);
    assert_eq!(mesh.store.kept().certificates[&account("a")].serial, mesh.serial("a").unwrap());
}

#[test]
fn failed_renewal_keeps_certificate_and_spares_other_accounts() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a", "b"], 0);
    let (a, b) = (mesh.serial("a"), mesh.serial("b"));
    mesh.store.kept().rejected = Some(account("a"));
    assert_eq!(mesh.ensure(&["a", "b"], 18), (true, vec!["default/a".to_owned()]));
    assert_eq!(mesh.serial("a"), a);
    assert_ne!(mesh.serial("b"), b);
    assert!(next_renewal(&mesh.certificates).unwrap() < mesh.at(18), "to be tried again");
    // The same holds after it has expired: to remove it would help no caller.
    assert_eq!(mesh.ensure(&["a", "b"], 30).1, ["default/a"]);
    assert_eq!(mesh.serial("a"), a);
    mesh.store.kept().rejected = None;
    assert_eq!(mesh.ensure(&["a", "b"], 30), (true, vec![]));
    assert_ne!(mesh.serial("a"), a);
}

#[test]
fn certificate_that_cannot_be_stored_is_not_published() {
    let mut mesh = Mesh::new();
    mesh.store.kept().rejected = Some(account("a"));
    let accounts = [account("a")].into();
    let clock = ClockReading { now: mesh.start, steady_for: Duration::ZERO };
    let ensured = mesh.certificates.ensure(&accounts, &mesh.authority, DAY, clock).unwrap();
    assert!(!ensured.changed);
    assert!(matches!(ensured.failures.as_slice(), [(_, KeepError::Store(_))]));
    assert_eq!(mesh.serial("a"), None);
}

#[test]
fn certificate_invalid_for_peers_is_replaced_before_publishing() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a", "b"], 0);
    let kept = mesh.store.kept().certificates.clone();
    let (a, b) = (kept[&account("a")].clone(), kept[&account("b")].clone());
    let elsewhere = Mesh::new();
    let foreign =
        elsewhere.authority.issue_service_certificate(&a.account, DAY, mesh.start).unwrap();
    let damaged = [
        ("another's key", ServiceCertificate { key: b.key.clone(), ..a.clone() }),
        ("no chain", ServiceCertificate { chain: String::new(), ..a.clone() }),
        ("another's identity", ServiceCertificate { account: a.account, ..b }),
        ("another authority's", foreign),
    ];
    for (what, certificate) in damaged {
        mesh.store.kept().certificates.insert(account("a"), certificate.clone());
        mesh.restart();
        assert_eq!(mesh.ensure(&["a"], 0), (true, vec![]), "{what}");
        assert_ne!(mesh.certificates.current()[&account("a")].chain, certificate.chain, "{what}");
    }
    // One that has expired while we were off.
    mesh.restart();
    let before = mesh.store.kept().certificates[&account("a")].serial.clone();
    assert_eq!(mesh.ensure(&["a"], 48), (true, vec![]));
    assert_ne!(mesh.serial("a").unwrap(), before);
}

#[test]
fn certificate_issued_by_a_fast_clock_is_valid_for_right_clocks() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a"], 72);
    let certificate = &mesh.certificates.current()[&account("a")];
    assert!(certificate.not_before <= mesh.start, "{}", certificate.not_before);
    let der = leaf(&certificate.chain);
    let begins = inspect::parse(&der).unwrap().validity().not_before.timestamp();
    assert!(begins <= mesh.start.as_second());
    let issued_at = certificate.issued_at().duration_since(mesh.at(72)).as_secs();
    assert!((-3..=0).contains(&issued_at), "{issued_at}");
}

#[test]
fn future_certificate_is_replaced_once_the_clock_is_steady() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a"], 72);
    let serial = mesh.serial("a");
    for steady in [0, 7] {
        assert_eq!(mesh.ensure_steady(&["a"], 0, steady), (false, vec![]), "{steady} h");
    }
    assert_eq!(mesh.serial("a"), serial);
    // Also after a restart.
    mesh.restart();
    assert_eq!(mesh.ensure(&["a"], 0), (true, vec![]));
    assert_eq!(mesh.serial("a"), serial);
    assert_eq!(mesh.ensure_steady(&["a"], 0, 8), (true, vec![]));
    assert_ne!(mesh.serial("a"), serial);
    assert_eq!(mesh.ensure_steady(&["a"], 1, 9), (false, vec![]), "it is of today");
}

#[test]
fn certificate_not_yet_valid_is_published_by_a_slow_clock() {
    let mut mesh = Mesh::new();
    // The authority begins a year before it is made, that is at `start`.
    let year = 365 * 24;
    mesh.store.kept().authority = None;
    mesh.authority = Authority::open(&*mesh.store, &trust_domain(), mesh.at(year)).unwrap();
    mesh.ensure(&["a"], year);
    let serial = mesh.serial("a");
    mesh.restart();
    // The clock is two hours before that: no chain is valid yet by it.
    assert_eq!(mesh.ensure(&["a", "b"], -2), (true, vec![]));
    assert_eq!(mesh.serial("a"), serial, "peers go by their own clocks");
    assert!(mesh.serial("b").is_some());
}

#[test]
fn expired_certificate_is_published_if_its_renewal_fails() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a"], 0);
    let serial = mesh.serial("a");
    mesh.restart();
    mesh.store.kept().rejected = Some(account("a"));
    assert_eq!(mesh.ensure(&["a"], 72), (true, vec!["default/a".to_owned()]));
    assert_eq!(mesh.serial("a"), serial, "perhaps the clock is wrong");
}

#[test]
fn new_authority_replaces_all_certificates_at_once() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a"], 0);
    let first = mesh.serial("a");
    mesh.authority = authority();
    assert_eq!(mesh.ensure(&["a"], 0), (true, vec![]));
    assert_ne!(mesh.serial("a"), first);
}

/// When the first of the certificates in use is due.
fn next_renewal(certificates: &ServiceCertificates) -> Option<Timestamp> {
    certificates.current().values().map(|certificate| certificate.renew_at).min()
}

#[test]
fn refused_certificate_is_replaced_once_and_remembered() {
    let mut mesh = Mesh::new();
    mesh.ensure(&["a", "b"], 0);
    let (a, b) = (mesh.serial("a").unwrap(), mesh.serial("b"));
    let old = mesh.certificates.current()[&account("a")].clone();
    let name = trust_domain().shared_dns_name(&a);
    assert_eq!(old.history.dns_name.as_ref(), Some(&name));
    let der = leaf(&old.chain);
    let names = inspect::parse(&der).unwrap();
    let names = names.subject_alternative_name().unwrap().unwrap();
    let names: Vec<_> = names.value.general_names.iter().map(ToString::to_string).collect();
    assert!(names.len() == 2 && names[1].contains(&name), "{names:?}");

    assert!(!mesh.certificates.refuse(["of another account".to_owned()].into()));
    assert!(mesh.certificates.refuse([a.clone()].into()));
    assert_eq!(mesh.ensure(&["a", "b"], 1), (true, vec![]));
    let new = mesh.certificates.current()[&account("a")].clone();
    assert!(new.serial != a && mesh.serial("b") == b);
    assert_eq!(new.history.reissues, 1);
    let earlier: Vec<_> = new.history.earlier.iter().map(|one| &*one.serial).collect();
    assert_eq!(earlier, [&a]);
    assert_eq!(mesh.ensure(&["a", "b"], 1), (false, vec![]), "it is replaced once");
    assert_eq!(mesh.certificates.shared(&account("a"), mesh.at(1)).len(), 2);
    assert_eq!(
        mesh.certificates.shared(&account("a"), mesh.at(48)).len(),
        2,
        "a clock may be wrong"
    );
    assert_eq!(mesh.certificates.shared(&account("a"), mesh.at(120)).len(), 0);

    // A restart and a renewal keep the number, and forget what no peer accepts.
    mesh.restart();
    assert!(!mesh.certificates.refuse([a].into()));
    assert_eq!(mesh.ensure(&["a", "b"], 1), (true, vec![]));
    assert_eq!(mesh.certificates.current()[&account("a")], new);
    mesh.ensure(&["a", "b"], 120);
    let renewed = mesh.certificates.current()[&account("a")].clone();
    assert_eq!(renewed.history.reissues, 1);
    let earlier: Vec<_> = renewed.history.earlier.iter().map(|one| &*one.serial).collect();
    assert!(earlier.is_empty() || earlier == [&*new.serial], "{earlier:?}");
}

#[test]
fn certificate_of_a_faster_control_plane_is_used_by_both() {
    let mut mesh = Mesh::new();
    // Another control plane of the mesh, on the same store, which issues first each time.
    let mut other = ServiceCertificates::open(mesh.store.clone()).unwrap();
    let accounts: BTreeSet<_> = [account("a"), account("b")].into();
    for hours in [0, 20] {
        let clock = ClockReading { now: mesh.at(hours), steady_for: Duration::ZERO };
        let ensured = other.ensure(&accounts, &mesh.authority, DAY, clock).unwrap();
        assert!(ensured.failures.is_empty());
        assert_eq!(mesh.ensure(&["a", "b"], hours), (true, vec![]));
        assert_eq!(mesh.certificates.current(), other.current());
    }
    // It follows what is stored later, without a renewal that is due.
    let before = mesh.serial("a");
    let serials = before.iter().cloned().collect();
    assert!(other.refuse(serials));
    let clock = ClockReading { now: mesh.at(21), steady_for: Duration::ZERO };
    assert!(other.ensure(&accounts, &mesh.authority, DAY, clock).unwrap().changed);
    assert!(mesh.certificates.reread(&account("a")).unwrap());
    assert!(!mesh.certificates.reread(&account("b")).unwrap());
    assert_eq!(mesh.ensure(&["a", "b"], 21), (true, vec![]));
    assert_ne!(mesh.serial("a"), before);
    assert_eq!(mesh.certificates.current(), other.current());
}

/// One of the two clocks is wrong, and neither control plane can know which.
#[test]
fn differing_clocks_renew_once_for_each_third_of_the_lifetime() {
    for ahead in [6, 12, 20, 23] {
        let mut mesh = Mesh::new();
        let mut other = ServiceCertificates::open(mesh.store.clone()).unwrap();
        let accounts: BTreeSet<_> = [account("a")].into();
        let steady_for = DAY * 365;
        let mut serials = BTreeSet::new();
        // Each quarter of an hour, for two days.
        for quarter in 0..4 * 48 {
            let now = mesh.start + SignedDuration::from_mins(15 * quarter);
            for (certificates, now) in [
                (&mut mesh.certificates, now),
                (&mut other, now + SignedDuration::from_hours(ahead)),
            ] {
                certificates.reread(&account("a")).unwrap();
                let clock = ClockReading { now, steady_for };
                let ensured = certificates.ensure(&accounts, &mesh.authority, DAY, clock).unwrap();
                assert!(ensured.failures.is_empty());
                // Peers with its clock accept what it publishes.
                let current = certificates.current();
                let current = &current[&account("a")];
                assert!(current.not_before <= now && now < current.not_after, "{ahead} h, {now}");
                // A revocation reaches it, whatever the other one has stored.
                let shared = certificates.shared(&account("a"), now);
                assert!(shared.iter().any(|one| one.serial == current.serial), "{ahead} h, {now}");
                serials.insert(current.serial.clone());
            }
        }
        // Six thirds of a day, two control planes, and the certificates are shorter than a day by their jitter.
        assert!((3..=2 * 8).contains(&serials.len()), "{ahead} h: {} renewals", serials.len());
    }
}

#[test]
fn revoked_certificate_is_replaced_soon_after_a_renewal() {
    let mut mesh = Mesh::new();
    mesh.ensure_steady(&["a"], 0, 1);
    let serials: BTreeSet<_> = mesh.serial("a").into_iter().collect();
    assert!(mesh.certificates.refuse(serials.clone()));
    assert_eq!(mesh.ensure_steady(&["a"], 1, 2), (true, vec![]));
    assert!(!serials.contains(&mesh.serial("a").unwrap()));
}
