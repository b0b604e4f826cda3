//! References between resources, by which one waits for another (invariant 6).
//!
//! The engine does not know what resources mean: one refers to another if it contains its name.

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

/// The types of which listeners name resources that must be current when a listener becomes active.
pub(crate) const PARTS: [ResourceType; 2] = [ResourceType::Secret, ResourceType::ExtensionConfig];

/// What a client has, of the resources that others refer to.
pub(crate) trait ClientState {
    /// Whether the client is known to lack nothing of a type, without a look at each resource.
    /// Nearly always it is, and then no text need be searched.
    fn lacks_none(&self, of: ResourceType) -> bool;
    /// Whether the target has this cluster and the client has it in no version.
    fn lacks_cluster(&self, name: &str) -> bool;
    /// Whether the client has these routes in no version.
    fn lacks_routes(&self, name: &str) -> bool;
    /// Whether the client has not ACKed the target's version of a part of listeners with this name:
    /// a secret or the configuration of a filter. A client that ACKs these late lacks none. A
    /// listener that lacks a part warms by itself.
    fn lacks_part(&self, name: &str) -> bool;
}

/// Whether a listener or a route configuration must wait for a resource that it names and the
/// client lacks.
pub(crate) fn must_wait(
    resource: &Resource,
    target: &ResourceSet,
    client: &impl ClientState,
) -> bool {
    let names_lacking = |resource: &Resource| {
        !resource.is_urgent()
            && !client.lacks_none(ResourceType::Cluster)
            && resource.has_text(|name| client.lacks_cluster(name))
    };
    if resource.resource_type() != ResourceType::Listener {
        return names_lacking(resource);
    }
    if resource.is_urgent() {
        // A recreated filter chain must not start with the old list of callers.
        return !PARTS.into_iter().all(|of| client.lacks_none(of))
            && resource.has_text(|name| client.lacks_part(name));
    }
    let mut referred = [ResourceType::Cluster, ResourceType::Route].into_iter().chain(PARTS);
    if referred.all(|of| client.lacks_none(of)) {
        return false;
    }
    // A listener warms until it has its routes, and these may have to wait.
    let routes = |name: &str| {
        let routes = target.of(ResourceType::Route).get(name);
        routes.filter(|_| client.lacks_routes(name))
    };
    resource.has_text(|name| {
        client.lacks_cluster(name)
            || client.lacks_part(name)
            || routes(name).is_some_and(|routes| names_lacking(routes))
    })
}
