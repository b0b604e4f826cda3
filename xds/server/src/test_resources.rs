//! Resources and sets for tests: a name, and a number that stands for the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ConfigSource, DataSource, ExtensionConfigSource, TransportSocket, TypedExtensionConfig,
    data_source::Specifier, transport_socket,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    Route as RouteOfHost, RouteAction, RouteConfiguration, VirtualHost, route as route_of_host,
    route_action,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, GenericSecret, SdsSecretConfig, Secret, secret,
};
use ironmesh_xds_wire::pb::envoy::service::runtime::v3::Runtime;
use ironmesh_xds_wire::pb::google::protobuf::{Any, Struct, Value, value::Kind};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, any};

pub(crate) fn cluster(name: &str, content: u32) -> Arc<Resource> {
    large_cluster(name, content, 0)
}

/// A cluster of at least `size` bytes.
pub(crate) fn large_cluster(name: &str, content: u32, size: usize) -> Arc<Resource> {
    let alt_stat_name = format!("{content}{}", "x".repeat(size));
    Arc::new(Resource::new(&Cluster { name: name.to_owned(), alt_stat_name, ..Cluster::default() }))
}

/// The endpoints of a cluster; content 0 means none.
pub(crate) fn endpoints(cluster: &str, content: u32) -> Arc<Resource> {
    let locality = LocalityLbEndpoints { priority: content, ..LocalityLbEndpoints::default() };
    Arc::new(Resource::new(&ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: if content == 0 { Vec::new() } else { vec![locality] },
        ..ClusterLoadAssignment::default()
    }))
}

/// Endpoints of at least `size` bytes.
pub(crate) fn large_endpoints(cluster: &str, size: usize) -> Arc<Resource> {
    let value = [("x".repeat(size), Endpoint::default())].into();
    Arc::new(Resource::new(&ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        named_endpoints: value,
        ..ClusterLoadAssignment::default()
    }))
}

pub(crate) fn listener(name: &str, content: u32) -> Arc<Resource> {
    listener_of(name, content, &[])
}

/// A listener that refers to the clusters, routes, secrets and configurations of filters with these
/// names.
pub(crate) fn listener_of(name: &str, content: u32, others: &[&str]) -> Arc<Resource> {
    Arc::new(Resource::new(&Listener {
        name: name.to_owned(),
        stat_prefix: content.to_string(),
        filter_chains: others.iter().map(|other| chain_of(other)).collect(),
        ..Listener::default()
    }))
}

/// A filter chain with a reference of each type to this name.
fn chain_of(other: &str) -> FilterChain {
    let filter = |config_type| Filter { name: other.to_owned(), config_type: Some(config_type) };
    let rds = Rds { route_config_name: other.to_owned(), ..Rds::default() };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        ..HttpConnectionManager::default()
    };
    let proxy = TcpProxy {
        cluster_specifier: Some(ClusterSpecifier::Cluster(other.to_owned())),
        ..TcpProxy::default()
    };
    let certificate =
        SdsSecretConfig { name: other.to_owned(), sds_config: Some(ConfigSource::default()) };
    let context = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![certificate],
            ..CommonTlsContext::default()
        }),
        ..DownstreamTlsContext::default()
    };
    FilterChain {
        filters: vec![
            filter(filter::ConfigType::ConfigDiscovery(ExtensionConfigSource::default())),
            filter(filter::ConfigType::TypedConfig(any(&manager))),
            filter(filter::ConfigType::TypedConfig(any(&proxy))),
        ],
        transport_socket: Some(TransportSocket {
            config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
            ..TransportSocket::default()
        }),
        ..FilterChain::default()
    }
}

pub(crate) fn route(name: &str, content: u32) -> Arc<Resource> {
    route_to(name, content, &[])
}

/// Routes to these clusters.
pub(crate) fn route_to(name: &str, content: u32, clusters: &[&str]) -> Arc<Resource> {
    let route_of = |name: &&str| {
        let to = route_action::ClusterSpecifier::Cluster((*name).to_owned());
        let action = RouteAction { cluster_specifier: Some(to), ..RouteAction::default() };
        RouteOfHost { action: Some(route_of_host::Action::Route(action)), ..RouteOfHost::default() }
    };
    let routes: Vec<_> = clusters.iter().map(route_of).collect();
    let host = (!routes.is_empty()).then(|| VirtualHost { routes, ..VirtualHost::default() });
    Arc::new(Resource::new(&RouteConfiguration {
        name: name.to_owned(),
        internal_only_headers: vec![content.to_string()],
        virtual_hosts: host.into_iter().collect(),
        ..RouteConfiguration::default()
    }))
}

pub(crate) fn secret(name: &str, content: u32) -> Arc<Resource> {
    let text = Specifier::InlineString(content.to_string());
    let source = DataSource { specifier: Some(text), ..DataSource::default() };
    let generic = GenericSecret { secret: Some(source), ..GenericSecret::default() };
    let r#type = Some(secret::Type::GenericSecret(generic));
    Arc::new(Resource::new(&Secret { name: name.to_owned(), r#type }))
}

/// A layer of runtime keys.
pub(crate) fn runtime(name: &str, content: u32) -> Arc<Resource> {
    let value = Value { kind: Some(Kind::NumberValue(content.into())) };
    let layer = Struct { fields: [("key".to_owned(), value)].into() };
    Arc::new(Resource::new(&Runtime { name: name.to_owned(), layer: Some(layer) }))
}

/// The configuration of a filter.
pub(crate) fn extension_config(name: &str, content: u32) -> Arc<Resource> {
    let config = Any { type_url: content.to_string(), value: Vec::new() };
    let typed_config = Some(config);
    Arc::new(Resource::new(&TypedExtensionConfig { name: name.to_owned(), typed_config }))
}

/// The same resource as an urgent one, which waits for no reference.
pub(crate) fn urgent(resource: &Arc<Resource>) -> Arc<Resource> {
    Arc::new(Resource::clone(resource).urgent())
}

/// A resource of any type.
pub(crate) fn resource(resource_type: ResourceType, name: &str, content: u32) -> Arc<Resource> {
    match resource_type {
        ResourceType::Runtime => runtime(name, content),
        ResourceType::ExtensionConfig => extension_config(name, content),
        ResourceType::Secret => secret(name, content),
        ResourceType::Cluster => cluster(name, content),
        ResourceType::Endpoint => endpoints(name, content),
        ResourceType::Listener => listener(name, content),
        ResourceType::Route => route(name, content),
    }
}

pub(crate) fn set<const N: usize>(resources: [Arc<Resource>; N]) -> ResourceSet {
    let mut set = ResourceSet::default();
    for resource in resources {
        set.insert(resource);
    }
    set
}

/// The contents of all resources, which a random walk edits and then publishes.
#[derive(Debug, Default)]
pub(crate) struct Contents(BTreeMap<(ResourceType, &'static str), u32>);

impl Contents {
    /// Adds, changes or removes a resource; clusters always together with their endpoints.
    pub(crate) fn edit(&mut self, of: ResourceType, name: &'static str, content: Option<u32>) {
        let is_cluster = matches!(of, ResourceType::Cluster | ResourceType::Endpoint);
        let together =
            if is_cluster { [ResourceType::Cluster, ResourceType::Endpoint] } else { [of; 2] };
        for part in together {
            if content.is_none() {
                self.0.remove(&(part, name));
            } else {
                self.0.entry((part, name)).or_insert(1);
            }
        }
        if let Some(content) = content {
            self.0.insert((of, name), content);
        }
    }

    /// The resource set.
    pub(crate) fn set(&self) -> ResourceSet {
        let mut set = ResourceSet::default();
        for ((of, name), content) in &self.0 {
            set.insert(resource(*of, name, *content));
        }
        set
    }
}
