//! The services and their methods, by their names in Envoy's API.

use ironmesh_xds_wire::ResourceType;

/// The aggregated discovery service.
pub(super) const AGGREGATED: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

/// One discovery service, with its two streaming methods.
#[derive(Debug)]
pub(super) struct Discovery {
    name: &'static str,
    /// The method of the state-of-the-world variant.
    pub(super) stream: &'static str,
    /// The method of the delta variant.
    pub(super) delta: &'static str,
    /// The only type that it serves; `None` if it serves all.
    pub(super) only: Option<ResourceType>,
}

impl Discovery {
    /// The service of this name.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        SERVICES.iter().find(|service| service.name == name)
    }
}

macro_rules! services {
    ($($only:expr, $name:expr, $stream:literal, $delta:literal;)*) => {
        &[$(Discovery { name: $name, stream: $stream, delta: $delta, only: $only }),*]
    };
}

const SERVICES: &[Discovery] = services! {
    None, AGGREGATED,
        "StreamAggregatedResources", "DeltaAggregatedResources";
    Some(ResourceType::Cluster), "envoy.service.cluster.v3.ClusterDiscoveryService",
        "StreamClusters", "DeltaClusters";
    Some(ResourceType::Endpoint), "envoy.service.endpoint.v3.EndpointDiscoveryService",
        "StreamEndpoints", "DeltaEndpoints";
    Some(ResourceType::Listener), "envoy.service.listener.v3.ListenerDiscoveryService",
        "StreamListeners", "DeltaListeners";
    Some(ResourceType::Route), "envoy.service.route.v3.RouteDiscoveryService",
        "StreamRoutes", "DeltaRoutes";
    Some(ResourceType::Runtime), "envoy.service.runtime.v3.RuntimeDiscoveryService",
        "StreamRuntime", "DeltaRuntime";
    Some(ResourceType::ExtensionConfig),
        "envoy.service.extension.v3.ExtensionConfigDiscoveryService",
        "StreamExtensionConfigs", "DeltaExtensionConfigs";
    Some(ResourceType::Secret), "envoy.service.secret.v3.SecretDiscoveryService",
        "StreamSecrets", "DeltaSecrets";
};
