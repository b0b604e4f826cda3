//! Override headers: the `x-envoy-…` headers by which callers set timeouts and retries, if policy
//! lets them.
//!
//! Envoy reads these headers before it selects a route, and removes some if it does not trust the
//! caller. So a listener for its own application first moves them to names that mean nothing to
//! Envoy. A route that allows them moves them back; the rest is removed before the request leaves.
//! Routes configure this, so a change of policy touches no listener.

use ironmesh_catalog::reserved_headers::{ENVOY_HEADER_PREFIX, SAVED_OVERRIDE_PREFIX};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation as MutationRule,
    header_mutation::{Action, RemoveOnMatch},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation, HeaderMutationPerRoute, Mutations,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyHeaderMutation;
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;
use crate::shape::prefix;

/// The headers, after [`ENVOY_HEADER_PREFIX`].
const OVERRIDES: [&str; 7] = [
    "max-retries",
    "retriable-header-names",
    "retriable-status-codes",
    "retry-grpc-on",
    "retry-on",
    "upstream-rq-per-try-timeout-ms",
    "upstream-rq-timeout-ms",
];

/// The filter that moves the headers back, if a route enables it ([`restore_overrides`]).
const RESTORE_FILTER: &str = "ironmesh.overrides.put-back";

/// The filter that removes the moved headers afterwards.
const REMOVE_FILTER: &str = "ironmesh.overrides.take-off";

/// Removes `x-envoy-…` headers from incoming requests. For requests of the proxy's own application,
/// it first moves those that a route may allow.
pub(crate) fn strip_envoy_headers(is_own_application: bool) -> TypedExtensionConfig {
    let aside = OVERRIDES.into_iter().filter(|_| is_own_application);
    let aside = aside.map(|one| copy(ENVOY_HEADER_PREFIX, SAVED_OVERRIDE_PREFIX, one));
    // An application cannot set the moved names itself.
    let first = is_own_application.then(|| remove(SAVED_OVERRIDE_PREFIX));
    let mutations = first.into_iter().chain(aside).chain([remove(ENVOY_HEADER_PREFIX)]).collect();
    TypedExtensionConfig {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(any(&EarlyHeaderMutation { mutations })),
    }
}

/// The filters for requests of the proxy's own application.
pub(crate) fn filters() -> [HttpFilter; 2] {
    let filter = |name, request_mutations| {
        let mutations = Some(Mutations { request_mutations, ..Mutations::default() });
        http_filter(name, any(&HeaderMutation { mutations, ..HeaderMutation::default() }))
    };
    [filter(RESTORE_FILTER, Vec::new()), filter(REMOVE_FILTER, vec![remove(SAVED_OVERRIDE_PREFIX)])]
}

/// The filter configuration of a route that allows override headers.
pub(crate) fn restore_overrides() -> (String, Any) {
    let back = |one| copy(SAVED_OVERRIDE_PREFIX, ENVOY_HEADER_PREFIX, one);
    let mutations = Mutations {
        request_mutations: OVERRIDES.into_iter().map(back).collect(),
        ..Mutations::default()
    };
    (RESTORE_FILTER.to_owned(), any(&HeaderMutationPerRoute { mutations: Some(mutations) }))
}

fn remove(names: &str) -> MutationRule {
    let matches = RemoveOnMatch { key_matcher: Some(prefix(names.to_owned())) };
    MutationRule { action: Some(Action::RemoveOnMatch(matches)) }
}

/// Copies the header `from…` to the header `to…`, if it exists.
fn copy(from: &str, to: &str, one: &str) -> MutationRule {
    let header = HeaderValue {
        key: format!("{to}{one}"),
        value: format!("%REQ({from}{one})%"),
        ..HeaderValue::default()
    };
    let option = HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    MutationRule { action: Some(Action::Append(option)) }
}
