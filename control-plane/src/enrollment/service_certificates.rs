//! Service certificates for keys of machines: decides which account a proxy may have, and issues for it.
//!
//! The account follows from the services of the join record and from the active policy, never from the request. The join
//! record has the serial number of each certificate before the machine has the certificate, so that a revocation can name
//! all of them. The certificate itself is not stored: the machine requests a new one when it needs it.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    Actor, IssuedWorkloadCertificate, JoinRecord, JournalKind, MeshSpecification, ServiceAccount,
    ServiceName, ServiceSecret, TooManyCertificates,
};
use ironmesh_enrollment::{EnrollmentError, IssuedServiceCertificate, WorkloadRequest};
use jiff::Timestamp;

use super::{ChangeError, MachineEnrollment, subject};
use crate::journal::CertificateHolder;

impl MachineEnrollment {
    /// Issues a service certificate to a proxy. The journal sums the issued ones by account, as it does those that the
    /// control plane issues by itself, and has an entry for each rejected request.
    pub(super) fn issue_workload_certificate(
        &self,
        request: &WorkloadRequest,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        let issued = self.issue_to(request, peer, now);
        match &issued {
            Ok(issued) => {
                self.journal.record_issued(CertificateHolder::Account(issued.account.clone()), 1);
            }
            Err(error) => {
                let record = self.register.get(request.proxy.identity.proxy);
                let about = record.as_deref().map(subject).unwrap_or_default();
                let (kind, reason) = (JournalKind::Certificate, error.to_string());
                self.record(kind, Actor::Proxy, peer, about, Some(&reason), now);
            }
        }
        issued
    }

    fn issue_to(
        &self,
        request: &WorkloadRequest,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        let WorkloadRequest { proxy, secret, request } = request;
        if proxy.not_after <= now {
            let name = proxy.identity.proxy;
            return Err(EnrollmentError::CertificateRejected(format!(
                "the certificate of proxy {name} has expired: renew it first"
            )));
        }
        let record = self.identify(proxy, peer, now)?;
        let specification = self.policy.borrow().specification.clone();
        let specification = specification.ok_or_else(|| {
            EnrollmentError::Unavailable(
                "no policy is active yet: see `ironmesh status` on the control-plane host"
                    .to_owned(),
            )
        })?;
        let account = account(&record, &specification, secret)?;
        // First on what is known, so that a rejected request costs no signature.
        record.workload_certificates.check_limit(now).map_err(|full| too_many(&record, full))?;
        let lifetime = self.settings.borrow().service_lifetime;
        let issued = self.authority.lock().issue_workload_certificate(
            request.pem(),
            record.id,
            &account,
            lifetime,
            now,
        );
        let issued = issued.map_err(|error| EnrollmentError::RequestInvalid(chain(&error)))?;
        let new = IssuedWorkloadCertificate {
            serial: issued.serial,
            account: account.clone(),
            expires_at: issued.not_after,
        };
        self.record_certificate(&record, &new, now)?;
        Ok(IssuedServiceCertificate { account, chain: issued.chain })
    }

    /// Records a certificate in the join record, unless the proxy was revoked at this moment: a certificate that no record
    /// has is never sent.
    fn record_certificate(
        &self,
        record: &JoinRecord,
        new: &IssuedWorkloadCertificate,
        now: Timestamp,
    ) -> Result<(), EnrollmentError> {
        let (id, name) = (record.id, record.display_name());
        self.register.enroll(|present| {
            let record = present.get(&id).ok_or_else(|| {
                let problem = format!("proxy {name} was removed at this moment");
                ChangeError::Rejected(EnrollmentError::CertificateRejected(problem))
            })?;
            if let Some(revocation) = &record.revoked {
                let problem = format!("proxy {name} was {revocation}");
                return Err(ChangeError::Rejected(EnrollmentError::Revoked(problem)));
            }
            let workload_certificates = record
                .workload_certificates
                .with(new.clone(), now)
                .map_err(|full| ChangeError::Rejected(too_many(record, full)))?;
            Ok(vec![JoinRecord { workload_certificates, ..(**record).clone() }])
        })?;
        Ok(())
    }
}

fn too_many(record: &JoinRecord, full: TooManyCertificates) -> EnrollmentError {
    EnrollmentError::Busy(format!("proxy {} has {full}", record.display_name()))
}

/// The account of a secret of the proxy: that of its first service, or one of its services that has this account.
fn account(
    record: &JoinRecord,
    specification: &Arc<MeshSpecification>,
    secret: &ServiceSecret,
) -> Result<ServiceAccount, EnrollmentError> {
    let of = |service: &ServiceName| {
        specification.services.get(service).map(|service| service.account.clone())
    };
    let name = record.display_name();
    let rejected = |problem: String| Err(EnrollmentError::RequestInvalid(problem));
    match secret {
        ServiceSecret::Own => {
            let first = record.services.first();
            match (first, first.and_then(of)) {
                (_, Some(account)) => Ok(account),
                // The machine asks as it should, and asks again: its address is not charged.
                (Some(first), None) => Err(EnrollmentError::Unavailable(format!(
                    "policy does not define `{first}`, the first service of proxy {name}: define it, or change the services of the proxy"
                ))),
                (None, None) => rejected(format!("proxy {name} has no service")),
            }
        }
        ServiceSecret::OfAccount(account) => {
            if record.services.iter().filter_map(of).any(|known| known == *account) {
                return Ok(account.clone());
            }
            rejected(format!(
                "no service of proxy {name} has the service account `{account}` in the active policy"
            ))
        }
    }
}
