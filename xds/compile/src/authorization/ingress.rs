//! Authorization of callers outside of the mesh, among the policies of the service port.
//!
//! Both kinds of callers are judged by the same rules, so each policy here says what tells its callers from
//! the mesh's own: by TLS the name that they ask for in SNI, which is none of the mesh's; in plaintext that it
//! is plaintext, which nobody gets through at the mesh port.

use ironmesh_catalog::{Hostname, IngressEntry, IngressRule, ServicePort, Snapshot};
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, permission, principal,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    StringMatcher, string_matcher::MatchPattern,
};

use super::{allows, authenticated, everything, set};
use crate::index::PolicyIndex;
use crate::shape::{cidr, exact};

/// The policies of the ways in to `port`, by their names. No target can be called so: these have no space.
pub(super) fn policies(
    index: &PolicyIndex,
    snapshot: &Snapshot,
    port: &ServicePort,
) -> Vec<(String, Policy)> {
    let ways = snapshot.ways_in.get(port).map_or(&[][..], |ways| ways.as_slice());
    let policy = |way: &IngressRule| {
        let (namespace, name) = (&way.policy.namespace, &way.policy.name);
        let name = format!("ingress {namespace}/{name} {}", way.entry.protocol());
        Some((name, policy(index, way)?))
    };
    ways.iter().filter_map(policy).collect()
}

/// None where it has nobody or nothing to allow: an empty list must never come to mean "anyone" (invariant 3).
fn policy(index: &PolicyIndex, way: &IngressRule) -> Option<Policy> {
    let mut who = Vec::new();
    match &way.entry {
        IngressEntry::Https { skips_client_certificates: false, .. } => {
            who.push(any_of(way.principals().map(|name| authenticated(exact(name))))?);
        }
        // Nobody has shown who it is: somewhere it must be.
        IngressEntry::Https { .. } => _ = way.ranges.as_ref()?,
        IngressEntry::Http { .. } => {
            way.ranges.as_ref()?;
            who.push(in_plaintext());
        }
    }
    if let Some(ranges) = &way.ranges {
        let from =
            |range| Principal { identifier: Some(principal::Identifier::DirectRemoteIp(range)) };
        who.push(any_of(ranges.iter().map(|range| from(cidr(*range))))?);
    }
    let policy = &way.policy;
    let mut requests: Vec<_> = if policy.matches.is_empty() {
        vec![everything()]
    } else {
        index.matched(&policy.namespace, &policy.matches).map(allows).collect()
    };
    if let IngressEntry::Https { hosts, .. } = &way.entry {
        let asked = permission::Rule::OrRules(set(hosts.iter().map(asked_for)));
        requests = requests.into_iter().map(|one| both(asked.clone(), one)).collect();
    }
    let who =
        Principal { identifier: Some(principal::Identifier::AndIds(principal::Set { ids: who })) };
    (!requests.is_empty()).then(|| Policy {
        permissions: requests,
        principals: vec![who],
        ..Policy::default()
    })
}

fn both(one: permission::Rule, other: Permission) -> Permission {
    let rules = [one].into_iter().chain(other.rule);
    Permission { rule: Some(permission::Rule::AndRules(set(rules))) }
}

/// Asked for by this name, or by one below it.
fn asked_for(host: &Hostname) -> permission::Rule {
    let pattern = match host.as_str().strip_prefix('*') {
        Some(below) => MatchPattern::Suffix(below.to_owned()),
        None => MatchPattern::Exact(host.as_str().to_owned()),
    };
    // Names of DNS are the same in any case.
    permission::Rule::RequestedServerName(StringMatcher {
        match_pattern: Some(pattern),
        ignore_case: true,
    })
}

fn any_of(principals: impl Iterator<Item = Principal>) -> Option<Principal> {
    let ids: Vec<_> = principals.collect();
    if ids.is_empty() {
        return None;
    }
    Some(Principal { identifier: Some(principal::Identifier::OrIds(principal::Set { ids })) })
}

fn in_plaintext() -> Principal {
    // Without a name it is whoever has come by TLS.
    let by_tls = principal::Authenticated { principal_name: None };
    let by_tls = Principal { identifier: Some(principal::Identifier::Authenticated(by_tls)) };
    Principal { identifier: Some(principal::Identifier::NotId(Box::new(by_tls))) }
}
