//! Rules that allow nothing: legal, and surely not intended.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    ApplicableRules, Finding, Name, Port, RouteRule, Service, ServiceAccount, TcpRoute,
    TrafficTarget,
};

use super::draft::Draft;
use crate::codes;

/// Ports by their number, and whether each is an HTTP port.
type Ports = BTreeSet<(u16, bool)>;

/// Reports the rules of `draft` that match no port of the services that their target selects.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut ports: BTreeMap<&ServiceAccount, Ports> = BTreeMap::new();
    for Service { account, ports: own, .. } in draft.services.iter() {
        let own = own.iter().map(|port| (port.number, port.protocol.is_http()));
        ports.entry(account).or_default().extend(own);
    }
    let mut findings = Vec::new();
    // An unreadable object may have the port that seems to be missing.
    let is_whole = draft.may_be_defined.is_empty() && !draft.anything_may_be_defined;
    for target in draft.traffic_targets.iter().filter(|_| is_whole) {
        let Some(accounts) = draft.accounts_of(&target.destination) else { continue };
        let ports = accounts.iter().filter_map(|account| ports.get(account));
        let ports: Ports = ports.flatten().copied().collect();
        // Services without any ports may be incomplete.
        if ports.is_empty() {
            continue;
        }
        let applicable = ApplicableRules::new(target);
        let is_idle = |rule: &&RouteRule| {
            !ports.iter().any(|(number, is_http)| {
                applicable.include(rule, *is_http, |route| covers(draft, target, route, *number))
            })
        };
        findings.extend(target.rules.iter().filter(is_idle).map(|rule| idle(draft, target, rule)));
    }
    draft.findings.extend(findings);
}

/// Whether a rule of `target` applies to `port`.
pub(super) fn has_rule_about(draft: &Draft<'_>, target: &TrafficTarget, port: &Port) -> bool {
    let applicable = ApplicableRules::new(target);
    let covers = |route: &Name| covers(draft, target, route, port.number);
    target.rules.iter().any(|rule| applicable.include(rule, port.protocol.is_http(), covers))
}

/// Whether the TCP route that a rule of `target` names covers the port `number`.
fn covers(draft: &Draft<'_>, target: &TrafficTarget, route: &Name, number: u16) -> bool {
    let route = draft.tcp_routes.get(&(target.namespace.clone(), route.clone()));
    // A missing or unreadable object is reported already.
    route.is_none_or(|route: &TcpRoute| route.covers(number))
}

fn idle(draft: &Draft<'_>, target: &TrafficTarget, rule: &RouteRule) -> Finding {
    let account = &target.destination;
    let (what, spot) = match rule {
        RouteRule::Http { spot, .. } => ("an HTTP port".to_owned(), spot),
        RouteRule::Tcp { route, spot } => {
            let route = draft.tcp_routes.get(&(target.namespace.clone(), route.clone()));
            let ports = route.and_then(|route| route.ports.as_ref());
            let ports: Vec<_> =
                ports.into_iter().flatten().map(|port| format!("`{port}`")).collect();
            match ports.as_slice() {
                [] => ("a TCP port".to_owned(), spot),
                ports => (format!("the TCP port {}", ports.join(" or ")), spot),
            }
        }
    };
    let message = format!("this rule allows nothing: no service of `{account}` has {what}");
    Finding::warning(codes::IDLE_RULE, Some(spot.clone()), message)
        .label("matches no port")
        .help("name the service port that callers use, not its `target_port`; or remove the rule")
}
