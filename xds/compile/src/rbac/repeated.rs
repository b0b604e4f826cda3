//! Repeated headers: a condition compares the same value that the application receives.
//!
//! Envoy compares each value of a repeated header by itself, and one match suffices, while an
//! application may read another value. So a server's sidecar first joins all values of a header
//! that a condition names with commas (RFC 9110, section 5.3). The condition compares the joined
//! value, and the application receives it. The names are in the route configuration, so no change
//! of policy edits a listener.

use std::collections::BTreeSet;

use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation as MutationRule, header_mutation::Action,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{Permission, Rbac as Rules, permission};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation, HeaderMutationPerRoute, Mutations,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;

/// The filter that joins repeated headers, if a route configuration names them ([`headers_to_join`]).
const JOIN: &str = "ironmesh.headers.join";

/// The filter of the listener. It comes before authorization, and joins nothing by itself.
pub(crate) fn join_repeated() -> HttpFilter {
    let mutations = Some(Mutations::default());
    http_filter(JOIN, any(&HeaderMutation { mutations, ..HeaderMutation::default() }))
}

/// The headers that the rules compare, as the filter's per-route configuration; `None` if there are
/// none.
pub(super) fn headers_to_join(rbac: &Rbac) -> Option<(String, Any)> {
    let mut names = BTreeSet::new();
    for rules in [&rbac.rules, &rbac.shadow_rules].into_iter().flatten() {
        note_names_in_rules(rules, &mut names);
    }
    if names.is_empty() {
        return None;
    }
    let request_mutations = names.into_iter().map(join).collect();
    let mutations = Some(Mutations { request_mutations, ..Mutations::default() });
    Some((JOIN.to_owned(), any(&HeaderMutationPerRoute { mutations })))
}

fn note_names_in_rules<'a>(rules: &'a Rules, names: &mut BTreeSet<&'a str>) {
    for permission in rules.policies.values().flat_map(|policy| &policy.permissions) {
        note_names(permission, names);
    }
}

fn note_names<'a>(permission: &'a Permission, names: &mut BTreeSet<&'a str>) {
    match &permission.rule {
        Some(permission::Rule::AndRules(set) | permission::Rule::OrRules(set)) => {
            for inner in &set.rules {
                note_names(inner, names);
            }
        }
        Some(permission::Rule::NotRule(inner)) => note_names(inner, names),
        // A pseudo header such as `:method` has at most one value.
        Some(permission::Rule::Header(header)) if !header.name.starts_with(':') => {
            names.insert(&header.name);
        }
        _ => {}
    }
}

/// Overwrites a header with all of its values. `%REQ(…)%` would be the first value only; in CEL a
/// header is all of its values.
fn join(name: &str) -> MutationRule {
    let header = HeaderValue {
        key: name.to_owned(),
        value: format!("%CEL(request.headers['{}'])%", escaped(name)),
        ..HeaderValue::default()
    };
    let option = HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExists.into(),
        keep_empty_value: true,
        ..HeaderValueOption::default()
    };
    MutationRule { action: Some(Action::Append(option)) }
}

/// Escapes a name for a CEL string within a command operator, both of which have special
/// characters.
fn escaped(name: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | '0'..='9' | '-' | '_' | '.' => letter.to_string(),
        other => format!("\\x{:02x}", u32::from(other)),
    };
    name.chars().map(letter).collect()
}
