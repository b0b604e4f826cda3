//! Roles of resources, against their names.

use ironmesh_xds_wire::{Resource, ResourceType};
use proptest::prelude::*;

use super::compile_shape;
use super::mesh::shape;
use crate::ResourceRole;

/// The role that follows from the name.
fn by_name(resource: &Resource) -> Option<ResourceRole> {
    let name = &**resource.name();
    let port_before = |suffix: &str| name.strip_suffix(suffix)?.parse().ok();
    let port_behind = |prefix: &str| name.strip_prefix(prefix)?.parse().ok();
    match resource.resource_type() {
        ResourceType::Cluster => port_before("|local")
            .map(ResourceRole::Local)
            .or_else(|| port_before("|counted").map(ResourceRole::Counted))
            .or_else(|| port_before("|callers").map(ResourceRole::ByCaller))
            .or_else(|| name.parse().ok().map(ResourceRole::Called)),
        ResourceType::Endpoint => name.parse().ok().map(ResourceRole::Called),
        ResourceType::Route => port_behind("inbound|").map(ResourceRole::Authorization),
        ResourceType::Secret => port_behind("authz:").map(ResourceRole::Authorization),
        ResourceType::Runtime | ResourceType::ExtensionConfig | ResourceType::Listener => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn role_of_each_compiled_resource_follows_from_its_name(shape in shape()) {
        for (_, compiled) in compile_shape(&shape) {
            for resource in compiled.resources.iter() {
                let role = ResourceRole::of(resource).cloned();
                prop_assert_eq!(role, by_name(resource), "{:?}", resource);
            }
        }
    }
}
