//! The verdict of one service port on a call: the rules that allow it, or the rules that come closest.
//!
//! This module owns the evaluation of traffic targets for one port. It never decides where a call goes.

use std::collections::BTreeSet;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::name::{Name, ServiceAccount};
use ironmesh_catalog::service::{Mode, Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::matching::{Mismatch, mismatches};
use super::request::Arrival;
use crate::written_target::written_target;

/// The most rules without a match that a verdict lists.
const MAX_UNMET: usize = 5;

/// The verdict of one service port on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortVerdict {
    /// Whether policy allows the call; without a request, whether it allows any request.
    pub allowed: bool,
    /// Whether the sidecar answers 400 before authorization: the path has an escaped slash, which the service
    /// does not [keep](ironmesh_catalog::EscapedSlashes::Keep).
    pub rejected: bool,
    /// The rules that allow it. Empty if the mode allows it.
    pub by: Vec<GrantingRule>,
    /// Whether strict mode would deny what audit mode allows.
    pub strict_denies: bool,
    /// The namespace of a private service, if the caller belongs to a different one. The service is then
    /// closed to the caller, whatever traffic targets allow and in every mode.
    pub private_to: Option<Name>,
    /// If the call is denied, or strict mode would deny it: the rules about the service, closest match first.
    pub missing: Vec<UnmetRule>,
    /// The number of rules that `missing` leaves out.
    pub further: usize,
}

/// A rule that allows a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantingRule {
    /// The traffic target.
    pub target: Cited,
    /// The match or the TCP route that the rule names.
    pub rule: Cited,
    /// The traffic that it allows.
    pub traffic: AllowedTraffic,
}

/// A rule about the service that does not allow a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmetRule {
    /// The traffic target.
    pub target: Cited,
    /// The match or the TCP route; none if no rule of the target applies to the port.
    pub rule: Option<Cited>,
    /// The traffic that it allows.
    pub traffic: Option<AllowedTraffic>,
    /// The callers that the target names, if the caller is not among them.
    pub other_callers: Option<BTreeSet<ServiceAccount>>,
    /// The conditions of the match that the request does not meet. If there are none and the target names the
    /// caller, only the service being [private](PortVerdict::private_to) prevents the call.
    pub mismatches: Vec<Mismatch>,
}

/// The verdict of `port` of `service` on a call; without a request, on any request. `service` is not a subset.
pub(super) fn evaluate_port(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: Option<&Arrival>,
) -> PortVerdict {
    let is_visible = service.is_visible_in(&caller.namespace);
    let default = PortVerdict {
        allowed: is_visible,
        rejected: false,
        by: Vec::new(),
        strict_denies: false,
        private_to: (!is_visible).then(|| service.name.namespace.clone()),
        missing: Vec::new(),
        further: 0,
    };
    if request.is_some_and(|request| request.is_rejected_by(service)) {
        return PortVerdict { allowed: false, rejected: true, ..default };
    }
    let mode = snapshot.mode_of(service);
    if mode == Mode::Permissive {
        return default;
    }
    let (mut by, mut missing) = (Vec::new(), Vec::new());
    for grant in snapshot.grants.on(&service.account) {
        for outcome in rule_outcomes(snapshot, caller, grant, port, request) {
            match outcome {
                UnmetRule {
                    target,
                    rule: Some(rule),
                    traffic: Some(traffic),
                    other_callers: None,
                    mismatches,
                } if is_visible && mismatches.is_empty() => {
                    by.push(GrantingRule { target, rule, traffic });
                }
                unmet_rule => missing.push(unmet_rule),
            }
        }
    }
    if !by.is_empty() {
        return PortVerdict { by, ..default };
    }
    missing.sort_by_cached_key(|unmet_rule| {
        let distance = unmet_rule.mismatches.len();
        (
            unmet_rule.other_callers.is_some(),
            unmet_rule.rule.is_none(),
            distance,
            unmet_rule.target.clone(),
        )
    });
    let further = missing.len().saturating_sub(MAX_UNMET);
    missing.truncate(MAX_UNMET);
    let allowed = default.allowed && mode.allows_all();
    PortVerdict { allowed, strict_denies: allowed, missing, further, ..default }
}

/// Each rule of a target, with the conditions that keep it from allowing the call.
fn rule_outcomes(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    grant: &Grant,
    port: &Port,
    request: Option<&Arrival>,
) -> Vec<UnmetRule> {
    let target = Cited::target(written_target(snapshot, grant));
    let other_callers = (!grant.sources.contains(caller)).then(|| grant.sources.clone());
    let no_rule =
        UnmetRule { target, rule: None, traffic: None, other_callers, mismatches: Vec::new() };
    let rules = snapshot.specification.allowing_rules(&grant.target, port);
    let outcomes = rules.map(|rule| UnmetRule {
        rule: Some(rule.cited()),
        traffic: Some(rule.traffic()),
        mismatches: match (rule.condition(), request) {
            (Some(condition), Some(request)) => mismatches(condition, request),
            _ => Vec::new(),
        },
        ..no_rule.clone()
    });
    let outcomes: Vec<_> = outcomes.collect();
    if outcomes.is_empty() { vec![no_rule] } else { outcomes }
}
