//! The refusal of revoked callers on HTTP ports: an RBAC filter of its own before the others, so that no policy and no mode
//! decides about them (docs/decisions/0078).
//!
//! Like authorization, the rules are part of the inbound *route configuration*: a revocation applies to the next request on
//! open connections, and edits no listener. Without a revoked caller there are no rules, and the filter does nothing.

use std::collections::HashMap;

use ironmesh_catalog::RevokedCallers;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{Action, rbac};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::{Rbac, RbacPerRoute};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::extensions::matching::common_inputs::ssl::v3::DnsSanInput;
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::pb::xds::core::v3::TypedExtensionConfig;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::Matcher;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::{
    MatcherTree, MatcherType, OnMatch, matcher_tree, on_match,
};

use crate::http::http_filter;

/// The name of the filter.
pub(crate) const REVOKED_FILTER: &str = "revoked";

/// The filter of the listener. An RBAC without rules allows everything.
pub(crate) fn filter() -> HttpFilter {
    http_filter(REVOKED_FILTER, any(&Rbac::default()))
}

/// The override of [`filter`] on the inbound virtual hosts; none without a revoked caller.
///
/// The map costs the same for one name and for a thousand. A certificate has one DNS name at most, so the input, which
/// joins all of them by commas, is that name.
pub(crate) fn per_route(callers: &RevokedCallers) -> Option<Any> {
    if callers.is_empty() {
        return None;
    }
    let deny = on_match("revoked", rbac::Action::Deny);
    let map: HashMap<_, _> =
        callers.dns_names.iter().map(|name| (name.clone(), deny.clone())).collect();
    let tree = MatcherTree {
        input: Some(extension("dns_san", any(&DnsSanInput {}))),
        tree_type: Some(matcher_tree::TreeType::ExactMatchMap(matcher_tree::MatchMap { map })),
    };
    let matcher = Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        // Without it, a request of any other caller is denied.
        on_no_match: Some(Box::new(on_match("not revoked", rbac::Action::Allow))),
    };
    let rbac = Rbac { matcher: Some(matcher), ..Rbac::default() };
    Some(any(&RbacPerRoute { rbac: Some(rbac) }))
}

fn on_match(name: &str, action: rbac::Action) -> OnMatch {
    let action = Action { name: name.to_owned(), action: action.into() };
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(extension("action", any(&action)))),
        ..OnMatch::default()
    }
}

fn extension(name: &str, config: Any) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(config) }
}
