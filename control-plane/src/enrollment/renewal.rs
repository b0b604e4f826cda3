//! The renewal of a proxy's certificate: of the current one, or of its predecessor while the current one is unused.

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::{
    Actor, CertificateRecognition, IssuedCertificate, JoinRecord, JournalKind, ProxyCredentials,
};
use ironmesh_cert::{ENROLLED_PROXY_LIFETIME, PROXY_LIFETIME, RENEWAL_GRACE};
use ironmesh_enrollment::{Enrolled, EnrollmentError, ProxyRenewal};
use jiff::Timestamp;

use super::{CertificateAlarm, ChangeError, MachineEnrollment, subject};
use crate::journal::CertificateHolder;
use ironmesh_catalog::text::chain;

/// What to do about a proxy without a record, which binds no machine of Azure.
const ENROLL_AGAIN: &str = "remove its folder and enroll the machine again, with a new token (`ironmesh proxy token`) or by Azure";

impl MachineEnrollment {
    /// Renews the certificate of a proxy.
    pub(super) fn renew_certificate(
        &self,
        renewal: &ProxyRenewal,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollmentError> {
        let record = self.register.get(renewal.proxy.identity.proxy);
        let renewed = self.renew_record(record.as_deref(), renewal, peer, now);
        let about = record.as_deref().map(subject).unwrap_or_default();
        let rejected = renewed.as_ref().err().map(ToString::to_string);
        self.record(JournalKind::Renew, Actor::Proxy, peer, about, rejected.as_deref(), now);
        renewed
    }

    fn renew_record(
        &self,
        record: Option<&JoinRecord>,
        renewal: &ProxyRenewal,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollmentError> {
        let rejected = |problem: String| Err(EnrollmentError::CertificateRejected(problem));
        let proxy = &renewal.proxy;
        let id = proxy.identity.proxy;
        let Some(record) = record else {
            return rejected(format!("proxy {id} is not enrolled in this mesh: {ENROLL_AGAIN}"));
        };
        let (name, enroll_again) = (record.display_name(), record.enroll_again());
        if now.duration_since(proxy.not_after) > RENEWAL_GRACE {
            return rejected(format!(
                "the certificate of proxy {name} expired on {:.0}, more than 7 days ago: {enroll_again}",
                proxy.not_after
            ));
        }
        if renewal.request.public_key() != proxy.public_key {
            return rejected(format!(
                "the request is for another key than that of proxy {name}: keep the key; for a new key, {enroll_again}"
            ));
        }
        let presented = proxy.presented();
        // First on what is known, so that a rejected request costs no signature.
        let recognition = check(record, renewal, now).inspect_err(|_| {
            if let Some(alarm) = CertificateAlarm::of(record.recognize(&presented, now)) {
                self.alarms.raise(record, alarm, peer, now);
            }
        })?;
        if recognition == CertificateRecognition::Newer {
            self.alarms.raise(record, CertificateAlarm::Newer, peer, now);
        }
        if let Some(chain) = issued_before(record, recognition, now) {
            return Ok(self.response(record, chain));
        }
        let certificate = self.authority.lock().issue_proxy_certificate(
            renewal.request.pem(),
            id,
            &record.services,
            lifetime(record),
            now,
        );
        let certificate =
            certificate.map_err(|error| EnrollmentError::RequestInvalid(chain(&error)))?;
        let new = certificate.issued(now);
        let (mut stored, mut issued) = (None, certificate.chain);
        self.register.enroll(|present| {
            let record = present.get(&id);
            let record = record.ok_or_else(|| {
                let problem = format!("proxy {name} was removed at this moment: {ENROLL_AGAIN}");
                ChangeError::Rejected(EnrollmentError::CertificateRejected(problem))
            })?;
            let recognition = check(record, renewal, now).map_err(ChangeError::Rejected)?;
            if let Some(chain) = issued_before(record, recognition, now) {
                // A concurrent renewal by the same certificate was first.
                (stored, issued) = (Some((**record).clone()), chain);
                return Ok(Vec::new());
            }
            let renewed = with_certificate(record, recognition, renewal, new.clone());
            stored = Some(renewed.clone());
            Ok::<_, ChangeError>(vec![renewed])
        })?;
        let record = stored.as_ref().unwrap_or(record);
        self.journal.record_issued(CertificateHolder::proxies(&record.services), 1);
        Ok(self.response(record, issued))
    }
}

/// Whether the proxy may renew by the certificate that it presents.
fn check(
    record: &JoinRecord,
    renewal: &ProxyRenewal,
    now: Timestamp,
) -> Result<CertificateRecognition, EnrollmentError> {
    let rejected = |problem: String| Err(EnrollmentError::CertificateRejected(problem));
    let (name, enroll_again) = (record.display_name(), record.enroll_again());
    if let Some(revocation) = &record.revoked {
        let problem = format!("proxy {name} was {revocation}: {enroll_again}");
        return Err(EnrollmentError::Revoked(problem));
    }
    if record.is_enrollment_expired(now) {
        return rejected(format!(
            "proxy {name} did not connect within 24 hours of its enrollment: {enroll_again}"
        ));
    }
    let recognition = record.recognize(&renewal.proxy.presented(), now);
    let is_successor_used = |known: &ProxyCredentials| known.current.first_used_at.is_some();
    match recognition {
        // Streams of the overlap may still present it, but the machine has its successor.
        CertificateRecognition::Predecessor
            if record.credentials.as_ref().is_some_and(is_successor_used) =>
        {
            rejected(replaced(record))
        }
        CertificateRecognition::Older => rejected(replaced(record)),
        CertificateRecognition::OtherKey => rejected(format!(
            "proxy {name} has a different key: this machine has an old copy; {enroll_again}"
        )),
        recognition => Ok(recognition),
    }
}

fn replaced(record: &JoinRecord) -> String {
    format!(
        "the certificate of proxy {} was renewed, and its successor is in use: this machine has an old copy; {}",
        record.display_name(),
        record.enroll_again()
    )
}

/// The certificate, with its issuers, that an earlier renewal by the same one has issued, if that may have been lost.
fn issued_before(
    record: &JoinRecord,
    recognition: CertificateRecognition,
    now: Timestamp,
) -> Option<String> {
    record.credentials.as_ref()?.issued_before(recognition, now)?.chain.clone()
}

/// The lifetime of a renewed certificate.
fn lifetime(record: &JoinRecord) -> Duration {
    if record.token.is_some() { ENROLLED_PROXY_LIFETIME } else { PROXY_LIFETIME }
}

/// The record with a new certificate in place of the presented one.
fn with_certificate(
    record: &JoinRecord,
    recognition: CertificateRecognition,
    renewal: &ProxyRenewal,
    new: IssuedCertificate,
) -> JoinRecord {
    let presented = renewal.proxy.presented();
    let expires_at = new.expires_at;
    let credentials = match (&record.credentials, recognition) {
        (Some(known), CertificateRecognition::Newer) => {
            known.restored_by(&presented).renewed(CertificateRecognition::Current, new)
        }
        (Some(known), _) => known.renewed(recognition, new),
        (None, _) => ProxyCredentials::bound_by(&presented, record.enrolled_at)
            .renewed(CertificateRecognition::Current, new),
    };
    JoinRecord {
        credentials: Some(credentials),
        certificate_expires_at: expires_at,
        ..record.clone()
    }
}
