//! The services and their methods, by the names that they have in Envoy's API.

use ironmesh_xds_wire::ResourceType;

/// One service: its name, and those of its two streaming methods.
#[derive(Debug)]
pub(super) struct Service {
    name: &'static str,
    /// The method of the state-of-the-world variant.
    pub(super) stream: &'static str,
    /// The method of the delta variant.
    pub(super) delta: &'static str,
    /// The one type that it serves; `None` where it serves all.
    pub(super) only: Option<ResourceType>,
}

impl Service {
    /// The service and the method that a path names, if it is one of ours.
    pub(super) fn of(path: &str) -> Option<(&'static Self, &str)> {
        let (name, method) = path.strip_prefix('/')?.split_once('/')?;
        SERVICES.iter().find(|service| service.name == name).map(|service| (service, method))
    }
}

macro_rules! services {
    ($($only:expr, $name:literal, $stream:literal, $delta:literal;)*) => {
        &[$(Service { name: $name, stream: $stream, delta: $delta, only: $only }),*]
    };
}

const SERVICES: &[Service] = services! {
    None, "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "StreamAggregatedResources", "DeltaAggregatedResources";
    Some(ResourceType::Cluster), "envoy.service.cluster.v3.ClusterDiscoveryService",
        "StreamClusters", "DeltaClusters";
    Some(ResourceType::Endpoint), "envoy.service.endpoint.v3.EndpointDiscoveryService",
        "StreamEndpoints", "DeltaEndpoints";
    Some(ResourceType::Listener), "envoy.service.listener.v3.ListenerDiscoveryService",
        "StreamListeners", "DeltaListeners";
    Some(ResourceType::Route), "envoy.service.route.v3.RouteDiscoveryService",
        "StreamRoutes", "DeltaRoutes";
    Some(ResourceType::Secret), "envoy.service.secret.v3.SecretDiscoveryService",
        "StreamSecrets", "DeltaSecrets";
};
