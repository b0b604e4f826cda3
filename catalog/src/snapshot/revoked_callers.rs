//! The callers that peers refuse although their certificates verify: revoked proxies, as long as a certificate of theirs
//! has not expired.
//!
//! This module decides who is one. It never decides how a peer refuses them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::Records;
use crate::identity::TrustDomain;
use crate::proxy::JoinRecord;

/// The callers that peers refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedCallers {
    /// The DNS names of revoked proxies, which the service certificates that were issued to them have
    /// ([`TrustDomain::proxy_dns_name`]).
    pub dns_names: BTreeSet<String>,
    /// The serial numbers of their service certificates that have not expired.
    pub serials: BTreeSet<String>,
    /// The certificate revocation lists with these serial numbers, in PEM; none without a serial number.
    pub lists: Option<Arc<str>>,
}

impl RevokedCallers {
    /// The callers that follow from the join records of revoked proxies, without the lists, which the certificate manager
    /// signs. A caller leaves when its last certificate has
    /// expired, so that the list is bounded by the revocations of about a day.
    pub fn of(revoked: &Records, trust_domain: &TrustDomain, now: Timestamp) -> Self {
        let has_certificate =
            |record: &&JoinRecord| record.workload_certificates.accepted(now).next().is_some();
        let callers = || revoked.values().map(|record| &**record).filter(has_certificate);
        let certificates = callers().flat_map(|record| record.workload_certificates.accepted(now));
        Self {
            dns_names: callers().map(|record| trust_domain.proxy_dns_name(record.id)).collect(),
            serials: certificates.map(|one| one.serial.clone()).collect(),
            lists: None,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dns_names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;
    use crate::proxy::{IssuedWorkloadCertificate, ProxyId};

    #[test]
    fn revoked_caller_leaves_when_its_last_certificate_has_expired() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let hours = SignedDuration::from_hours;
        let trust_domain: TrustDomain = "mesh.example".parse().unwrap();
        let record = |id: u128, ends: &[i64]| {
            let (number, id, services) =
                (id, ProxyId(Uuid::from_u128(id)), vec!["till".parse().unwrap()]);
            let address = "10.0.0.1:15003".parse().unwrap();
            let mut record = JoinRecord::new(id, services, address, now, now + hours(1000));
            for end in ends {
                let issued = IssuedWorkloadCertificate {
                    serial: format!("{number}-{end}"),
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
            let serials: Vec<_> = callers.serials.iter().map(String::as_str).collect();
            let expected: &[&str] = match hour {
                0 | 12 => &["1-12", "1-24", "3-12"],
                13 | 24 => &["1-24"],
                _ => &[],
            };
            assert_eq!(serials, expected, "after {hour} h");
        }
    }
}
