//! What the server of one service port makes of a call: what lets it through, or what is missing.

use std::collections::BTreeSet;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::name::{Name, ServiceAccount};
use ironmesh_catalog::service::{Mode, Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::matching::{Mismatch, mismatches};
use super::request::Arrival;

/// How many rules that let nothing through are told.
const MOST: usize = 5;

/// What one service port makes of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether it is let through; where no request is asked about, whether any is.
    pub allowed: bool,
    /// Whether it is answered with 400 before anybody asks who calls: its path has an escaped slash, which
    /// the service does not [keep](ironmesh_catalog::EscapedSlashes::Keep).
    pub rejected: bool,
    /// What lets it through. Empty where it is the mode.
    pub by: Vec<Permit>,
    /// Whether strict would deny what audit lets through.
    pub strict_denies: bool,
    /// The namespace that alone knows of the service, where the caller is of another: then nobody lets it
    /// through, whatever targets say, and in permissive mode either.
    pub private_to: Option<Name>,
    /// Where it is not let through, or strict would deny it: the rules that are about the service, the nearest first.
    pub missing: Vec<Miss>,
    /// How many further such rules there are.
    pub further: usize,
}

/// A rule that lets a call through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// The target.
    pub target: Cited,
    /// The match or the route that its rule names.
    pub rule: Cited,
    /// What it allows.
    pub way: AllowedTraffic,
}

/// A rule that is about the service, and does not let a call through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Miss {
    /// The target.
    pub target: Cited,
    /// The match or the route; none where no rule of the target is about the port.
    pub rule: Option<Cited>,
    /// What it allows.
    pub way: Option<AllowedTraffic>,
    /// Whom the target names, where it does not name the caller.
    pub other_callers: Option<BTreeSet<ServiceAccount>>,
    /// What of the match does not hold of the request. If it is nothing, and the caller is named, the rule
    /// would let it through, were the service not [private](Judgement::private_to).
    pub mismatches: Vec<Mismatch>,
}

/// What `port` of `service`, which is no part of another, makes of a call. Without a request, it is about any.
pub(super) fn judge(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: Option<&Arrival>,
) -> Judgement {
    let is_visible = service.is_visible_in(&caller.namespace);
    let nothing = Judgement {
        allowed: is_visible,
        rejected: false,
        by: Vec::new(),
        strict_denies: false,
        private_to: (!is_visible).then(|| service.name.namespace.clone()),
        missing: Vec::new(),
        further: 0,
    };
    if request.is_some_and(|request| request.is_rejected_by(service)) {
        return Judgement { allowed: false, rejected: true, ..nothing };
    }
    let mode = snapshot.mode_of(service);
    if mode == Mode::Permissive {
        return nothing;
    }
    let (mut by, mut missing) = (Vec::new(), Vec::new());
    for grant in snapshot.grants.on(&service.account) {
        for tried in tries(snapshot, caller, grant, port, request) {
            match tried {
                Miss {
                    target,
                    rule: Some(rule),
                    way: Some(way),
                    other_callers: None,
                    mismatches,
                } if is_visible && mismatches.is_empty() => {
                    by.push(Permit { target, rule, way });
                }
                miss => missing.push(miss),
            }
        }
    }
    if !by.is_empty() {
        return Judgement { by, ..nothing };
    }
    missing.sort_by_cached_key(|miss| {
        let distance = miss.mismatches.len();
        (miss.other_callers.is_some(), miss.rule.is_none(), distance, miss.target.clone())
    });
    let further = missing.len().saturating_sub(MOST);
    missing.truncate(MOST);
    let allowed = nothing.allowed && mode.lets_all_in();
    Judgement { allowed, strict_denies: allowed, missing, further, ..nothing }
}

/// Each way that a target knows, and what keeps it from letting the call through, if anything.
fn tries(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    grant: &Grant,
    port: &Port,
    request: Option<&Arrival>,
) -> Vec<Miss> {
    // As it is written now: a grant that has stayed the same may be of an older text.
    let key = (grant.target.namespace.clone(), grant.target.name.clone());
    let written = snapshot.specification.traffic_targets.get(&key);
    let target = Cited::target(written.unwrap_or(&grant.target));
    let other_callers = (!grant.sources.contains(caller)).then(|| grant.sources.clone());
    let nothing = Miss { target, rule: None, way: None, other_callers, mismatches: Vec::new() };
    let rules = snapshot.specification.allowing_rules(&grant.target, port);
    let tried = rules.map(|rule| Miss {
        rule: Some(rule.cited()),
        way: Some(rule.traffic()),
        mismatches: match (rule.condition(), request) {
            (Some(condition), Some(request)) => mismatches(condition, request),
            _ => Vec::new(),
        },
        ..nothing.clone()
    });
    let tried: Vec<_> = tried.collect();
    if tried.is_empty() { vec![nothing] } else { tried }
}
