//! The references of a resource, to which Envoy subscribes. Decoded once per content, for all clients.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::DiscoveryType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::TransportSocket;
use ironmesh_xds_wire::pb::envoy::config::core::v3::transport_socket::ConfigType;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Listener, filter};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext,
};
use prost::{DecodeError, Message};

/// The references of one resource.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) names: Vec<(ResourceType, Arc<str>)>,
    /// The number of its endpoints: Envoy needs time for each.
    pub(crate) endpoints: u32,
}

impl References {
    pub(crate) fn read(resource_type: ResourceType, body: &[u8]) -> Result<Self, DecodeError> {
        let mut references = Self::default();
        match resource_type {
            ResourceType::Cluster => references.cluster(&Cluster::decode(body)?)?,
            ResourceType::Listener => references.listener(&Listener::decode(body)?)?,
            ResourceType::Endpoint => {
                let localities = ClusterLoadAssignment::decode(body)?.endpoints;
                let endpoints: usize = localities.iter().map(|l| l.lb_endpoints.len()).sum();
                references.endpoints = u32::try_from(endpoints).unwrap_or(u32::MAX);
            }
            ResourceType::Runtime
            | ResourceType::ExtensionConfig
            | ResourceType::Route
            | ResourceType::Secret => {}
        }
        references.names.sort();
        references.names.dedup();
        Ok(references)
    }

    fn add(&mut self, resource_type: ResourceType, name: &str) {
        self.names.push((resource_type, name.into()));
    }

    fn cluster(&mut self, cluster: &Cluster) -> Result<(), DecodeError> {
        if cluster.cluster_discovery_type
            == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()))
        {
            let eds = cluster.eds_cluster_config.as_ref();
            let other = eds.map(|eds| &*eds.service_name).filter(|name| !name.is_empty());
            self.add(ResourceType::Endpoint, other.unwrap_or(&cluster.name));
        }
        let matches = cluster.transport_socket_matches.iter();
        let sockets = matches.filter_map(|one| one.transport_socket.as_ref());
        for body in sockets.chain(&cluster.transport_socket).filter_map(tls_context) {
            let context = UpstreamTlsContext::decode(body)?.common_tls_context;
            self.secrets(&context.unwrap_or_default());
        }
        Ok(())
    }

    fn listener(&mut self, listener: &Listener) -> Result<(), DecodeError> {
        for chain in listener.filter_chains.iter().chain(&listener.default_filter_chain) {
            if let Some(body) = chain.transport_socket.as_ref().and_then(tls_context) {
                let context = DownstreamTlsContext::decode(body)?.common_tls_context;
                self.secrets(&context.unwrap_or_default());
            }
            for filter in &chain.filters {
                let Some(filter::ConfigType::TypedConfig(config)) = &filter.config_type else {
                    continue;
                };
                if !config.type_url.ends_with(".HttpConnectionManager") {
                    continue;
                }
                let manager = HttpConnectionManager::decode(&*config.value)?;
                if let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier {
                    self.add(ResourceType::Route, &rds.route_config_name);
                }
            }
        }
        Ok(())
    }

    fn secrets(&mut self, context: &CommonTlsContext) {
        for secret in &context.tls_certificate_sds_secret_configs {
            self.add(ResourceType::Secret, &secret.name);
        }
        let validation = match &context.validation_context_type {
            Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => Some(secret),
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.validation_context_sds_secret_config.as_ref()
            }
            _ => None,
        };
        if let Some(secret) = validation {
            self.add(ResourceType::Secret, &secret.name);
        }
    }
}

/// The content of a TLS transport socket.
fn tls_context(socket: &TransportSocket) -> Option<&[u8]> {
    match socket.config_type.as_ref()? {
        ConfigType::TypedConfig(config) if config.type_url.ends_with("TlsContext") => {
            Some(&config.value)
        }
        ConfigType::TypedConfig(_) => None,
    }
}
