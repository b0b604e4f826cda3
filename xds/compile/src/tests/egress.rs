//! Egress: addresses of the proxy's own machine are denied.

use ironmesh_xds_wire::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use ironmesh_xds_wire::pb::envoy::extensions::rbac::matchers::upstream_ip_port::v3::UpstreamIpPortMatcher;
use ironmesh_xds_wire::pb::envoy::config::rbac::v3::{permission, rbac::Action};
use prost::Message as _;

use super::mesh::{PartOrder, Shape};
use crate::egress::filters;

#[test]
fn egress_denies_addresses_of_its_own_machine() {
    let (_, mut proxies) = Shape::fleet(1, true).build(PartOrder::default());
    let proxy = &mut proxies[0];
    proxy.record.mesh_address = "203.0.113.7:15003".parse().unwrap();
    proxy.record.addresses = vec!["10.0.0.7".parse().unwrap(), "fd12::7".parse().unwrap()];
    proxy.metadata.bind = Some("10.0.0.8".parse().unwrap());
    let all = filters::all(proxy);
    let machine = all.iter().find(|filter| filter.name == "ironmesh.egress.loopback").unwrap();
    let Some(ConfigType::TypedConfig(config)) = &machine.config_type else { panic!("{machine:?}") };
    let rules = Rbac::decode(&*config.value).unwrap().rules.unwrap();
    assert_eq!(rules.action, i32::from(Action::Deny));
    let permissions = rules.policies.values().flat_map(|policy| &policy.permissions);
    let denied: Vec<_> = permissions
        .map(|one| {
            let Some(permission::Rule::Matcher(matcher)) = &one.rule else { panic!("{one:?}") };
            let matcher = matcher.typed_config.as_ref().unwrap();
            let range =
                UpstreamIpPortMatcher::decode(&*matcher.value).unwrap().upstream_ip.unwrap();
            format!("{}/{}", range.address_prefix, range.prefix_len.unwrap().value)
        })
        .collect();
    let expected =
        ["10.0.0.7/32", "10.0.0.8/32", "127.0.0.0/8", "203.0.113.7/32", "::1/128", "fd12::7/128"];
    assert_eq!(denied, expected);
    // If the mesh is on this machine's loopback, addresses outside it may be too.
    proxy.metadata.bind = Some("127.0.0.8".parse().unwrap());
    assert!(filters::all(proxy).iter().all(|filter| filter.name != "ironmesh.egress.loopback"));
}
