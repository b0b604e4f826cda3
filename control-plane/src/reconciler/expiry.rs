//! Proxy certificates that expire soon or have expired, and the findings about them, for as long as the outage lasts.
//! Renews and revokes nothing.

use std::collections::BTreeSet;

use ironmesh_catalog::codes::{PROXY_CERTIFICATE_EXPIRED, PROXY_CERTIFICATE_EXPIRING};
use ironmesh_catalog::{CertificateState, Finding, JoinRecord, ObjectRef, Records};
use jiff::{SignedDuration, Timestamp};

/// The earliest warning before a long-lived certificate expires. A shorter one has a third of its lifetime.
const MAX_WARNING_TIME: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The most proxies that get a finding each.
const NAMED: usize = 5;

/// The proxies in use whose certificates have expired, or expire soon.
#[derive(Debug, Default)]
pub(crate) struct ExpiringProxies<'a> {
    pub(crate) expired: Vec<&'a JoinRecord>,
    pub(crate) expiring: Vec<&'a JoinRecord>,
}

impl<'a> ExpiringProxies<'a> {
    /// Those that have connected and were not revoked, unless a newer one replaced them at their address. `all` are all
    /// join records.
    pub(crate) fn among(all: &'a Records, now: Timestamp) -> Self {
        let live =
            all.values().filter(|record| record.revoked.is_none() && record.claimed_at.is_some());
        let mut found = Self::default();
        for record in live {
            match record.certificate_state(now) {
                CertificateState::Expired => found.expired.push(&**record),
                CertificateState::Claimed if is_due(record, now) => found.expiring.push(&**record),
                _ => {}
            }
        }
        if found.expired.is_empty() && found.expiring.is_empty() {
            return found;
        }
        let is_newer = |record: &&JoinRecord| record.is_in_use(now) && !is_due(record, now);
        let newer = all.values().map(|record| &**record).filter(is_newer);
        let renewed: BTreeSet<_> = newer.map(|record| record.mesh_address).collect();
        let is_left = |record: &&JoinRecord| !renewed.contains(&record.mesh_address);
        found.expired.retain(is_left);
        found.expiring.retain(is_left);
        found
    }
}

/// The findings about certificates of proxies in use. `all` are all join records.
pub(super) fn findings(all: &Records, now: Timestamp) -> Vec<Finding> {
    let ExpiringProxies { expired: ended, expiring: ending } = ExpiringProxies::among(all, now);
    let ended = about(&ended, |names| {
        let text = format!(
            "expired proxy certificate: {names}: the control plane rejects its connections and has withdrawn its endpoints"
        );
        Finding::error(PROXY_CERTIFICATE_EXPIRED, None, text)
    });
    let ending = about(&ending, |names| {
        Finding::warning(
            PROXY_CERTIFICATE_EXPIRING,
            None,
            format!(
                "proxy certificate expires soon: {names}; after that its xDS connection ends and callers do not call it"
            ),
        )
    });
    ended.into_iter().chain(ending).collect()
}

/// Whether a certificate expires soon.
fn is_due(record: &JoinRecord, now: Timestamp) -> bool {
    let life = record.certificate_expires_at.duration_since(record.certificate_issued_at());
    record.certificate_expires_at.duration_since(now) < (life / 3).min(MAX_WARNING_TIME)
}

/// A finding for each record, or one for all if there are many.
fn about(records: &[&JoinRecord], finding: impl Fn(String) -> Finding) -> Vec<Finding> {
    let name = |record: &&JoinRecord| {
        let services: Vec<_> = record.services.iter().map(|name| format!("`{name}`")).collect();
        let (proxy, address) = (record.display_name(), record.mesh_address);
        let end = record.certificate_expires_at;
        format!("proxy {proxy} at {address} of {}, ends {end:.0}", services.join(", "))
    };
    let [first, ..] = records else { return Vec::new() };
    let service = first.services.first().map(ToString::to_string).unwrap_or_default();
    let help = if first.azure.is_some() {
        format!(
            "on its machine, `ironmesh agent status` shows why the agent has not renewed it; that is possible for 7 days after the end, then {}",
            first.enroll_again()
        )
    } else {
        format!(
            "on its machine, run `ironmesh proxy bootstrap --renew DIR`, at most 7 days after the end; if that is not possible, enroll it again: `ironmesh proxy bootstrap --service {service} --address {} --out DIR`, start its Envoy with that bootstrap, then `ironmesh proxy revoke {}`",
            first.mesh_address.ip(),
            first.display_name()
        )
    };
    if records.len() <= NAMED {
        let one = |record: &&JoinRecord| finding(name(record)).object(record.id).help(help.clone());
        return records.iter().map(one).collect();
    }
    let some: Vec<_> = records.iter().take(NAMED).map(name).collect();
    let words = format!("{} proxies: {}; and others", records.len(), some.join("; "));
    let objects = records.iter().map(|record| ObjectRef::Proxy(record.id));
    vec![finding(words).objects(objects).help(help)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_catalog::{ProxyId, Revocation};
    use uuid::Uuid;

    use super::*;

    fn then(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    /// The record of a proxy that was enrolled at hour 0 and whose certificate expires at hour `end`.
    fn record(number: u8, end: i64) -> JoinRecord {
        JoinRecord {
            claimed_at: Some(then(0)),
            ..JoinRecord::new(
                ProxyId(Uuid::from_u128(number.into())),
                vec!["store".parse().unwrap()],
                ([10, 0, 0, number], 15003).into(),
                then(0),
                then(end),
            )
        }
    }

    fn found(records: &[JoinRecord], hour: i64) -> Vec<String> {
        let records = records.iter().map(|one| (one.id, Arc::new(one.clone()))).collect();
        findings(&records, then(hour)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expiring_certificate_is_a_warning_and_expired_one_an_error() {
        let short = [record(1, 30)];
        assert!(found(&short, 19).is_empty());
        let [warning] = &found(&short, 21)[..] else { panic!("{:?}", found(&short, 21)) };
        assert!(warning.starts_with("warning[IM0733]") && warning.contains("10.0.0.1:15003"));
        let [error] = &found(&short, 30)[..] else { panic!("{:?}", found(&short, 30)) };
        assert!(error.starts_with("error[IM0734]") && error.contains("`default/store`"), "{error}");
        let records = [record(1, 30)].map(|one| (one.id, Arc::new(one)));
        let help = findings(&records.into_iter().collect(), then(30)).remove(0).help.unwrap();
        assert!(help.starts_with("on its machine, run `ironmesh proxy bootstrap --renew DIR`"));
        let year = [record(1, 24 * 365)];
        assert!(found(&year, 24 * 350).is_empty());
        assert_eq!(found(&year, 24 * 352).len(), 1);
    }

    #[test]
    fn replaced_revoked_or_unclaimed_certificate_has_no_finding() {
        let replaced =
            [record(1, 30), JoinRecord { id: ProxyId(Uuid::from_u128(9)), ..record(1, 900) }];
        assert!(found(&replaced, 31).is_empty());
        let revocation = Revocation::by_operator(then(1), None);
        assert!(found(&[JoinRecord { revoked: Some(revocation), ..record(1, 30) }], 31).is_empty());
        assert!(found(&[JoinRecord { claimed_at: None, ..record(1, 30) }], 31).is_empty());
    }

    #[test]
    fn many_expired_certificates_are_one_finding() {
        let all: Vec<_> = (1..=9).map(|number| record(number, 30)).collect();
        let [one] = &found(&all, 31)[..] else { panic!("{:?}", found(&all, 31)) };
        assert!(one.contains("9 proxies") && one.contains("10.0.0.5") && !one.contains("10.0.0.6"));
    }
}
