//! An independent evaluation of an inbound route configuration, after the documentation of Envoy's
//! RBAC filter. It knows nothing of policy.

use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
use ironmesh_xds_wire::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{
    Permission, Principal, Rbac, permission, principal, rbac,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteConfiguration, header_matcher::HeaderMatchSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::header_mutation::v3::HeaderMutationPerRoute;
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    StringMatcher, path_matcher, string_matcher::MatchPattern,
};
use prost::Message as _;

/// A request as the filter sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestView<'a> {
    /// The URI in the caller's certificate.
    pub(super) principal: &'a str,
    pub(super) method: &'a str,
    /// The normalized path without its query.
    pub(super) path: &'a str,
    pub(super) authority: &'a str,
    pub(super) headers: &'a [(String, String)],
}

/// The result for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Whether the enforced rules allow it.
    pub(super) is_allowed: bool,
    /// Whether the shadow rules would allow it; `None` without shadow rules.
    pub(super) shadow_allowed: Option<bool>,
}

/// Evaluates the routes for a request.
pub(super) fn evaluate(routes: &Resource, seen: &RequestView<'_>) -> Decision {
    let routes: RouteConfiguration = routes.message().unwrap();
    let [host] = &routes.virtual_hosts[..] else { panic!("several virtual hosts: {routes:?}") };
    let joined = host.typed_per_filter_config.get("ironmesh.headers.join");
    let joined = joined.map(|config| HeaderMutationPerRoute::decode(&*config.value).unwrap());
    let headers = join_header_lines(seen.headers, joined);
    let seen = &RequestView { headers: &headers, ..*seen };
    let per_route = &host.typed_per_filter_config["envoy.filters.http.rbac"];
    let per_route = RbacPerRoute::decode(&*per_route.value).unwrap();
    let shadow = per_route.rbac.as_ref().and_then(|rbac| rbac.shadow_rules.as_ref());
    let shadow_allowed = shadow.map(|rules| match_any(rules, seen));
    // Without rules the filter would allow all.
    let rules = per_route.rbac.and_then(|rbac| rbac.rules).unwrap();
    let is_allowed = match_any(&rules, seen);
    Decision { is_allowed, shadow_allowed }
}

/// The headers after the filter that joins repeated ones, without those that the connection manager
/// drops.
fn join_header_lines(
    headers: &[(String, String)],
    joined: Option<HeaderMutationPerRoute>,
) -> Vec<(String, String)> {
    let kept = headers.iter().filter(|(name, _)| !name.contains('_'));
    let mut headers: Vec<_> =
        kept.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    for mutation in joined.and_then(|config| config.mutations).unwrap_or_default().request_mutations
    {
        let Some(Action::Append(option)) = mutation.action else { panic!("what is {mutation:?}?") };
        assert_eq!(option.append_action, i32::from(HeaderAppendAction::OverwriteIfExists));
        let name = option.header.unwrap().key;
        let (named, others): (Vec<_>, Vec<_>) =
            headers.into_iter().partition(|(of, _)| *of == name);
        headers = others;
        let values: Vec<_> = named.into_iter().map(|(_, value)| value).collect();
        headers.extend((!values.is_empty()).then(|| (name, values.join(","))));
    }
    headers
}

/// Whether a policy of `rules` matches a request.
fn match_any(rules: &Rbac, seen: &RequestView<'_>) -> bool {
    assert_eq!(rules.action, i32::from(rbac::Action::Allow));
    rules.policies.values().any(|policy| {
        assert!(policy.condition.is_none() && policy.checked_condition.is_none());
        policy.permissions.iter().any(|one| permits(one, seen))
            && policy.principals.iter().any(|one| is_of(one, seen))
    })
}

fn permits(permission: &Permission, seen: &RequestView<'_>) -> bool {
    match permission.rule.as_ref().unwrap() {
        permission::Rule::Any(any) => *any,
        permission::Rule::AndRules(set) => set.rules.iter().all(|one| permits(one, seen)),
        permission::Rule::OrRules(set) => set.rules.iter().any(|one| permits(one, seen)),
        permission::Rule::NotRule(not) => !permits(not, seen),
        permission::Rule::UrlPath(path) => match path.rule.as_ref().unwrap() {
            path_matcher::Rule::Path(matcher) => matches(matcher, seen.path),
        },
        permission::Rule::Header(header) => has(header, seen),
        other => panic!("what is {other:?}?"),
    }
}

fn is_of(principal: &Principal, seen: &RequestView<'_>) -> bool {
    match principal.identifier.as_ref().unwrap() {
        principal::Identifier::Authenticated(authenticated) => {
            matches(authenticated.principal_name.as_ref().unwrap(), seen.principal)
        }
        other => panic!("what is {other:?}?"),
    }
}

fn has(header: &HeaderMatcher, seen: &RequestView<'_>) -> bool {
    assert!(!header.invert_match && !header.treat_missing_header_as_empty);
    let values = match &*header.name {
        ":method" => vec![seen.method],
        ":authority" => vec![seen.authority],
        name => {
            let named = seen.headers.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.as_str()).collect()
        }
    };
    match header.header_match_specifier.as_ref().unwrap() {
        // Each value by itself: `rbac_match_headers_individually`. There is one, since they are
        // joined before.
        HeaderMatchSpecifier::StringMatch(matcher) => {
            values.into_iter().any(|value| matches(matcher, value))
        }
        other => panic!("what is {other:?}?"),
    }
}

fn matches(matcher: &StringMatcher, text: &str) -> bool {
    assert!(!matcher.ignore_case);
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(exact) => exact == text,
        MatchPattern::Prefix(prefix) => text.starts_with(prefix),
        MatchPattern::SafeRegex(regex) => {
            let whole = format!("^(?:{})$", regex.regex);
            regex::bytes::Regex::new(&whole).unwrap().is_match(text.as_bytes())
        }
        other => panic!("what is {other:?}?"),
    }
}
