//! Authorization of ingress callers, among the policies of the service port.
//!
//! The same rules decide about ingress and mesh callers, so each policy here separates its callers
//! from the mesh's own. With TLS it requires the SNI name, which is never the mesh's. In plaintext
//! it requires plaintext, which the mesh port never accepts.

use ironmesh_catalog::{Hostname, IngressEntry, IngressRule, ServicePort};
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, permission, principal,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    StringMatcher, string_matcher::MatchPattern,
};

use super::{allows, authenticated, everything, set};
use crate::mesh_view::MeshView;
use crate::shape::{cidr, exact};

/// The policies of the ingress rules of `port`, by name. No target can have such a name: target
/// names contain no space.
pub(super) fn policies(mesh: MeshView<'_>, port: &ServicePort) -> Vec<(String, Policy)> {
    let rules = mesh.ingress_rules(port).map_or(&[][..], |(_, rules)| rules);
    let policy = |rule: &IngressRule| {
        let (namespace, name) = (&rule.policy.namespace, &rule.policy.name);
        let name = format!("ingress {namespace}/{name} {}", rule.entry.protocol());
        Some((name, policy(mesh, rule)?))
    };
    rules.iter().filter_map(policy).collect()
}

/// The policy of one ingress rule; `None` if it has no caller or no request to allow: an empty list
/// must never come to mean "anyone" (invariant 3).
fn policy(mesh: MeshView<'_>, rule: &IngressRule) -> Option<Policy> {
    let mut principals = Vec::new();
    match &rule.entry {
        IngressEntry::Https { skips_client_certificates: false, .. } => {
            principals.push(any_of(rule.principals().map(|name| authenticated(exact(name))))?);
        }
        // The caller has no certificate, so its address must be restricted.
        IngressEntry::Https { .. } => _ = rule.ranges.as_ref()?,
        IngressEntry::Http { .. } => {
            rule.ranges.as_ref()?;
            principals.push(in_plaintext());
        }
    }
    if let Some(ranges) = &rule.ranges {
        let from =
            |range| Principal { identifier: Some(principal::Identifier::DirectRemoteIp(range)) };
        principals.push(any_of(ranges.iter().map(|range| from(cidr(*range))))?);
    }
    let policy = &rule.policy;
    let mut requests: Vec<_> = if policy.matches.is_empty() {
        vec![everything()]
    } else {
        mesh.matched(&policy.namespace, &policy.matches).map(allows).collect()
    };
    if let IngressEntry::Https { hosts, .. } = &rule.entry {
        let sni = permission::Rule::OrRules(set(hosts.iter().map(requests_sni)));
        requests = requests.into_iter().map(|one| both(sni.clone(), one)).collect();
    }
    let principals = Principal {
        identifier: Some(principal::Identifier::AndIds(principal::Set { ids: principals })),
    };
    (!requests.is_empty()).then(|| Policy {
        permissions: requests,
        principals: vec![principals],
        ..Policy::default()
    })
}

fn both(one: permission::Rule, other: Permission) -> Permission {
    let rules = [one].into_iter().chain(other.rule);
    Permission { rule: Some(permission::Rule::AndRules(set(rules))) }
}

/// Matches connections whose SNI is this name, or a name below it.
fn requests_sni(host: &Hostname) -> permission::Rule {
    let pattern = match host.as_str().strip_prefix('*') {
        Some(below) => MatchPattern::Suffix(below.to_owned()),
        None => MatchPattern::Exact(host.as_str().to_owned()),
    };
    // DNS names ignore case.
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
    // An authenticated principal without a name is any caller with TLS.
    let by_tls = principal::Authenticated { principal_name: None };
    let by_tls = Principal { identifier: Some(principal::Identifier::Authenticated(by_tls)) };
    Principal { identifier: Some(principal::Identifier::NotId(Box::new(by_tls))) }
}
