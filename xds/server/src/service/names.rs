//! The services and their methods, by the names that they have in Envoy's API.

use ironmesh_xds_wire::ResourceType;

/// One service: its name, and those of its two streaming methods.
pub(crate) trait DiscoveryService: Send + Sync + 'static {
    const NAME: &'static str;
    /// The method of the state-of-the-world variant.
    const STREAM: &'static str;
    /// The method of the delta variant.
    const DELTA: &'static str;
    /// The one type that it serves; `None` where it serves all.
    const ONLY: Option<ResourceType>;
}

macro_rules! services {
    ($($(#[$doc:meta])* $service:ident, $only:expr, $name:literal, $stream:literal, $delta:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $service;

        impl DiscoveryService for $service {
            const NAME: &'static str = $name;
            const STREAM: &'static str = $stream;
            const DELTA: &'static str = $delta;
            const ONLY: Option<ResourceType> = $only;
        }
    )*};
}

services! {
    /// ADS.
    Aggregated, None, "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "StreamAggregatedResources", "DeltaAggregatedResources";
    /// CDS.
    Clusters, Some(ResourceType::Cluster), "envoy.service.cluster.v3.ClusterDiscoveryService",
        "StreamClusters", "DeltaClusters";
    /// EDS.
    Endpoints, Some(ResourceType::Endpoint), "envoy.service.endpoint.v3.EndpointDiscoveryService",
        "StreamEndpoints", "DeltaEndpoints";
    /// LDS.
    Listeners, Some(ResourceType::Listener), "envoy.service.listener.v3.ListenerDiscoveryService",
        "StreamListeners", "DeltaListeners";
    /// RDS.
    Routes, Some(ResourceType::Route), "envoy.service.route.v3.RouteDiscoveryService",
        "StreamRoutes", "DeltaRoutes";
    /// SDS.
    Secrets, Some(ResourceType::Secret), "envoy.service.secret.v3.SecretDiscoveryService",
        "StreamSecrets", "DeltaSecrets";
}
