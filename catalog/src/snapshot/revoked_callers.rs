//! The callers that peers refuse although their certificates verify, or did when they connected: revoked proxies, until
//! their join records are forgotten.
//!
//! This module decides who is one. It never decides how a peer refuses them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Records;
use crate::identity::TrustDomain;
use crate::name::ServiceAccount;

/// The callers that peers refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevokedCallers {
    /// The DNS names of revoked proxies, which service certificates for keys of their machines have
    /// ([`TrustDomain::proxy_dns_name`]); and those of shared certificates that they had
    /// ([`TrustDomain::shared_dns_name`]).
    pub dns_names: BTreeSet<String>,
    /// The serial numbers of their service certificates, each with the account.
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
    /// A caller stays as long as its record: an expired certificate is refused in handshakes only, so its open connections
    /// must be refused for longer. No clock decides.
    pub fn of(revoked: &Records, trust_domain: &TrustDomain, waiting: &BTreeSet<String>) -> Self {
        let mut callers = Self::default();
        for record in revoked.values().filter(|record| record.is_refused_by_peers()) {
            callers.dns_names.insert(trust_domain.proxy_dns_name(record.id));
            for own in record.workload_certificates.iter() {
                callers.serials.insert(own.serial.clone(), own.account.clone());
            }
            for shared in record.refused.iter().flatten() {
                if !waiting.contains(&shared.serial) {
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
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::certificate::SharedCertificate;
    use crate::proxy::{IssuedWorkloadCertificate, JoinRecord, ProxyId, Revocation};

    #[test]
    fn revoked_caller_stays_after_its_certificates_have_expired() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let trust_domain: TrustDomain = "mesh.example".parse().unwrap();
        let record = |id: u128, ends: &[i64]| {
            let (number, id, services) =
                (id, ProxyId(Uuid::from_u128(id)), vec!["till".parse().unwrap()]);
            let address = "10.0.0.1:15003".parse().unwrap();
            let mut record = JoinRecord::new(id, services, address, now, now);
            for end in ends {
                let issued = IssuedWorkloadCertificate {
                    serial: format!("{number}-{end}"),
                    account: "till".parse().unwrap(),
                    expires_at: now + SignedDuration::from_hours(*end),
                };
                let all = &record.workload_certificates;
                record.workload_certificates = all.with(issued, now).unwrap();
            }
            // Long after the last of them has expired, and by a clock that may be wrong.
            let revoked_at = now + SignedDuration::from_hours(2000);
            record.revoked = Some(Revocation::by_operator(revoked_at, None));
            (id, Arc::new(record))
        };
        // The second one has never had a certificate of its own.
        let revoked: Records = [record(1, &[24, 12]), record(2, &[])].into_iter().collect();
        let callers = RevokedCallers::of(&revoked, &trust_domain, &BTreeSet::new());
        let name = |id: u128| format!("{}.proxy.mesh.example", Uuid::from_u128(id));
        assert_eq!(callers.dns_names, [name(1), name(2)].into());
        assert_eq!(callers.serials.keys().collect::<Vec<_>>(), ["1-12", "1-24"]);
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
        let revocation = Some(Revocation::by_operator(now, Some("stolen".to_owned())));
        let record = JoinRecord::new(id, services, address, now, now);
        let record = JoinRecord { refused, revoked: revocation, ..record };
        let mut left = record.clone();
        left.revoked = Some(Revocation::left(now));
        let by_itself: Records = [(id, Arc::new(left))].into_iter().collect();
        let callers = RevokedCallers::of(&by_itself, &trust_domain, &BTreeSet::new());
        assert_eq!(callers, RevokedCallers::default(), "a proxy that left is not refused");
        let revoked: Records = [(id, Arc::new(record))].into_iter().collect();
        let of = |waiting: &[&str]| {
            let waiting = waiting.iter().map(|serial| (*serial).to_owned()).collect();
            let callers = RevokedCallers::of(&revoked, &trust_domain, &waiting);
            (callers.dns_names.len(), callers.serials.len())
        };
        assert_eq!(
            [of(&["1", "2"]), of(&["1"]), of(&["2"]), of(&[])],
            [(1, 0), (1, 1), (2, 1), (2, 2)]
        );
    }
}
