//! Test resources: a number stands for the content, beside the references.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{
    self, Cluster, Endpoint, ExtensionConfig, Listener, Route, Runtime, Secret,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3 as cluster;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ConfigSource, DataSource, Locality, TransportSocket, data_source::Specifier, transport_socket,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3 as listener;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{self as route, RouteConfiguration};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3 as http;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Discoverable, Resource, ResourceSet, any};
use prost::{Message, Name};

/// The type and name of a resource.
pub(crate) type ResourceKey = (ResourceType, String);

pub(crate) fn key(resource: &Resource) -> ResourceKey {
    (resource.resource_type(), resource.name().to_string())
}

/// The content of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) number: u32,
    pub(crate) refers_to: BTreeSet<ResourceKey>,
}

impl Content {
    /// The content of `resource`.
    pub(crate) fn of(resource: &Resource) -> Self {
        let number = match resource.resource_type() {
            Cluster => message::<cluster::Cluster>(resource).alt_stat_name,
            Listener => message::<listener::Listener>(resource).stat_prefix,
            Route => message::<RouteConfiguration>(resource).internal_only_headers.swap_remove(0),
            Endpoint => {
                let localities = message::<ClusterLoadAssignment>(resource).endpoints;
                localities.into_iter().filter_map(|one| Some(one.locality?.zone)).collect()
            }
            Runtime | ExtensionConfig => panic!("never published here"),
            Secret => match message::<tls::Secret>(resource).r#type {
                Some(tls::secret::Type::GenericSecret(generic)) => {
                    match generic.secret.and_then(|source| source.specifier) {
                        Some(Specifier::InlineString(text)) => text,
                        other => panic!("not what was published: {other:?}"),
                    }
                }
                other => panic!("not what was published: {other:?}"),
            },
        };
        let refers_to = resource.references().map(|(of, name)| (of, name.to_owned())).collect();
        Self { number: number.parse().unwrap(), refers_to }
    }

    /// The names of a type to which it refers.
    fn names(&self, of: ResourceType) -> Vec<String> {
        let names = self.refers_to.iter().filter(|(one, _)| *one == of);
        names.map(|(_, name)| name.clone()).collect()
    }

    /// The resource with this content.
    fn resource(&self, of: ResourceType, name: &str) -> Resource {
        let (name, text) = (name.to_owned(), self.number.to_string());
        match of {
            Cluster => Resource::new(&cluster::Cluster {
                name,
                alt_stat_name: text,
                transport_socket: Some(socket(&tls::UpstreamTlsContext {
                    common_tls_context: Some(tls_context(self.names(Secret))),
                    ..tls::UpstreamTlsContext::default()
                })),
                ..cluster::Cluster::default()
            }),
            Listener => {
                let chain = listener::FilterChain {
                    filters: self.names(Route).into_iter().map(http_filter).collect(),
                    transport_socket: Some(socket(&tls::DownstreamTlsContext {
                        common_tls_context: Some(tls_context(self.names(Secret))),
                        ..tls::DownstreamTlsContext::default()
                    })),
                    ..listener::FilterChain::default()
                };
                Resource::new(&listener::Listener {
                    name,
                    stat_prefix: text,
                    filter_chains: vec![chain],
                    ..listener::Listener::default()
                })
            }
            Route => {
                let routes = self.names(Cluster).into_iter().map(route_to).collect();
                let host = route::VirtualHost { routes, ..route::VirtualHost::default() };
                Resource::new(&RouteConfiguration {
                    name,
                    internal_only_headers: vec![text],
                    virtual_hosts: vec![host],
                    ..RouteConfiguration::default()
                })
            }
            Endpoint => {
                let locality = Some(Locality { zone: text, ..Locality::default() });
                let locality = LocalityLbEndpoints { locality, ..LocalityLbEndpoints::default() };
                Resource::new(&ClusterLoadAssignment {
                    cluster_name: name,
                    endpoints: vec![locality],
                    ..ClusterLoadAssignment::default()
                })
            }
            Runtime | ExtensionConfig => panic!("never published here"),
            Secret => {
                let specifier = Some(Specifier::InlineString(text));
                let secret = Some(DataSource { specifier, ..DataSource::default() });
                let generic = tls::GenericSecret { secret, ..tls::GenericSecret::default() };
                let r#type = Some(tls::secret::Type::GenericSecret(generic));
                Resource::new(&tls::Secret { name, r#type })
            }
        }
    }
}

/// A filter with the routes of this name.
fn http_filter(routes: String) -> listener::Filter {
    let rds = http::Rds { route_config_name: routes, ..http::Rds::default() };
    let manager = http::HttpConnectionManager {
        route_specifier: Some(http::http_connection_manager::RouteSpecifier::Rds(rds)),
        ..http::HttpConnectionManager::default()
    };
    listener::Filter {
        config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
        ..listener::Filter::default()
    }
}

fn route_to(cluster: String) -> route::Route {
    let to = route::route_action::ClusterSpecifier::Cluster(cluster);
    let action =
        route::RouteAction { cluster_specifier: Some(to), ..route::RouteAction::default() };
    route::Route { action: Some(route::route::Action::Route(action)), ..route::Route::default() }
}

fn tls_context(secrets: Vec<String>) -> tls::CommonTlsContext {
    let secret = |name| tls::SdsSecretConfig { name, sds_config: Some(ConfigSource::default()) };
    tls::CommonTlsContext {
        tls_certificate_sds_secret_configs: secrets.into_iter().map(secret).collect(),
        ..tls::CommonTlsContext::default()
    }
}

fn socket<M: Message + Name>(context: &M) -> TransportSocket {
    let config_type = Some(transport_socket::ConfigType::TypedConfig(any(context)));
    TransportSocket { config_type, ..TransportSocket::default() }
}

fn message<M: Discoverable + Default>(resource: &Resource) -> M {
    resource.message().unwrap()
}

/// A resource as received over the wire.
pub(crate) fn received(of: ResourceType, any: &Any) -> Arc<Resource> {
    fn decode<M: Discoverable + Default>(any: &Any) -> Resource {
        Resource::new(&M::decode(&*any.value).unwrap())
    }
    assert_eq!(any.type_url, of.url());
    Arc::new(match of {
        Cluster => decode::<cluster::Cluster>(any),
        Listener => decode::<listener::Listener>(any),
        Route => decode::<RouteConfiguration>(any),
        Endpoint => decode::<ClusterLoadAssignment>(any),
        Runtime | ExtensionConfig => panic!("never published here"),
        Secret => decode::<tls::Secret>(any),
    })
}

/// The resources that a scenario edits and publishes. Every reference resolves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents(BTreeMap<ResourceKey, Content>);

impl Contents {
    /// Services of these names, each with one resource of every type.
    pub(crate) fn of_services(names: &[&str]) -> Self {
        let mut contents = Self::default();
        for name in names {
            contents.add_service(name, 1);
        }
        contents
    }

    /// Adds a service: a cluster with its endpoints and its secret, and a listener with routes to
    /// that cluster.
    pub(crate) fn add_service(&mut self, name: &str, number: u32) {
        let secret = (Secret, format!("identity-of-{name}"));
        self.put(Cluster, name, number, [secret.clone()]);
        self.put(Endpoint, name, number, []);
        self.put(Listener, name, number, [secret.clone(), (Route, name.to_owned())]);
        self.put(Route, name, number, [(Cluster, name.to_owned())]);
        self.put(Secret, &secret.1, number, []);
    }

    /// Removes a service and all references to its cluster; routes without a cluster go as well.
    pub(crate) fn remove_service(&mut self, name: &str) {
        self.0.remove(&(Listener, name.to_owned()));
        self.0.remove(&(Route, name.to_owned()));
        let cluster = (Cluster, name.to_owned());
        self.0.remove(&cluster);
        self.0.remove(&(Endpoint, name.to_owned()));
        let mut gone = Vec::new();
        for ((of, name), content) in &mut self.0 {
            if content.refers_to.remove(&cluster) && content.refers_to.is_empty() {
                gone.push((*of, name.clone()));
            }
        }
        for (of, name) in gone {
            self.0.remove(&(of, name.clone()));
            self.0.remove(&(Listener, name));
        }
        self.0.remove(&(Secret, format!("identity-of-{name}")));
    }

    /// Changes the content of a resource, and keeps its references.
    pub(crate) fn change(&mut self, of: ResourceType, name: &str, number: u32) {
        self.0.get_mut(&(of, name.to_owned())).unwrap().number = number;
    }

    /// Sets the clusters of a service's routes.
    pub(crate) fn route(&mut self, name: &str, number: u32, clusters: &[&str]) {
        let clusters = clusters.iter().map(|&cluster| (Cluster, cluster.to_owned()));
        self.0.insert((Route, name.to_owned()), Content { number, refers_to: clusters.collect() });
    }

    /// Changes the content of all resources whose number satisfies a condition.
    pub(crate) fn change_where(&mut self, condition: impl Fn(u32) -> bool, number: u32) {
        for content in self.0.values_mut().filter(|content| condition(content.number)) {
            content.number = number;
        }
    }

    pub(crate) fn keys(&self) -> Vec<ResourceKey> {
        self.0.keys().cloned().collect()
    }

    pub(crate) fn names(&self, of: ResourceType) -> Vec<&str> {
        self.0.keys().filter(|(one, _)| *one == of).map(|(_, name)| &**name).collect()
    }

    /// All resources as a set.
    pub(crate) fn set(&self) -> ResourceSet {
        let mut set = ResourceSet::default();
        for ((of, name), content) in &self.0 {
            assert!(content.refers_to.iter().all(|to| self.0.contains_key(to)), "{of} {name}");
            set.insert(Arc::new(content.resource(*of, name)));
        }
        set
    }

    fn put(
        &mut self,
        of: ResourceType,
        name: &str,
        number: u32,
        refers_to: impl IntoIterator<Item = ResourceKey>,
    ) {
        let content = Content { number, refers_to: refers_to.into_iter().collect() };
        self.0.insert((of, name.to_owned()), content);
    }
}
