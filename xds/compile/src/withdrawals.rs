//! Withdrawals from TCP ports that end only one caller's connections (docs/decisions/0079).
//!
//! The first filter of a TCP chain reads one runtime key per caller, which is set from the caller's
//! withdrawal to its next grant. Envoy judges a connection at the caller's next byte. What a caller
//! that sends nothing keeps, its own chain ends within the drain time ([`crate::callers`]).
//!
//! A connection keeps the configuration that the filter had when it began. So the configuration has
//! an entry for each caller before the list of callers admits it, and keys come later, by RTDS.

use std::collections::BTreeSet;

use ironmesh_catalog::{ServiceAccount, ServicePort, TcpAccess, TrustDomain};
use ironmesh_sidecar::envoy::WITHDRAWALS_LAYER;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ExtensionConfigSource, RuntimeFractionalPercent, TypedExtensionConfig,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, filter};
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{Action, rbac};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::rbac::v3::Rbac;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::rbac::v3::rbac::EnforcementType;
use ironmesh_xds_wire::pb::envoy::extensions::matching::common_inputs::ssl::v3::UriSanInput;
use ironmesh_xds_wire::pb::envoy::extensions::matching::input_matchers::runtime_fraction::v3::RuntimeFraction;
use ironmesh_xds_wire::pb::envoy::r#type::v3::FractionalPercent;
use ironmesh_xds_wire::pb::envoy::service::runtime::v3::Runtime;
use ironmesh_xds_wire::pb::google::protobuf::{Struct, Value, value::Kind};
use ironmesh_xds_wire::pb::xds::core::v3 as xds;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::Matcher;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::single_predicate::Matcher as ValueMatcher;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, SinglePredicate,
};
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::matcher_list::{
    FieldMatcher, Predicate,
};
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::{
    MatcherList, MatcherTree, MatcherType, OnMatch, on_match,
};
use prost::Name;

use crate::{inbound, names, shape};

/// A runtime value that selects every connection, in percent.
const ALL: f64 = 100.0;

/// The key that ends the connections of `account` to `port`.
pub(crate) fn key(port: &ServicePort, account: &ServiceAccount) -> String {
    format!("withdrawn.{port}.{account}")
}

/// The layer with these keys set. It exists without keys too: Envoy waits 15 s at its start for a
/// layer without an answer.
pub(crate) fn layer<'a>(
    keys: impl IntoIterator<Item = (&'a ServicePort, &'a ServiceAccount)>,
) -> Runtime {
    let all = Value { kind: Some(Kind::NumberValue(ALL)) };
    let keys = keys.into_iter().map(|(port, account)| (key(port, account), all.clone()));
    let layer = Struct { fields: keys.collect() };
    Runtime { name: WITHDRAWALS_LAYER.to_owned(), layer: Some(layer) }
}

/// The filter that ends connections of withdrawn callers, without its configuration.
pub(crate) fn filter(port: &ServicePort) -> Filter {
    let source = ExtensionConfigSource {
        config_source: shape::ads(),
        type_urls: vec![Rbac::type_url()],
        ..ExtensionConfigSource::default()
    };
    Filter {
        name: names::withdrawals_filter(port),
        config_type: Some(filter::ConfigType::ConfigDiscovery(source)),
    }
}

/// The configuration of [`filter`]: a key for each caller that has a chain of its own, and for each
/// withdrawn one, whose handshake may have ended just before its withdrawal.
pub(crate) fn filter_config(
    trust_domain: &TrustDomain,
    port: &ServicePort,
    access: &TcpAccess,
) -> TypedExtensionConfig {
    let accounts: BTreeSet<_> = access.named().iter().chain(&access.withdrawn).collect();
    let entry = |account: &&ServiceAccount| {
        (trust_domain.workload(account).as_str().to_owned(), denied_if_set(key(port, account)))
    };
    let map = MatchMap { map: accounts.iter().map(entry).collect() };
    let tree = MatcherTree {
        input: Some(extension("uri-san", &UriSanInput {})),
        tree_type: Some(TreeType::ExactMatchMap(map)),
    };
    // Envoy rejects an empty map. Without a matcher the filter does nothing.
    let matcher = (!accounts.is_empty()).then(|| Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        on_no_match: Some(Box::new(action(rbac::Action::Allow))),
    });
    let config = Rbac {
        matcher,
        stat_prefix: format!("withdrawn_{}", inbound::stat_prefix(port)),
        // By default it judges only the first byte of a connection.
        enforcement_type: EnforcementType::Continuous.into(),
        ..Rbac::default()
    };
    TypedExtensionConfig { name: names::withdrawals_filter(port), typed_config: Some(any(&config)) }
}

/// Denies if the runtime key is set, and allows otherwise.
fn denied_if_set(runtime_key: String) -> OnMatch {
    let fraction = RuntimeFraction {
        runtime_fraction: Some(RuntimeFractionalPercent {
            default_value: Some(FractionalPercent::default()),
            runtime_key,
        }),
        ..RuntimeFraction::default()
    };
    let predicate = SinglePredicate {
        // The matcher needs an input. Envoy hashes it, and all values are below 100 percent.
        input: Some(extension("uri-san", &UriSanInput {})),
        matcher: Some(ValueMatcher::CustomMatch(extension("is-set", &fraction))),
    };
    let is_set = FieldMatcher {
        predicate: Some(Predicate { match_type: Some(MatchType::SinglePredicate(predicate)) }),
        on_match: Some(action(rbac::Action::Deny)),
    };
    let matcher = Matcher {
        matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers: vec![is_set] })),
        on_no_match: Some(Box::new(action(rbac::Action::Allow))),
    };
    OnMatch { on_match: Some(on_match::OnMatch::Matcher(Box::new(matcher))), ..OnMatch::default() }
}

fn action(action: rbac::Action) -> OnMatch {
    let name = action.as_str_name().to_lowercase();
    let action = Action { name: name.clone(), action: action.into() };
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(extension(&name, &action))),
        ..OnMatch::default()
    }
}

/// A message as an extension of a matcher.
pub(crate) fn extension<M: prost::Message + Name>(
    name: &str,
    message: &M,
) -> xds::TypedExtensionConfig {
    xds::TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(message)) }
}
