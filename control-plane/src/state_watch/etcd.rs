//! The findings about a store in etcd.

use ironmesh_catalog::{Finding, codes};
use ironmesh_store_etcd::StoreCondition;
use jiff::{SignedDuration, Timestamp};

use super::NAMED;

/// How long the exchange with the other control planes may fail before it is a finding: a lost connection is normal.
const EXCHANGE_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// The findings about the condition of a store in etcd, and about the exchange with the other control planes: since when it
/// fails, and why. `expiry` is when the first service certificate expires, if none is renewed.
pub(super) fn etcd_findings(
    condition: &StoreCondition,
    exchange: Option<(Timestamp, String)>,
    expiry: Option<Timestamp>,
) -> Vec<Finding> {
    let StoreCondition { unavailable, not_writable, foreign, damage, rolled_back_to, copy_failure } =
        condition;
    let expiry = expiry
        .map(|at| format!("; without it, the first service certificate expires at {at:.0}"))
        .unwrap_or_default();
    let mut found = Vec::new();
    if let Some((since, problem)) = unavailable {
        let words = format!("the store in etcd cannot be used since {since:.0}: {problem}{expiry}");
        found.push(Finding::error(codes::STORE_UNAVAILABLE, None, words).help(
            "restore the quorum of etcd, or the network to it: the control plane tries again all the time and needs no \
             restart. Proxies keep running. Until then no proxy is enrolled or revoked, and no certificate is renewed",
        ));
    }
    if let Some((since, problem)) = not_writable {
        let words = format!("etcd stores nothing since {since:.0}: {problem}{expiry}");
        found.push(Finding::error(codes::STORE_UNAVAILABLE, None, words).help(
            "look at the alarms of etcd (`etcdctl alarm list`), at its disks, and at the role of the control planes; the \
             control plane tries again every two seconds. Proxies keep running. Until then no proxy is enrolled or revoked, \
             and no certificate is renewed",
        ));
    }
    let is_long = |(since, _): &(Timestamp, String)| {
        Timestamp::now().duration_since(*since) > EXCHANGE_PATIENCE
    };
    if let Some((since, problem)) = exchange.filter(is_long) {
        let words = format!(
            "notes of the other control planes have not been exchanged since {since:.0}: {problem}"
        );
        found.push(Finding::error(codes::STORE_UNAVAILABLE, None, words).help(
            "if etcd is down, restore it; if the message names a permission, grant read and write below `leases/` of the prefix. Until then no \
             proxy is marked unreachable, drains wait their full time, and health that was reported elsewhere is missing",
        ));
    }
    if let Some(damage) = damage {
        let words = format!("what etcd has is not the state of this mesh: {damage}");
        found.push(Finding::error(codes::STORE_CHANGED, None, words).help(
            "find out which client of etcd wrote below the prefix of the mesh, and restore etcd from a backup. The control \
             plane serves the last good state; until then no proxy is enrolled or revoked, and no certificate is renewed",
        ));
    }
    if !foreign.is_empty() {
        let named: Vec<_> = foreign.iter().take(NAMED).map(|key| format!("`{key}`")).collect();
        let words = format!(
            "{} keys of etcd were changed by a client that is no control plane of this mesh: {}",
            foreign.len(),
            named.join(", ")
        );
        found.push(Finding::warning(codes::STORE_CHANGED, None, words).help(
            "the changes have no effect, and the control plane repairs them: find out which client of etcd made them, and \
             give no other one a role for the prefix of the mesh",
        ));
    }
    if let Some(revision) = rolled_back_to {
        let words = format!(
            "etcd was put back to an older state: it has revision {revision}; later changes are lost in it, such as \
             revocations and enrollments"
        );
        found.push(Finding::error(codes::STORE_ROLLED_BACK, None, words).help(
            "restore a newer backup of etcd. Or accept the older state: restart all control planes of the mesh with \
             `ironmesh serve --accept-older-store`, then repeat what is lost, revocations first. The control plane serves \
             the last good state; until then nothing is stored",
        ));
    }
    if let Some(problem) = copy_failure {
        let words = format!(
            "the copy of the store on the disk of this control plane cannot be written: {problem}"
        );
        found.push(Finding::warning(codes::STORE_COPY_NOT_WRITTEN, None, words).help(
            "free space on the disk of the state folder, or repair it: with an older copy, this control plane starts in an \
             older state while etcd is down",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_of_etcd_is_a_finding() {
        assert_eq!(etcd_findings(&StoreCondition::default(), None, None), []);
        let recent = Some((Timestamp::now(), "a lost connection".to_owned()));
        assert_eq!(etcd_findings(&StoreCondition::default(), recent, None), []);
        let condition = StoreCondition {
            unavailable: Some((Timestamp::UNIX_EPOCH, "no leader".to_owned())),
            not_writable: Some((Timestamp::UNIX_EPOCH, "no space left".to_owned())),
            foreign: ["/m/state/x".to_owned()].into(),
            damage: Some("the head is missing".to_owned()),
            rolled_back_to: Some(7),
            copy_failure: Some("disk full".to_owned()),
        };
        let exchange = Some((Timestamp::UNIX_EPOCH, "denied".to_owned()));
        let found = etcd_findings(&condition, exchange, Some(Timestamp::UNIX_EPOCH));
        let says_when = |one: &Finding| one.message.ends_with("expires at 1970-01-01T00:00:00Z");
        assert_eq!(found.iter().filter(|one| says_when(one)).count(), 2);
        let found: Vec<_> = found.iter().map(|one| (one.code.0, one.is_error())).collect();
        assert_eq!(
            found,
            [
                (706, true),
                (706, true),
                (706, true),
                (707, true),
                (707, false),
                (708, true),
                (709, false)
            ]
        );
    }
}
