//! The callers that peers refuse although their certificates verify: revoked proxies, as long as a certificate of theirs
//! has not expired.
//!
//! This module decides who is one. It never decides how a peer refuses them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::Records;
use crate::identity::TrustDomain;
use crate::name::ServiceAccount;

/// The callers that peers refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedCallers {
    /// The DNS names of revoked proxies, which the service certificates that were issued to them have
    /// ([`TrustDomain::proxy_dns_name`]); and those of shared certificates that they had
    /// ([`TrustDomain::shared_dns_name`]).
    pub dns_names: BTreeSet<String>,
    /// The serial numbers of their service certificates that have not expired, each with the account.
    pub serials: BTreeMap<String, ServiceAccount>,
    /// The certificate revocation lists with these serial numbers, in PEM; none without a serial number.
    pub lists: Option<Arc<str>>,
    /// The number of the newest revocation by account ([`RevocationLists::last_listed`]), also of callers that have left.
    ///
    /// [`RevocationLists::last_listed`]: crate::RevocationLists::last_listed
    pub last_listed: BTreeMap<ServiceAccount, u64>,
}

impl RevokedCallers {
    /// The callers that follow from the join records of revoked proxies, without the lists, which the certificate manager
    /// signs. A shared certificate whose serial number is in `waiting` is not refused yet.
    ///
    /// A caller leaves when its last certificate has expired, so that the list is bounded by the revocations of about a day.
    pub fn of(
        revoked: &Records,
        trust_domain: &TrustDomain,
        waiting: &BTreeSet<String>,
        now: Timestamp,
    ) -> Self {
        let mut callers = Self::default();
        for record in revoked.values().filter(|record| record.is_refused_by_peers()) {
            for own in record.workload_certificates.accepted(now) {
                callers.dns_names.insert(trust_domain.proxy_dns_name(record.id));
                callers.serials.insert(own.serial.clone(), own.account.clone());
            }
            for shared in record.refused.iter().flatten() {
                if shared.is_accepted(now) && !waiting.contains(&shared.serial) {
                    callers.dns_names.extend(shared.dns_name.clone());
                    callers.serials.insert(shared.serial.clone(), shared.account.clone());
                }
            }
        }
        callers
    }

    /// Whether HTTP ports refuse none.
    pub fn is_empty(&self) -> bool {
        self.dns_names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;
    use crate::certificate::SharedCertificate;
    use crate::proxy::{IssuedWorkloadCertificate, JoinRecord, ProxyId, Revocation};

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
                record.revoked = Some(Revocation { at: now, reason: None });
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
        let none = BTreeSet::new();
        // The second one has never had a certificate of its own.
        let revoked: Records =
            [record(1, &[24, 12]), record(2, &[]), record(3, &[12])].into_iter().collect();
        for (hour, ids) in [(0, &[1, 3][..]), (12, &[1, 3]), (13, &[1]), (24, &[1]), (25, &[])] {
            let callers = RevokedCallers::of(&revoked, &trust_domain, &none, now + hours(hour));
            let name = |id: &u128| format!("{}.proxy.mesh.example", Uuid::from_u128(*id));
            assert_eq!(callers.dns_names, ids.iter().map(name).collect(), "after {hour} h");
            assert_eq!(callers.is_empty(), ids.is_empty());
            let serials: Vec<_> = callers.serials.keys().map(String::as_str).collect();
            let expected: &[&str] = match hour {
                0 | 12 => &["1-12", "1-24", "3-12"],
                13 | 24 => &["1-24"],
                _ => &[],
            };
            assert_eq!(serials, expected, "after {hour} h");
        }
    }

    #[test]
    fn shared_certificate_is_refused_after_its_wait() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let trust_domain: TrustDomain = "mesh.example".parse().unwrap();
        let (id, services) = (ProxyId(Uuid::nil()), vec!["till".parse().unwrap()]);
        let address = "10.0.0.1:15003".parse().unwrap();
        let shared = |serial: &str, dns_name: Option<&str>| SharedCertificate {
            account: "till".parse().unwrap(),
            serial: serial.to_owned(),
            dns_name: dns_name.map(str::to_owned),
            expires_at: now + SignedDuration::from_hours(24),
        };
        // The second one is of an earlier version.
        let refused = Some(vec![shared("1", Some("1.shared.mesh.example")), shared("2", None)]);
        let revocation = Some(Revocation { at: now, reason: Some("stolen".to_owned()) });
        let record = JoinRecord::new(id, services, address, now, now);
        let record = JoinRecord { refused, revoked: revocation, ..record };
        let mut left = record.clone();
        left.revoked = Some(Revocation { at: now, reason: Some(Revocation::LEFT.to_owned()) });
        let by_itself: Records = [(id, Arc::new(left))].into_iter().collect();
        let callers = RevokedCallers::of(&by_itself, &trust_domain, &BTreeSet::new(), now);
        assert_eq!(callers, RevokedCallers::default(), "a proxy that left is not refused");
        let revoked: Records = [(id, Arc::new(record))].into_iter().collect();
        let of = |waiting: &[&str]| {
            let waiting = waiting.iter().map(|serial| (*serial).to_owned()).collect();
            let callers = RevokedCallers::of(&revoked, &trust_domain, &waiting, now);
            (callers.dns_names.len(), callers.serials.len())
        };
        assert_eq!(
            [of(&["1", "2"]), of(&["1"]), of(&["2"]), of(&[])],
            [(0, 0), (0, 1), (1, 1), (1, 2)]
        );
    }
}
