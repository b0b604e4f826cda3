//! The HTTP filters of calls that go to their host: DNS lookup, and checks of the resolved address.
//!
//! They are in every listener for such calls, and do nothing for others: no change of policy edits
//! a listener. The clusters of external services that DNS resolves have a filter of their own,
//! which checks the chosen endpoint before Envoy dials it
//! (docs/decisions/0053-dns-answer-authorization.md).

use std::collections::{BTreeSet, HashMap};

use ironmesh_catalog::{IpRange, Proxy, egress_rules, reserved_ports};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac::Action,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{
    FilterConfig, filter_config::ImplementationSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::{Rbac, RbacPerRoute};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::upstream_codec::v3::UpstreamCodec;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::extensions::rbac::matchers::upstream_ip_port::v3::UpstreamIpPortMatcher;
use ironmesh_xds_wire::pb::envoy::r#type::v3::Int64Range;
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::external::cache;
use crate::http::http_filter;
use crate::shape::number;

/// The filter that resolves the host of a request.
pub(super) const LOOKUP: &str = "envoy.filters.http.dynamic_forward_proxy";

/// The filter that denies addresses that are never called, if a route configuration enables it
/// ([`never()`]).
const NEVER: &str = "ironmesh.egress.never";

/// The filter that allows only the addresses that a route names ([`limited`]). It allows all calls
/// on other routes.
const LIMIT: &str = "ironmesh.egress.limit";

/// The filters that resolve a request's host and check its address.
pub(crate) fn all(proxy: &Proxy) -> Vec<HttpFilter> {
    let inert = |name| http_filter(name, any(&Rbac::default()));
    let own = own_addresses(proxy);
    let machine = (!own.is_empty()).then(|| own_machine(own));
    [lookup()].into_iter().chain(machine).chain([inert(NEVER), inert(LIMIT)]).collect()
}

/// The filter that resolves the host of requests that go to their host, and no other.
fn lookup() -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache())),
        // For the filters that check it.
        save_upstream_address: true,
        ..FilterConfig::default()
    };
    http_filter(LOOKUP, any(&config))
}

/// The filter that denies the machine's own addresses.
fn own_machine(own: BTreeSet<IpRange>) -> HttpFilter {
    let rules = rules(Action::Deny, policy(own.into_iter().map(leads_to).collect()));
    http_filter("ironmesh.egress.loopback", any(&Rbac { rules: Some(rules), ..Rbac::default() }))
}

/// The loopback addresses of a proxy's machine, and the addresses by which others know it. Empty if
/// the mesh itself uses loopback: then addresses outside the mesh may too, and routes cannot tell
/// which are proxies.
pub(crate) fn own_addresses(proxy: &Proxy) -> BTreeSet<IpRange> {
    if proxy.bind().is_loopback() {
        return BTreeSet::new();
    }
    let record = &proxy.record;
    let own = [proxy.bind(), record.mesh_address.ip()].into_iter().chain(record.addresses.clone());
    // An unspecified address is never called anyway.
    let own = own.filter(|address| !address.is_unspecified()).map(IpRange::of);
    egress_rules::loopback().chain(own).collect()
}

/// The upstream filters of a cluster whose endpoints come from DNS. They check the endpoint chosen
/// for each attempt before Envoy dials it, including retries. They deny addresses that are never
/// called, and the machine's `own`.
pub(crate) fn upstream_filters(own: &BTreeSet<IpRange>) -> Vec<HttpFilter> {
    let never = egress_rules::blocked_ranges().map(|(range, _)| range).chain(own.iter().copied());
    let ports = reserved_ports::all().map(leads_to_port);
    let rules = rules(Action::Deny, policy(never.map(leads_to).chain(ports).collect()));
    vec![
        http_filter(
            "envoy.filters.http.upstream_rbac",
            any(&Rbac { rules: Some(rules), ..Rbac::default() }),
        ),
        // Envoy requires it as the last one.
        http_filter("envoy.filters.http.upstream_codec", any(&UpstreamCodec {})),
    ]
}

/// The filter configuration that denies addresses that are never called, for route configurations
/// whose calls go to their host.
pub(crate) fn never() -> HashMap<String, Any> {
    let ranges = egress_rules::blocked_ranges().map(|(range, _)| leads_to(range));
    let ports = reserved_ports::all().map(leads_to_port);
    per_route(NEVER, rules(Action::Deny, policy(ranges.chain(ports).collect())))
}

/// The filter configuration of a route that allows these addresses only. An empty list allows
/// nothing.
pub(super) fn limited(ranges: &[IpRange]) -> HashMap<String, Any> {
    let mut permissions: Vec<_> = ranges.iter().copied().map(leads_to).collect();
    if permissions.is_empty() {
        let any = Permission { rule: Some(permission::Rule::Any(true)) };
        permissions.push(Permission { rule: Some(permission::Rule::NotRule(Box::new(any))) });
    }
    per_route(LIMIT, rules(Action::Allow, policy(permissions)))
}

fn per_route(filter: &str, rules: Rules) -> HashMap<String, Any> {
    let per_route = RbacPerRoute { rbac: Some(Rbac { rules: Some(rules), ..Rbac::default() }) };
    [(filter.to_owned(), any(&per_route))].into()
}

fn rules(action: Action, policy: Policy) -> Rules {
    let policies = [("addresses".to_owned(), policy)].into();
    Rules { action: action.into(), policies, ..Rules::default() }
}

fn policy(permissions: Vec<Permission>) -> Policy {
    let anybody = Principal { identifier: Some(principal::Identifier::Any(true)) };
    Policy { permissions, principals: vec![anybody], ..Policy::default() }
}

fn leads_to(range: IpRange) -> Permission {
    let upstream_ip = CidrRange {
        address_prefix: range.address().to_string(),
        prefix_len: number(u32::from(range.length())),
    };
    matcher(&UpstreamIpPortMatcher { upstream_ip: Some(upstream_ip), upstream_port_range: None })
}

fn leads_to_port(port: u16) -> Permission {
    let range = Int64Range { start: i64::from(port), end: i64::from(port) + 1 };
    matcher(&UpstreamIpPortMatcher { upstream_ip: None, upstream_port_range: Some(range) })
}

fn matcher(config: &UpstreamIpPortMatcher) -> Permission {
    let matcher = TypedExtensionConfig {
        name: "envoy.rbac.matchers.upstream_ip_port".to_owned(),
        typed_config: Some(any(config)),
    };
    Permission { rule: Some(permission::Rule::Matcher(matcher)) }
}
