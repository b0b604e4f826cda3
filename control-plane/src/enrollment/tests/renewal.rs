//! Renewals of proxy certificates.

use super::*;

#[test]
fn renewal_replaces_the_certificate_and_keeps_one_predecessor() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    world.connect(&first.certificate, AT_ONCE);
    let second = world.renew(&first.certificate, &request, days(18)).unwrap();
    let record = world.record(first.id);
    assert_eq!(record.certificate_expires_at, second.expires_at);
    assert!(second.expires_at > first.expires_at);
    // The response is lost, so the machine repeats the renewal.
    let again = world.renew(&first.certificate, &request, days(18)).unwrap();
    assert_eq!(again.certificate, second.certificate);
    let third = world.renew(&second.certificate, &request, days(18)).unwrap();
    world.connect(&third.certificate, days(18));
    let minutes = SignedDuration::from_mins(1);
    let predecessor = world.renew(&second.certificate, &request, days(18) + minutes).unwrap_err();
    assert!(matches!(predecessor, EnrollmentError::CertificateRejected(_)), "3 is in use");
    let minutes = SignedDuration::from_mins(11);
    let old = world.renew(&first.certificate, &request, days(18) + minutes).unwrap_err();
    assert!(
        matches!(&old, EnrollmentError::CertificateRejected(text) if text.contains("old copy"))
    );
    assert_eq!(world.findings(), ["IM0742"]);
    let texts = world.finding_texts();
    let words = "a certificate that proxy bookstore-1 has replaced was presented by ";
    assert!(texts[0].starts_with(words), "{texts:?}");
    let of_proxy = world.enroller.alarms.of_proxy(first.id, world.now);
    assert_eq!(of_proxy.len(), 1, "{of_proxy:?}");
    world.renew(&third.certificate, &request, days(36)).unwrap();
    let revocation = Revocation::by_operator(world.now, None);
    world.enroller.register.revoke(&[first.id], &revocation).unwrap();
    assert!(world.findings().is_empty(), "a revocation ends the alarm");
}

#[test]
fn expired_certificate_is_renewed_within_seven_days() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    world.connect(&first.certificate, AT_ONCE);
    let late = world.renew(&first.certificate, &request, days(38)).unwrap_err();
    assert!(matches!(&late, EnrollmentError::CertificateRejected(text) if text.contains("7 days")));
    world.enroller.register.retire(world.now + days(31));
    assert!(world.enroller.register.records().is_empty());
    world.renew(&first.certificate, &request, days(36)).unwrap();
    assert_eq!(world.enroller.register.records().len(), 1, "it may connect again");
}

#[test]
fn revoked_unknown_and_unclaimed_proxies_do_not_renew() {
    let world = world();
    let request = request();
    let first = world.join(&world.token(), &request, peer(5), AT_ONCE).unwrap();
    let unclaimed = world.renew(&first.certificate, &request, days(2)).unwrap_err();
    assert!(matches!(unclaimed, EnrollmentError::CertificateRejected(_)), "{unclaimed}");
    world.connect(&first.certificate, AT_ONCE);
    let other = world.renew(&first.certificate, &self::request(), days(2)).unwrap_err();
    assert!(
        matches!(&other, EnrollmentError::CertificateRejected(text) if text.contains("another key"))
    );
    let revocation = Revocation::by_operator(world.now, Some("stolen".to_owned()));
    world.enroller.register.revoke(&[first.id], &revocation).unwrap();
    let revoked = world.renew(&first.certificate, &request, days(2)).unwrap_err();
    assert!(matches!(&revoked, EnrollmentError::Revoked(text) if text.contains("stolen")));
    let elsewhere = self::world();
    let foreign = elsewhere.renew(&first.certificate, &request, days(2)).unwrap_err();
    assert!(matches!(foreign, EnrollmentError::CertificateRejected(_)));
}

#[test]
fn repeated_request_does_not_undo_a_revocation() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let revocation = Revocation::by_operator(world.now, None);
    world.enroller.register.revoke(&[first.id], &revocation).unwrap();
    let again = world.join(&token, &request, peer(5), AT_ONCE).unwrap_err();
    assert_eq!(again, EnrollmentError::TokenRejected);
    assert!(world.record(first.id).revoked.is_some());
}

#[test]
fn enrollment_that_expired_unclaimed_is_not_renewed_after_its_certificate() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let error = world.renew(&first.certificate, &request, days(31)).unwrap_err();
    assert!(
        matches!(&error, EnrollmentError::CertificateRejected(text) if text.contains("24 hours"))
    );
}

#[test]
fn certificate_for_another_key_than_the_bound_one_is_rejected_with_an_alarm() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let mut record = (*world.record(first.id)).clone();
    record.credentials.as_mut().unwrap().key = self::request().key_hash();
    world.enroller.register.add(record).unwrap();
    let error = world.renew(&first.certificate, &request, AT_ONCE).unwrap_err();
    assert!(
        matches!(&error, EnrollmentError::CertificateRejected(text) if text.contains("different key"))
    );
    assert_eq!(world.findings(), ["IM0742"]);
}
