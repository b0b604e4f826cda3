//! The counts of certificates for metrics. Unlike the list, they cost nothing for a certificate but its examination.

use ironmesh_api::{CertificateKind, CertificateProblem};
use ironmesh_catalog::CertificateState;
use ironmesh_cert::CertificateFacts;
use jiff::Timestamp;

use super::{CertificateSources, problem};
use crate::metrics::CertificateCounts;

/// The states of certificates that the control plane issues to itself or to accounts.
const STATES: [&str; 4] = ["valid", "expiring", "overdue", "expired"];

/// The further states of the certificates of proxies.
const PROXY_STATES: [&str; 2] = ["unclaimed", "revoked"];

impl CertificateSources {
    pub(super) fn count(&self, now: Timestamp) -> CertificateCounts {
        use CertificateKind::{ControlPlane, Intermediate, Proxy, Root, Service};
        let mut found = CertificateCounts::default();
        for kind in [Root, Intermediate, ControlPlane, Service, Proxy] {
            found.counts.extend(STATES.map(|state| ((kind, state), 0)));
        }
        found.counts.extend(PROXY_STATES.map(|state| ((Proxy, state), 0)));
        let own = [
            (Root, &self.root),
            (Intermediate, &self.intermediate),
            (ControlPlane, &self.control_plane),
        ];
        for (kind, CertificateFacts { issued_at, not_after, renew_at, .. }) in own {
            let problem = problem(*issued_at, *not_after, renew_at.is_some(), now);
            found.add(kind, state(problem), Some(*not_after));
        }
        for certificate in self.services.values() {
            let end = certificate.not_after;
            let problem = problem(Some(certificate.issued_at()), end, true, now);
            found.add(Service, state(problem), Some(end));
        }
        let problems = self.proxy_problems(now);
        for record in self.records.values() {
            let problem = problems.get(&record.id).copied();
            let (state, is_valid) = match record.certificate_state(now) {
                CertificateState::Claimed => (state(problem), true),
                CertificateState::Unclaimed => ("unclaimed", false),
                CertificateState::Revoked => ("revoked", false),
                // Nothing is left to do: a newer proxy has replaced it.
                CertificateState::Expired if problem.is_none() => continue,
                CertificateState::Expired => ("expired", false),
                CertificateState::EnrollmentExpired => continue,
            };
            found.add(Proxy, state, is_valid.then_some(record.certificate_expires_at));
        }
        found
    }
}

fn state(problem: Option<CertificateProblem>) -> &'static str {
    match problem {
        None => "valid",
        Some(CertificateProblem::Expiring) => "expiring",
        Some(CertificateProblem::Overdue) => "overdue",
        Some(CertificateProblem::Expired) => "expired",
    }
}
