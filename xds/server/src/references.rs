//! What refers to what, and therefore waits for it (invariant 6).
//!
//! The engine does not know what resources mean: one refers to another if its name stands in it.

use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType};

/// The order of removals: each type with those that may refer to it, which must be settled before.
/// Endpoints, which change most, hold nothing up.
pub(crate) const REMOVALS: [(ResourceType, &[ResourceType]); 5] = [
    (ResourceType::Listener, &[]),
    (ResourceType::Route, &[ResourceType::Listener]),
    (ResourceType::Cluster, &[ResourceType::Listener, ResourceType::Route]),
    (ResourceType::Endpoint, &[ResourceType::Cluster]),
    (ResourceType::Secret, &[ResourceType::Listener, ResourceType::Cluster]),
];

/// What a client has, of what others may refer to.
pub(crate) trait ClientState {
    /// Whether it is known, without looking at each, that the client lacks nothing of a type. Nearly always
    /// it is, and then no text need be searched.
    fn lacks_none(&self, of: ResourceType) -> bool;
    /// Whether the client is to have this cluster and has it in no version.
    fn lacks_cluster(&self, name: &str) -> bool;
    /// Whether the client has these routes in no version.
    fn lacks_routes(&self, name: &str) -> bool;
    /// Whether the client is to have this secret in another version than it has, if any, and takes
    /// secrets in time: a listener that lacks one warms by itself.
    fn lacks_secret(&self, name: &str) -> bool;
}

/// Whether a listener or a route configuration must wait, because it names what the client lacks.
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
        // A chain that is made anew must not begin with the list of callers of before.
        return !client.lacks_none(ResourceType::Secret)
            && resource.has_text(|name| client.lacks_secret(name));
    }
    let referred = [ResourceType::Cluster, ResourceType::Secret, ResourceType::Route];
    if referred.into_iter().all(|of| client.lacks_none(of)) {
        return false;
    }
    // A listener warms until it has its routes, and these may have to wait.
    let routes = |name: &str| {
        let routes = target.of(ResourceType::Route).get(name);
        routes.filter(|_| client.lacks_routes(name))
    };
    resource.has_text(|name| {
        client.lacks_cluster(name)
            || client.lacks_secret(name)
            || routes(name).is_some_and(|routes| names_lacking(routes))
    })
}
