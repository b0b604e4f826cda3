//! What who calls may say of time and of retries, where policy lets him: the headers by which Envoy's router
//! is told.
//!
//! Envoy reads headers of its own before it looks for a route, and takes off some of these where it does not
//! trust who calls. So a listener for its own application puts them aside, under names that mean nothing to
//! Envoy, before anything else is done; a route that lets them act puts them back; and what is left of them
//! goes no farther. Routes say so, so that a change of policy touches no listener.

use ironmesh_catalog::reserved_headers::{PUT_ASIDE, TO_ENVOY};
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

/// What may be said, behind [`TO_ENVOY`].
const OVERRIDES: [&str; 7] = [
    "max-retries",
    "retriable-header-names",
    "retriable-status-codes",
    "retry-grpc-on",
    "retry-on",
    "upstream-rq-per-try-timeout-ms",
    "upstream-rq-timeout-ms",
];

/// The filter that puts back what was put aside, where a route says so ([`put_back`]).
const PUT_BACK: &str = "ironmesh.overrides.put-back";

/// The filter that takes off what is aside then.
const TAKE_OFF: &str = "ironmesh.overrides.take-off";

/// Takes the headers `x-envoy-…` off requests as they come. Those that a route may let act are put aside where
/// the requests are of the proxy's own application.
pub(crate) fn without_words_to_envoy(is_own_application: bool) -> TypedExtensionConfig {
    let aside = OVERRIDES.into_iter().filter(|_| is_own_application);
    let aside = aside.map(|one| copy(TO_ENVOY, PUT_ASIDE, one));
    // Nobody puts them aside himself.
    let first = is_own_application.then(|| remove(PUT_ASIDE));
    let mutations = first.into_iter().chain(aside).chain([remove(TO_ENVOY)]).collect();
    TypedExtensionConfig {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(any(&EarlyHeaderMutation { mutations })),
    }
}

/// The filters of requests of the proxy's own application.
pub(crate) fn filters() -> [HttpFilter; 2] {
    let filter = |name, request_mutations| {
        let mutations = Some(Mutations { request_mutations, ..Mutations::default() });
        http_filter(name, any(&HeaderMutation { mutations, ..HeaderMutation::default() }))
    };
    [filter(PUT_BACK, Vec::new()), filter(TAKE_OFF, vec![remove(PUT_ASIDE)])]
}

/// What a route says that lets callers say what they like.
pub(crate) fn put_back() -> (String, Any) {
    let back = |one| copy(PUT_ASIDE, TO_ENVOY, one);
    let mutations = Mutations {
        request_mutations: OVERRIDES.into_iter().map(back).collect(),
        ..Mutations::default()
    };
    (PUT_BACK.to_owned(), any(&HeaderMutationPerRoute { mutations: Some(mutations) }))
}

fn remove(names: &str) -> MutationRule {
    let matches = RemoveOnMatch { key_matcher: Some(prefix(names.to_owned())) };
    MutationRule { action: Some(Action::RemoveOnMatch(matches)) }
}

/// The header `to…` has the value that the header `from…` has. (Where that is missing, it is not made.)
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
