//! Service certificates for keys of machines.

use ironmesh_catalog::{
    IssuedWorkloadCertificate, JoinRecord, ServiceSecret, WorkloadCertificates,
};
use ironmesh_cert::WorkloadLeaf;
use ironmesh_config_language::{Document, load_documents};

use super::*;

const POLICY: &str = r#"
[[service]]
namespace = "shop"
name = "bookstore"
service_account = "store"

[[service]]
namespace = "shop"
name = "reviews"

[[service]]
namespace = "shop"
name = "other"
"#;

/// A world with this policy and an enrolled proxy of two services, and its certificate.
fn joined(policy: &str) -> (World, Arc<JoinRecord>, String) {
    let mut world = world();
    let loaded = load_documents([Document::new("policy.toml", policy)]);
    let specification = loaded.specification;
    let state = PolicyState { specification, ..PolicyState::default() };
    let policy = watch::Sender::new(state).subscribe();
    let enroller = world.another_control_plane();
    world.enroller = Arc::new(MachineEnrollment { policy, ..enroller });
    let token = world.token_for(|token| token.services.push("shop/reviews".parse().unwrap()));
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let record = world.record(enrolled.id);
    (world, record, enrolled.certificate)
}

impl World {
    fn service_certificate(
        &self,
        certificate: &str,
        secret: &str,
        after: SignedDuration,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        let secret: ServiceSecret = secret.parse().unwrap();
        let request = WorkloadRequest { proxy: verified(certificate), secret, request: request() };
        self.enroller.issue_workload_certificate(&request, peer(5), self.now + after)
    }
}

#[test]
fn account_of_a_service_certificate_follows_from_record_and_policy() {
    let (world, _, certificate) = joined(POLICY);
    for (secret, account) in [
        ("service-cert", "shop/store"),
        ("service-cert:shop/store", "shop/store"),
        ("service-cert:shop/reviews", "shop/reviews"),
    ] {
        let issued = world.service_certificate(&certificate, secret, AT_ONCE).unwrap();
        assert_eq!(issued.account.to_string(), account, "{secret}");
        let life = WorkloadLeaf::read(&issued.chain).unwrap().not_after.duration_since(world.now);
        assert!((21..=27).contains(&life.as_hours()), "{life:?}");
    }
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let entries = entries.iter().filter(|entry| entry.kind == JournalKind::Certificate);
    let counts: Vec<_> =
        entries.filter_map(|e| Some((e.subject.account.clone()?.to_string(), e.count))).collect();
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert!(counts.contains(&("shop/store".to_owned(), 2)), "{counts:?}");
}

#[test]
fn service_certificate_of_another_account_is_rejected_and_recorded() {
    let (world, record, certificate) = joined(POLICY);
    // `shop/bookstore` is a service of the proxy, and its account has another name.
    for secret in ["service-cert:shop/other", "service-cert:shop/bookstore"] {
        let error = world.service_certificate(&certificate, secret, AT_ONCE).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EnrollmentError::RequestInvalid(_)), "{text}");
        assert!(text.contains("no service of proxy bookstore-1"), "{text}");
    }
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let rejected = entries.iter().filter(|entry| entry.is_rejected()).collect::<Vec<_>>();
    assert!(!rejected.is_empty());
    assert_eq!(
        (rejected[0].kind, rejected[0].subject.proxy),
        (JournalKind::Certificate, Some(record.id))
    );
}

#[test]
fn service_certificate_needs_a_policy_that_defines_the_first_service() {
    let (world, _, certificate) = joined("[[service]]\nname = \"else\"");
    let error = world.service_certificate(&certificate, "service-cert", AT_ONCE).unwrap_err();
    assert!(matches!(&error, EnrollmentError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("does not define `shop/bookstore`"), "{error}");
    let empty = watch::Sender::default().subscribe();
    let enroller = world.another_control_plane();
    let world =
        World { enroller: Arc::new(MachineEnrollment { policy: empty, ..enroller }), ..world };
    let error = world.service_certificate(&certificate, "service-cert", AT_ONCE).unwrap_err();
    assert!(matches!(error, EnrollmentError::Unavailable(_)), "{error}");
}

#[test]
fn revoked_expired_and_replaced_proxies_get_no_service_certificate() {
    let (world, record, certificate) = joined(POLICY);
    world.connect(&certificate, AT_ONCE);
    let expired = world.service_certificate(&certificate, "service-cert", days(31)).unwrap_err();
    assert!(matches!(expired, EnrollmentError::CertificateRejected(_)), "{expired}");

    let mut other_key = (*record).clone();
    other_key.credentials.as_mut().unwrap().key = request().key_hash();
    world.enroller.register.add(other_key).unwrap();
    let copied = world.service_certificate(&certificate, "service-cert", AT_ONCE).unwrap_err();
    assert!(matches!(copied, EnrollmentError::CertificateRejected(_)), "{copied}");
    assert_eq!(world.findings(), ["IM0742"]);

    let revocation = Revocation::by_operator(world.now, Some("stolen".to_owned()));
    world.enroller.register.revoke(&[record.id], &revocation).unwrap();
    let revoked = world.service_certificate(&certificate, "service-cert", AT_ONCE).unwrap_err();
    assert!(matches!(&revoked, EnrollmentError::Revoked(text) if text.contains("stolen")));

    let elsewhere = joined(POLICY).0;
    let foreign = elsewhere.service_certificate(&certificate, "service-cert", AT_ONCE);
    assert!(matches!(foreign, Err(EnrollmentError::CertificateRejected(_))));
}

#[test]
fn service_certificates_are_recorded_before_the_response() {
    let (world, record, certificate) = joined(POLICY);
    world.connect(&certificate, AT_ONCE);
    let mut serials = Vec::new();
    for secret in ["service-cert", "service-cert:shop/reviews"] {
        let issued = world.service_certificate(&certificate, secret, AT_ONCE).unwrap();
        let leaf = WorkloadLeaf::read(&issued.chain).unwrap();
        serials.push((leaf.serial, issued.account, leaf.not_after));
    }
    let recorded = world.record(record.id).workload_certificates.clone();
    let recorded: Vec<_> = recorded
        .iter()
        .map(|one| (one.serial.clone(), one.account.clone(), one.expires_at))
        .collect();
    assert_eq!(recorded, serials);
    // A restart reads them, too, and the next issue drops those that have expired.
    let renewed = world.service_certificate(&certificate, "service-cert", days(5)).unwrap();
    let leaf = WorkloadLeaf::read(&renewed.chain).unwrap();
    let stored = world.another_control_plane().register.get(record.id).unwrap();
    let stored = stored.workload_certificates.iter();
    let stored: Vec<_> = stored.map(|one| one.serial.clone()).collect();
    assert_eq!(stored, [leaf.serial]);
}

#[test]
fn service_certificate_above_the_limit_is_rejected() {
    let (world, record, certificate) = joined(POLICY);
    world.connect(&certificate, AT_ONCE);
    let mut full = (*world.record(record.id)).clone();
    for number in 0..WorkloadCertificates::MAX {
        let issued = IssuedWorkloadCertificate {
            serial: format!("{number:032x}"),
            account: "shop/store".parse().unwrap(),
            expires_at: world.now + SignedDuration::from_hours(24),
        };
        full.workload_certificates = full.workload_certificates.with(issued, world.now).unwrap();
    }
    world.enroller.register.add(full).unwrap();
    let refused = world.service_certificate(&certificate, "service-cert", AT_ONCE).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, EnrollmentError::Busy(_)), "{text}");
    assert!(text.contains("proxy bookstore-1 has 128 service certificates"), "{text}");
    world.service_certificate(&certificate, "service-cert", days(2)).unwrap();
}
