//! HTTP authorization: one RBAC per service port. Its policies contain the conditions on method,
//! path and headers, so the order of routes never decides who may call.
//!
//! The rules are part of the inbound *route configuration*, and the listener's filter alone denies
//! everything. So a withdrawn grant applies to the next request on open connections, a change of
//! policy never edits a listener, and a proxy without its routes denies all calls.
//!
//! In audit, the rules of strict run as shadow rules beside the enforced ones. They deny nothing.
//! The proxy reports to the control plane what they would deny ([`crate::audit_log`]).

mod ingress;
mod repeated;

use std::collections::HashMap;

use ironmesh_catalog::{
    Grant, HttpMatch, Mode, OpenCallers, PathRegex, Service, ServicePort, TrustDomain,
};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac::Action,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::{Rbac, RbacPerRoute};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{PathMatcher, StringMatcher, path_matcher};
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;
use crate::mesh_view::{Allowed, MeshView};
use crate::shape::{exact, namespace_prefix, regex, workload_prefix};

pub(crate) use repeated::join_repeated;

pub(crate) const RBAC_FILTER: &str = "envoy.filters.http.rbac";

/// The prefix of the shadow rules' statistics and metadata.
pub(crate) const SHADOW: &str = "audit_";

/// The filter of the listener, which denies every request that no route configuration allows.
pub(crate) fn deny_all() -> HttpFilter {
    http_filter(RBAC_FILTER, any(&rbac(HashMap::new())))
}

/// The override of [`deny_all`] on an inbound virtual host of a service port.
pub(crate) fn per_route(
    mesh: MeshView<'_>,
    service: &Service,
    port: &ServicePort,
) -> HashMap<String, Any> {
    let trust_domain = mesh.trust_domain();
    // No target can have this name: target names start with a namespace.
    let open = || -> HashMap<_, _> {
        let callers = service.open_callers(mesh.mode_of(service)).into_iter();
        callers.map(|one| ("permissive".to_owned(), permissive(trust_domain, one))).collect()
    };
    let granted = || -> HashMap<_, _> {
        let grants = mesh.grants_on(&service.account).iter().filter_map(|grant| {
            let policy = policy(mesh, trust_domain, service, grant, port)?;
            Some((format!("{}/{}", grant.target.namespace, grant.target.name), policy))
        });
        grants.collect()
    };
    // Ingress callers are allowed by their own policies in every mode, and by nothing else.
    let outside = || ingress::policies(mesh, port);
    let besides = |policies: HashMap<_, _>| rbac(policies.into_iter().chain(outside()).collect());
    let rbac = match mesh.mode_of(service) {
        Mode::Strict => besides(granted()),
        Mode::Permissive => besides(open()),
        Mode::Audit => Rbac {
            shadow_rules: besides(granted()).rules,
            shadow_rules_stat_prefix: SHADOW.to_owned(),
            ..besides(open())
        },
    };
    let to_join = repeated::headers_to_join(&rbac);
    let per_route = RbacPerRoute { rbac: Some(rbac) };
    [(RBAC_FILTER.to_owned(), any(&per_route))].into_iter().chain(to_join).collect()
}

/// Allows everything to all of these service accounts.
fn permissive(trust_domain: &TrustDomain, callers: OpenCallers<'_>) -> Policy {
    let workloads = match callers {
        OpenCallers::All => workload_prefix(trust_domain),
        OpenCallers::Namespace(namespace) => namespace_prefix(trust_domain, namespace),
    };
    let principals = vec![authenticated(workloads)];
    Policy { permissions: vec![everything()], principals, ..Policy::default() }
}

fn everything() -> Permission {
    Permission { rule: Some(permission::Rule::Any(true)) }
}

/// Allows what any of the policies allows. Without policies that is nothing. An RBAC without
/// *rules* would allow everything, so the rules are always present.
fn rbac(policies: HashMap<String, Policy>) -> Rbac {
    Rbac {
        rules: Some(Rules { action: Action::Allow.into(), policies, ..Rules::default() }),
        ..Rbac::default()
    }
}

/// The policy of one grant on `port`; `None` if it has no caller or no request to allow, because an
/// empty list must never come to mean "anyone" (invariant 3).
fn policy(
    mesh: MeshView<'_>,
    trust_domain: &TrustDomain,
    service: &Service,
    grant: &Grant,
    port: &ServicePort,
) -> Option<Policy> {
    let target = &grant.target;
    let principals: Vec<_> = grant
        .sources
        .iter()
        .filter(|source| service.is_visible_in(&source.namespace))
        .map(|source| authenticated(exact(trust_domain.workload(source).as_str())))
        .collect();
    let permissions = match mesh.allowed_by(target, service.port(port.port)?) {
        Allowed::Everything => vec![everything()],
        Allowed::These(matches) => matches.into_iter().map(allows).collect(),
    };
    (!principals.is_empty() && !permissions.is_empty()).then(|| Policy {
        permissions,
        principals,
        ..Policy::default()
    })
}

/// Matches callers by a URI of their certificates.
fn authenticated(name: StringMatcher) -> Principal {
    let authenticated = principal::Authenticated { principal_name: Some(name) };
    Principal { identifier: Some(principal::Identifier::Authenticated(authenticated)) }
}

/// Matches requests for which all conditions of the match hold.
fn allows(one: &HttpMatch) -> Permission {
    let mut conditions = Vec::new();
    if let Some(path) = &one.path {
        let disguised = Permission { rule: Some(url_path(PathRegex::DISGUISED.to_owned())) };
        conditions.push(url_path(path.whole_path()));
        conditions.push(permission::Rule::NotRule(Box::new(disguised)));
    }
    if !one.methods.is_empty() {
        let methods = one.methods.iter().map(|method| header(":method", exact(&*method.0)));
        conditions.push(permission::Rule::OrRules(set(methods)));
    }
    for (name, expression) in &one.headers {
        conditions.push(match &**name {
            "host" => header(":authority", regex(HttpMatch::whole_authority(expression))),
            name => header(name, regex(expression.to_string())),
        });
    }
    if conditions.is_empty() {
        conditions.push(permission::Rule::Any(true));
    }
    let mut conditions = conditions.into_iter();
    match (conditions.next(), conditions.len()) {
        (only, 0) => Permission { rule: only },
        (first, _) => Permission {
            rule: Some(permission::Rule::AndRules(set(first.into_iter().chain(conditions)))),
        },
    }
}

/// Matches the path without its query, which a matcher on the `:path` header would include.
fn url_path(expression: String) -> permission::Rule {
    let rule = Some(path_matcher::Rule::Path(regex(expression)));
    permission::Rule::UrlPath(PathMatcher { rule })
}

fn header(name: &str, value: StringMatcher) -> permission::Rule {
    permission::Rule::Header(HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(value)),
        ..HeaderMatcher::default()
    })
}

fn set(rules: impl Iterator<Item = permission::Rule>) -> permission::Set {
    permission::Set { rules: rules.map(|rule| Permission { rule: Some(rule) }).collect() }
}
