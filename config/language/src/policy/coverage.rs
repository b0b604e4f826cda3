//! Rules that allow nothing: legal, and surely not intended.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    Finding, Port, RouteRule, Service, ServiceAccount, TcpRoute, TrafficTarget,
};

use super::draft::Draft;
use crate::codes;

/// The ports of all services that run as one account.
#[derive(Debug, Default)]
struct Ports {
    http: BTreeSet<u16>,
    tcp: BTreeSet<u16>,
}

impl Ports {
    fn of_all<'a>(several: impl Iterator<Item = &'a Self>) -> Self {
        several.fold(Self::default(), |mut all, one| {
            all.http.extend(&one.http);
            all.tcp.extend(&one.tcp);
            all
        })
    }
}

/// Reports the rules of `draft` that match no port of the services that their target selects.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut ports: BTreeMap<&ServiceAccount, Ports> = BTreeMap::new();
    for Service { account, ports: own, .. } in draft.services.iter() {
        let ports = ports.entry(account).or_default();
        for Port { number, protocol, .. } in own {
            let numbers = if protocol.is_http() { &mut ports.http } else { &mut ports.tcp };
            numbers.insert(*number);
        }
    }
    let mut findings = Vec::new();
    // An unreadable object may have the port that seems to be missing.
    let is_whole = draft.may_be_defined.is_empty() && !draft.anything_may_be_defined;
    for target in draft.traffic_targets.iter().filter(|_| is_whole) {
        let Some(accounts) = draft.accounts_of(&target.destination) else { continue };
        let ports = Ports::of_all(accounts.iter().filter_map(|account| ports.get(account)));
        // Services without any ports may be incomplete.
        if ports.http.is_empty() && ports.tcp.is_empty() {
            continue;
        }
        // TCP routes apply to HTTP ports too, if a target has no other rules.
        let is_tcp_only = target.rules.iter().all(|one| matches!(one, RouteRule::Tcp { .. }));
        let is_idle = |rule: &&RouteRule| match rule {
            RouteRule::Http { .. } => ports.http.is_empty(),
            RouteRule::Tcp { route, .. } => {
                let key = (target.namespace.clone(), route.clone());
                // A missing or unreadable object is reported already.
                let listed = draft.tcp_routes.get(&key).and_then(|route| route.ports.as_ref());
                let is_about = |ports: &BTreeSet<u16>| match listed {
                    Some(listed) => listed.iter().any(|port| ports.contains(port)),
                    None => !ports.is_empty(),
                };
                !(is_about(&ports.tcp) || is_tcp_only && is_about(&ports.http))
            }
        };
        findings.extend(target.rules.iter().filter(is_idle).map(|rule| idle(draft, target, rule)));
    }
    draft.findings.extend(findings);
}

/// Whether the rule applies to the port. TCP routes apply to HTTP ports too, if a target has no other rules.
pub(super) fn covers(
    draft: &Draft<'_>,
    target: &TrafficTarget,
    rule: &RouteRule,
    port: &Port,
) -> bool {
    match rule {
        RouteRule::Http { .. } => port.protocol.is_http(),
        RouteRule::Tcp { route, .. } => {
            let is_tcp_only = target.rules.iter().all(|one| matches!(one, RouteRule::Tcp { .. }));
            let route = draft.tcp_routes.get(&(target.namespace.clone(), route.clone()));
            // A missing or unreadable object is reported already.
            (!port.protocol.is_http() || is_tcp_only)
                && route.is_none_or(|route: &TcpRoute| route.covers(port.number))
        }
    }
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
        .help("name the service port that callers use, not its `target_port`; or take the rule out")
}
