//! The callers that peers refuse although their certificates verify: revoked proxies, as long as a certificate of theirs
//! has not expired.
//!
//! This module decides who is one. It never decides how a peer refuses them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Records;
use crate::identity::TrustDomain;

/// The callers that peers refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedCallers {
    /// The DNS names of revoked proxies, which the service certificates that were issued to them have
    /// ([`TrustDomain::proxy_dns_name`]).
    pub dns_names: BTreeSet<String>,
}

impl RevokedCallers {
    /// The callers that follow from the join records of revoked proxies. A caller leaves when its last certificate has
    /// expired, so that the list is bounded by the revocations of about a day.
    pub fn of(revoked: &Records, trust_domain: &TrustDomain, now: Timestamp) -> Self {
        let has_certificate =
            |record: &&_| record.workload_certificates.accepted(now).next().is_some();
        let callers = revoked.values().map(|record| &**record).filter(has_certificate);
        Self { dns_names: callers.map(|record| trust_domain.proxy_dns_name(record.id)).collect() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dns_names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;
    use crate::proxy::{IssuedWorkloadCertificate, JoinRecord, ProxyId};

    #[test]
    fn revoked_caller_leaves_when_its_last_certificate_has_expired() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let hours = SignedDuration::from_hours;
        let trust_domain: TrustDomain = "mesh.example".parse().unwrap();
        let record = |id: u128, ends: &[i64]| {
            let (id, services) = (ProxyId(Uuid::from_u128(id)), vec!["till".parse().unwrap()]);
            let address = "10.0.0.1:15003".parse().unwrap();
            let mut record = JoinRecord::new(id, services, address, now, now + hours(1000));
            for end in ends {
                let issued = IssuedWorkloadCertificate {
                    serial: "1".to_owned(),
                    account: "till".parse().unwrap(),
                    expires_at: now + hours(*end),
                };
                let all = &record.workload_certificates;
                record.workload_certificates = all.with(issued, now).unwrap();
            }
            (id, Arc::new(record))
        };
        // The second one has never had a certificate of its own.
        let revoked: Records =
            [record(1, &[24, 12]), record(2, &[]), record(3, &[12])].into_iter().collect();
        for (hour, ids) in [(0, &[1, 3][..]), (12, &[1, 3]), (13, &[1]), (24, &[1]), (25, &[])] {
            let callers = RevokedCallers::of(&revoked, &trust_domain, now + hours(hour));
            let name = |id: &u128| format!("{}.proxy.mesh.example", Uuid::from_u128(*id));
            assert_eq!(callers.dns_names, ids.iter().map(name).collect(), "after {hour} h");
            assert_eq!(callers.is_empty(), ids.is_empty());
        }
    }
}
