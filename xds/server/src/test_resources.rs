//! Resources and sets for tests: a name, and a number that stands for the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Listener, ListenerFilter};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    GenericSecret, Secret, secret,
};
use ironmesh_xds_wire::pb::envoy::service::runtime::v3::Runtime;
use ironmesh_xds_wire::pb::google::protobuf::{Any, Struct, Value, value::Kind};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType};

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

/// A listener that names other resources.
pub(crate) fn listener_of(name: &str, content: u32, others: &[&str]) -> Arc<Resource> {
    let filter =
        |name: &&str| ListenerFilter { name: (*name).to_owned(), ..ListenerFilter::default() };
    Arc::new(Resource::new(&Listener {
        name: name.to_owned(),
        stat_prefix: content.to_string(),
        listener_filters: others.iter().map(filter).collect(),
        ..Listener::default()
    }))
}

pub(crate) fn route(name: &str, content: u32) -> Arc<Resource> {
    route_to(name, content, &[])
}

/// Routes to these clusters.
pub(crate) fn route_to(name: &str, content: u32, clusters: &[&str]) -> Arc<Resource> {
    let host = |name: &&str| VirtualHost { name: (*name).to_owned(), ..VirtualHost::default() };
    Arc::new(Resource::new(&RouteConfiguration {
        name: name.to_owned(),
        internal_only_headers: vec![content.to_string()],
        virtual_hosts: clusters.iter().map(host).collect(),
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
