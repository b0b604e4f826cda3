//! References between resources, by which one waits for another (invariant 6).
//!
//! Each resource records which others it refers to (`Resource::references`).

use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType};

/// The order of removals: each type with the types that may refer to it, which must be settled
/// first. Endpoints, which change most, delay nothing.
pub(crate) const REMOVALS: [(ResourceType, &[ResourceType]); 7] = [
    (ResourceType::Listener, &[]),
    (ResourceType::Route, &[ResourceType::Listener]),
    (ResourceType::Cluster, &[ResourceType::Listener, ResourceType::Route]),
    (ResourceType::Endpoint, &[ResourceType::Cluster]),
    (ResourceType::Secret, &[ResourceType::Listener, ResourceType::Cluster]),
    // Without its configuration, a filter in use closes every new connection.
    (ResourceType::ExtensionConfig, &[ResourceType::Listener]),
    (ResourceType::Runtime, &[]),
];

/// The types of which listeners refer to resources that must be current when a listener becomes active.
pub(crate) const PARTS: [ResourceType; 2] = [ResourceType::Secret, ResourceType::ExtensionConfig];

/// What a client has, of the resources that others refer to.
pub(crate) trait ClientState {
    /// Whether the client is known to lack nothing of a type, without a look at each resource.
    /// Nearly always it is, and then no reference need be examined.
    fn lacks_none(&self, of: ResourceType) -> bool;
    /// Whether the target has this cluster and the client has it in no version.
    fn lacks_cluster(&self, name: &str) -> bool;
    /// Whether the client has these routes in no version.
    fn lacks_routes(&self, name: &str) -> bool;
    /// Whether the client has not ACKed the target's version of a part of listeners, a secret or the
    /// configuration of a filter. A client that ACKs these late lacks none. A listener that lacks a
    /// part warms by itself.
    fn lacks_part(&self, of: ResourceType, name: &str) -> bool;
}

/// Whether a listener or a route configuration must wait for a resource that it refers to and the
/// client lacks.
pub(crate) fn must_wait(
    resource: &Resource,
    target: &ResourceSet,
    client: &impl ClientState,
) -> bool {
    let lacks_cluster = |resource: &Resource| {
        !resource.is_urgent()
            && !client.lacks_none(ResourceType::Cluster)
            && resource.references_to(ResourceType::Cluster).any(|name| client.lacks_cluster(name))
    };
    if resource.resource_type() != ResourceType::Listener {
        return lacks_cluster(resource);
    }
    // A recreated filter chain must not start with the old list of callers: so urgent listeners wait
    // for their parts too.
    let lacks_part = || {
        PARTS.into_iter().any(|of| {
            !client.lacks_none(of)
                && resource.references_to(of).any(|name| client.lacks_part(of, name))
        })
    };
    // A listener warms until it has its routes, and these may have to wait.
    let lacks_routes = || {
        let routes = target.of(ResourceType::Route);
        let mut lacking = resource
            .references_to(ResourceType::Route)
            .filter(|name| client.lacks_routes(name))
            .filter_map(|name| routes.get(name));
        !client.lacks_none(ResourceType::Cluster) && lacking.any(|routes| lacks_cluster(routes))
    };
    lacks_cluster(resource) || lacks_part() || (!resource.is_urgent() && lacks_routes())
}
