//! The filters of calls that go where their host says: who looks the host up, and who judges where it is.
//!
//! They stand in every listener by which such calls may come, and do nothing for others: no change of
//! policy edits a listener.
//!
//! The clusters of external services that DNS resolves have a filter of their own, which judges the chosen
//! endpoint before Envoy dials it (docs/decisions/0053-dns-answer-authorization.md).

use std::collections::{BTreeSet, HashMap};

use ironmesh_catalog::{IpRange, Proxy, exits, reserved_ports};
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

/// Looks up the host of a request.
pub(super) const LOOKUP: &str = "envoy.filters.http.dynamic_forward_proxy";

/// Denies what leads to places that are never called, as route configurations say ([`never`]).
const NEVER: &str = "ironmesh.egress.never";

/// Allows what leads to places that a route names ([`limited`]). Of other routes it lets all pass.
const LIMIT: &str = "ironmesh.egress.limit";

/// Where a request goes is looked up, and judged.
pub(crate) fn all(proxy: &Proxy) -> Vec<HttpFilter> {
    let inert = |name| http_filter(name, any(&Rbac::default()));
    let own = own_addresses(proxy);
    let machine = (!own.is_empty()).then(|| own_machine(own));
    [lookup()].into_iter().chain(machine).chain([inert(NEVER), inert(LIMIT)]).collect()
}

/// Looks up the host of requests that go where it says, and of no others.
fn lookup() -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache())),
        // For those who judge it.
        save_upstream_address: true,
        ..FilterConfig::default()
    };
    http_filter(LOOKUP, any(&config))
}

/// Denies what leads to the machine's own addresses.
fn own_machine(own: BTreeSet<IpRange>) -> HttpFilter {
    let rules = rules(Action::Deny, policy(own.into_iter().map(leads_to).collect()));
    http_filter("ironmesh.egress.loopback", any(&Rbac { rules: Some(rules), ..Rbac::default() }))
}

/// The loopback of a proxy's machine and the addresses by which others know the machine. None where the mesh is
/// one of the loopback: so may be what is outside of it; which proxies that are, routes do not know.
pub(crate) fn own_addresses(proxy: &Proxy) -> BTreeSet<IpRange> {
    if proxy.bind().is_loopback() {
        return BTreeSet::new();
    }
    let record = &proxy.record;
    let own = [proxy.bind(), record.mesh_address.ip()].into_iter().chain(record.addresses.clone());
    // One that is not specified is never called anyway.
    let own = own.filter(|address| !address.is_unspecified()).map(IpRange::of);
    exits::loopback().chain(own).collect()
}

/// The upstream filters of a cluster whose endpoints DNS names: the endpoint chosen for an attempt is judged
/// before Envoy dials it, also when the attempt is a retry. Denies what is never called, and `own` addresses.
pub(crate) fn of_endpoints(own: &BTreeSet<IpRange>) -> Vec<HttpFilter> {
    let never = exits::never_called().map(|(range, _)| range).chain(own.iter().copied());
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

/// What a route configuration says in which calls go where their host says.
pub(crate) fn never() -> HashMap<String, Any> {
    let ranges = exits::never_called().map(|(range, _)| leads_to(range));
    let ports = reserved_ports::all().map(leads_to_port);
    per_route(NEVER, rules(Action::Deny, policy(ranges.chain(ports).collect())))
}

/// What a route says that leads to these addresses alone. Of none of them nothing passes.
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
