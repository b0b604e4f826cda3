//! Rules that grant nothing beyond another rule for the same callers.
//!
//! Only certain cases are reported. Expressions are compared by their texts, and by the literal prefix that
//! one demands if the other is only a literal prefix.

mod cover;

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    ApplicableRules, Finding, RouteRule, ServiceAccount, Subject, TrafficTarget,
};

use self::cover::MatchPattern;
use super::draft::Draft;
use crate::codes;

/// The most rules of one caller and one destination with which a rule is compared. No person writes more, and
/// the check of a generated policy must not cost the square of its length.
const MOST_COMPARED: usize = 64;

/// The most matches of a group whose rules are compared.
const MOST_MATCHES: usize = 64;

/// Reports the rules of `draft` that another rule makes needless.
pub(super) fn check(draft: &mut Draft<'_>) {
    let rules: Vec<Grant<'_>> = draft
        .traffic_targets
        .iter()
        .flat_map(|target| target.rules.iter().map(move |rule| (target, rule)))
        .filter_map(|(target, rule)| Grant::new(draft, target, rule))
        .collect();
    // A rule that grants the same to all callers of another grants it to the first of them.
    let mut by_callers: BTreeMap<(&SubjectKey<'_>, &SubjectKey<'_>), Vec<usize>> = BTreeMap::new();
    for (number, grant) in rules.iter().enumerate() {
        for source in &grant.sources {
            by_callers.entry((&grant.destination, source)).or_default().push(number);
        }
    }
    let mut findings = Vec::new();
    for (number, grant) in rules.iter().enumerate().filter(|(_, grant)| grant.may_be_removed) {
        let others =
            grant.sources.first().and_then(|source| by_callers.get(&(&grant.destination, source)));
        let others = others.into_iter().flatten().take(MOST_COMPARED).copied();
        let other = others.filter(|other| *other != number).find_map(|other| {
            let covering = rules.get(other)?;
            // Of two that grant the same, the second is needless.
            let is_needless = covering.covers(grant) && (other < number || !grant.covers(covering));
            is_needless.then_some(covering)
        });
        findings.extend(other.map(|other| shadowed(grant, other)));
    }
    draft.findings.extend(findings);
}

/// An account or a binding, as the key by which policy alone can compare subjects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SubjectKey<'a> {
    Account(&'a ServiceAccount),
    /// A binding whose members policy does not know, by its namespace and name.
    Binding(&'a str, &'a str),
}

impl<'a> SubjectKey<'a> {
    fn new(draft: &Draft<'a>, subject: &'a Subject) -> Self {
        match subject {
            Subject::Account(account) => Self::Account(account),
            Subject::Binding(namespace, name) => {
                let binding = draft.identity_bindings.get(&(namespace.clone(), name.clone()));
                // The trust domain of identities, and the labels of endpoints, are not known here.
                let is_plain = |binding: &&ironmesh_catalog::IdentityBinding| {
                    binding.identities.is_empty() && binding.endpoint_labels.is_none()
                };
                let account = binding.filter(is_plain).and_then(|one| one.account.as_ref());
                account.map_or(Self::Binding(namespace.as_str(), name.as_str()), Self::Account)
            }
        }
    }
}

/// A rule, with what it grants.
struct Grant<'a> {
    target: &'a TrafficTarget,
    rule: &'a RouteRule,
    destination: SubjectKey<'a>,
    sources: BTreeSet<SubjectKey<'a>>,
    what: Granted<'a>,
    /// Whether its removal changes nothing else.
    may_be_removed: bool,
}

/// What a rule grants.
enum Granted<'a> {
    /// Requests, each of which matches one of these.
    Http(Vec<MatchPattern<'a>>),
    /// Connections to these ports, or to all; and, as [`ApplicableRules`] decides, requests too.
    Tcp { ports: Option<&'a [u16]>, and_requests: bool },
}

impl<'a> Grant<'a> {
    /// The grant of the rule; `None` if an object that it names could not be read.
    fn new(draft: &Draft<'a>, target: &'a TrafficTarget, rule: &'a RouteRule) -> Option<Self> {
        let is_tcp = |rule: &RouteRule| matches!(rule, RouteRule::Tcp { .. });
        let of_tcp = target.rules.iter().filter(|rule| is_tcp(rule)).count();
        let of_http = target.rules.len() - of_tcp;
        let what = match rule {
            RouteRule::Http { group, matches, .. } => {
                let key = (target.namespace.clone(), group.clone());
                let group = draft.http_route_groups.get(&key)?;
                // A large generated group is not compared match by match.
                if group.matches.len() > MOST_MATCHES {
                    return None;
                }
                let named = group.named_matches(matches.as_deref());
                Granted::Http(named.map(MatchPattern::new).collect())
            }
            RouteRule::Tcp { route, .. } => {
                let route = draft.tcp_routes.get(&(target.namespace.clone(), route.clone()))?;
                let and_requests = ApplicableRules::new(target).tcp_routes_allow_requests();
                Granted::Tcp { ports: route.ports.as_deref(), and_requests }
            }
        };
        Some(Self {
            target,
            rule,
            destination: SubjectKey::new(draft, &target.destination),
            sources: target.sources.iter().map(|source| SubjectKey::new(draft, source)).collect(),
            what,
            // Without its last rule about HTTP, a target allows all of HTTP on the ports of the others.
            may_be_removed: is_tcp(rule) || of_http > 1 || of_tcp == 0,
        })
    }

    /// Whether it grants all that `other` grants.
    fn covers(&self, other: &Self) -> bool {
        // The cheapest comparison is first.
        if self.destination != other.destination || !self.sources.is_superset(&other.sources) {
            return false;
        }
        match (&self.what, &other.what) {
            (Granted::Http(ours), Granted::Http(theirs)) => {
                !theirs.is_empty()
                    && theirs.iter().all(|one| ours.iter().any(|wide| wide.covers(one)))
            }
            (
                Granted::Tcp { ports: ours, and_requests: our_requests },
                Granted::Tcp { ports: theirs, and_requests: their_requests },
            ) => {
                let all_ports = match (ours, theirs) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(ours), Some(theirs)) => theirs.iter().all(|port| ours.contains(port)),
                };
                all_ports && (*our_requests || !their_requests)
            }
            (Granted::Http(_), Granted::Tcp { .. }) | (Granted::Tcp { .. }, Granted::Http(_)) => {
                false
            }
        }
    }

    fn spot(&self) -> &ironmesh_catalog::Spot {
        match self.rule {
            RouteRule::Http { spot, .. } | RouteRule::Tcp { spot, .. } => spot,
        }
    }
}

fn shadowed(grant: &Grant<'_>, by: &Grant<'_>) -> Finding {
    let other = if std::ptr::eq(grant.target, by.target) {
        "another rule of this target".to_owned()
    } else {
        format!("traffic target `{}`", by.target.name)
    };
    let message = format!("this rule grants nothing that {other} does not grant already");
    Finding::warning(codes::SHADOWED_RULE, Some(grant.spot().clone()), message)
        .label("needless")
        .related(by.spot().clone(), "the same callers may do all of that by this")
        .help("remove it; or narrow the other, if this was to be the limit")
}
