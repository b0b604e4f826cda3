//! Handwritten resources, for use of the xDS server without a mesh.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, Locality, SocketAddress, address,
    config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route,
    route_action::ClusterSpecifier, route_match::PathSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::router::v3::Router;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use ironmesh_xds_wire::pb::google::protobuf::UInt32Value;
use ironmesh_xds_wire::{Resource, ResourceSet, any};

/// A config source over the aggregated stream.
pub(crate) fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    }
}

/// An HTTP connection manager with the routes of this name.
pub(crate) fn manager(routes: &str, source: &ConfigSource) -> HttpConnectionManager {
    let router = HttpFilter {
        name: "router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
        ..HttpFilter::default()
    };
    HttpConnectionManager {
        stat_prefix: "http".to_owned(),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(source.clone()),
            route_config_name: routes.to_owned(),
        })),
        http_filters: vec![router],
        ..HttpConnectionManager::default()
    }
}

/// Routes that lead every call to this cluster.
pub(crate) fn routes(name: &str, cluster: &str) -> RouteConfiguration {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..RouteAction::default()
    };
    let every_call = RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix(String::new())),
        ..RouteMatch::default()
    };
    RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "api".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![Route {
                r#match: Some(every_call),
                action: Some(route::Action::Route(action)),
                ..Route::default()
            }],
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}

/// A cluster whose endpoints come by EDS.
pub(crate) fn cluster(name: &str, source: &ConfigSource) -> Cluster {
    Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(source.clone()),
            ..EdsClusterConfig::default()
        }),
        ..Cluster::default()
    }
}

/// A load assignment with one endpoint.
pub(crate) fn endpoints(cluster: &str, address: SocketAddr) -> ClusterLoadAssignment {
    let endpoint = Endpoint { address: Some(socket(address)), ..Endpoint::default() };
    ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            locality: Some(Locality::default()),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            lb_endpoints: vec![LbEndpoint {
                host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                ..LbEndpoint::default()
            }],
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    }
}

/// An address as an Envoy message.
pub(crate) fn socket(address: SocketAddr) -> Address {
    let socket = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        ..SocketAddress::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

/// A resource set of these resources.
pub(crate) fn set_of(resources: &[Resource]) -> ResourceSet {
    let mut set = ResourceSet::default();
    for resource in resources {
        set.insert(Arc::new(resource.clone()));
    }
    set
}
