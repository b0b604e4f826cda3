//! Makes `xds/wire/src/references/fields.txt`: which fields of Envoy's messages are names of xDS resources.
//!
//! [`NAMES`] lists them, by hand: the descriptors do not know what a text means. Each row follows from the
//! documentation of the field in Envoy's API, of which the name of the message gives the page: `envoy.config.route.v3`
//! is `api-v3/config/route/v3`. A test below fails if a new version of the API has a field that looks like a
//! reference and is in no list here.

use std::collections::HashMap;

use anyhow::{Context, bail};
use prost_reflect::{DescriptorPool, Kind};

use super::fields;

/// A field that is the name of a resource.
struct NameField {
    /// The full name of the message and the field.
    field: &'static str,
    /// The type of the resource, as `ironmesh_xds_wire::ResourceType` names it.
    of: &'static str,
    /// The field of the same message with the source of the resource. Without it the name is that of something that
    /// is configured in place, or of a static resource of the bootstrap.
    source: Option<&'static str>,
}

const fn named(of: &'static str, field: &'static str) -> NameField {
    NameField { field, of, source: None }
}

const fn discovered(of: &'static str, field: &'static str, source: &'static str) -> NameField {
    NameField { field, of, source: Some(source) }
}

/// The fields that are names of resources.
const NAMES: &[NameField] = &[
    // Routes and proxies.
    named("Cluster", "envoy.config.route.v3.RouteAction.cluster"),
    named("Cluster", "envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster"),
    named("Cluster", "envoy.config.route.v3.WeightedCluster.ClusterWeight.name"),
    named("Cluster", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster"),
    named(
        "Cluster",
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name",
    ),
    named("Cluster", "envoy.extensions.filters.udp.udp_proxy.v3.Route.cluster"),
    named("Cluster", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.cluster"),
    named("Cluster", "envoy.data.dns.v3.DnsTable.DnsEndpoint.cluster_name"),
    named("Cluster", "envoy.data.dns.v3.DnsTable.DnsServiceTarget.cluster_name"),
    named("Cluster", "envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.cluster"),
    named(
        "Cluster",
        "envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction.cluster",
    ),
    named(
        "Cluster",
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.cluster",
    ),
    named(
        "Cluster",
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy.cluster",
    ),
    named(
        "Cluster",
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy.cluster",
    ),
    named("Cluster", "envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster"),
    named(
        "Cluster",
        "envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy.cluster",
    ),
    named(
        "Cluster",
        "envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight.name",
    ),
    named("Cluster", "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.default_cluster"),
    named("Cluster", "envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction.cluster"),
    // Clusters of clusters.
    named("Cluster", "envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters"),
    named(
        "Cluster",
        "envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster.cluster",
    ),
    // Services that Envoy itself calls.
    named("Cluster", "envoy.config.core.v3.ApiConfigSource.cluster_names"),
    named("Cluster", "envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name"),
    named("Cluster", "envoy.config.core.v3.HttpUri.cluster"),
    named("Cluster", "envoy.config.metrics.v3.StatsdSink.tcp_cluster_name"),
    named("Cluster", "envoy.config.trace.v3.DatadogConfig.collector_cluster"),
    named("Cluster", "envoy.config.trace.v3.LightstepConfig.collector_cluster"),
    named("Cluster", "envoy.config.trace.v3.ZipkinConfig.collector_cluster"),
    named("Cluster", "envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig.cluster"),
    named("Cluster", "envoy.extensions.tracers.fluentd.v3.FluentdConfig.cluster"),
    named(
        "Cluster",
        "envoy.extensions.filters.http.cache_v2.v3.CacheV2Config.override_upstream_cluster",
    ),
    named("Cluster", "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig.cluster"),
    named("Cluster", "envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster.cluster"),
    // A cluster of the type EDS that does not set it gets the endpoints of its own name
    // (`xds/wire/src/references.rs`).
    named("Endpoint", "envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name"),
    // An internal listener, to which a cluster of the same Envoy connects.
    named("Listener", "envoy.config.core.v3.EnvoyInternalAddress.server_listener_name"),
    named(
        "Route",
        "envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name",
    ),
    named("Route", "envoy.config.route.v3.ScopedRouteConfiguration.route_configuration_name"),
    discovered(
        "Secret",
        "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig.name",
        "sds_config",
    ),
    named(
        "Secret",
        "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.prefetch_secret_names",
    ),
    discovered("ExtensionConfig", "envoy.config.cluster.v3.Filter.name", "config_discovery"),
    discovered("ExtensionConfig", "envoy.config.listener.v3.Filter.name", "config_discovery"),
    discovered(
        "ExtensionConfig",
        "envoy.config.listener.v3.ListenerFilter.name",
        "config_discovery",
    ),
    discovered(
        "ExtensionConfig",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter.name",
        "config_discovery",
    ),
    discovered(
        "ExtensionConfig",
        "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter.name",
        "config_discovery",
    ),
    discovered(
        "ExtensionConfig",
        "envoy.extensions.filters.http.composite.v3.DynamicConfig.name",
        "config_discovery",
    ),
];

/// The table for these descriptors.
pub(super) fn table(pool: &DescriptorPool) -> anyhow::Result<String> {
    let mut names = HashMap::new();
    for name in NAMES {
        let known = (name.of, source_of(pool, name)?);
        if names.insert(name.field, known).is_some() {
            bail!("`{}` is listed twice", name.field);
        }
    }
    let table = fields::table(
        pool,
        |field| names.contains_key(field.full_name()),
        |field, line| {
            let number = field.number();
            match (names.get(field.full_name()), line) {
                (Some((of, None)), _) => Some(format!("{number}={of}")),
                (Some((of, Some(source))), _) => Some(format!("{number}={of}?{source}")),
                (None, Some(line)) => Some(format!("{number}>{line}")),
                (None, None) => None,
            }
        },
    );
    Ok(table)
}

/// The number of the source's field. Fails if Envoy's API does not have the fields.
fn source_of(pool: &DescriptorPool, name: &NameField) -> anyhow::Result<Option<u32>> {
    let unknown = || format!("Envoy's API has no text `{}`", name.field);
    let (message, field) = name.field.rsplit_once('.').with_context(unknown)?;
    let message = pool.get_message_by_name(message).with_context(unknown)?;
    let is_text =
        message.get_field_by_name(field).is_some_and(|field| field.kind() == Kind::String);
    if !is_text {
        bail!(unknown());
    }
    let Some(source) = name.source else { return Ok(None) };
    let field = message.get_field_by_name(source);
    let field =
        field.with_context(|| format!("`{}` has no field `{source}`", message.full_name()))?;
    Ok(Some(field.number()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::descriptors::stripped;

    /// The packages of messages that are in no resource.
    const NOT_IN_RESOURCES: [&str; 6] = [
        "envoy.admin.",
        "envoy.config.bootstrap.",
        "envoy.data.accesslog.",
        "envoy.data.cluster.",
        "envoy.data.core.",
        "envoy.service.",
    ];

    /// Fields that look like references and are none.
    const OTHERS: &[&str] = &[
        // The name of the node's cluster, which is no resource.
        "envoy.config.core.v3.Node.cluster",
        // The endpoints' own name, and statistics that Envoy sends.
        "envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name",
        "envoy.config.endpoint.v3.ClusterStats.cluster_name",
        "envoy.config.endpoint.v3.ClusterStats.cluster_service_name",
        // The header of a request that has the name.
        "envoy.config.route.v3.RouteAction.cluster_header",
        "envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster_header",
        "envoy.config.route.v3.WeightedCluster.ClusterWeight.cluster_header",
        "envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.cluster_header",
        // A plugin of the same route configuration.
        "envoy.config.route.v3.RouteAction.cluster_specifier_plugin",
        // A condition about where a request goes by its route.
        "envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster",
        // Names within a module that Envoy loads.
        "envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig.cluster_name",
        "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute.per_route_config_name",
        // Route configurations of other protocols, which have types of their own.
        "envoy.extensions.filters.network.dubbo_proxy.v3.Drds.route_config_name",
        "envoy.extensions.filters.network.generic_proxy.v3.GenericRds.route_config_name",
        "envoy.extensions.filters.network.thrift_proxy.v3.Trds.route_config_name",
        // Filled by the other end of a tunnel.
        "envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel.required_cluster_name",
        "envoy.extensions.filters.network.reverse_tunnel.v3.Validation.cluster_id_format",
    ];

    /// Messages with a source of resources that have no name of a resource of our types.
    const OTHER_SOURCES: &[&str] = &[
        // The server to which the loads of a cluster are reported.
        "envoy.config.cluster.v3.Cluster",
        // A source within a source.
        "envoy.config.core.v3.ExtensionConfigSource",
        // Collections and types that this control plane does not serve.
        "envoy.config.endpoint.v3.LedsClusterLocalityConfig",
        "envoy.config.listener.v3.Listener.FcdsConfig",
        "envoy.config.route.v3.Vhds",
        "envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket",
        "envoy.extensions.clusters.aggregate.v3.AggregateClusterResource",
        "envoy.extensions.filters.network.dubbo_proxy.v3.Drds",
        "envoy.extensions.filters.network.generic_proxy.v3.GenericRds",
        "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds",
        "envoy.extensions.filters.network.thrift_proxy.v3.Trds",
        // The clusters are named by requests, or by the field `cluster` of the same message.
        "envoy.extensions.filters.http.on_demand.v3.OnDemandCds",
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand",
        // The source of the routes that its scopes name.
        "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes",
    ];

    #[test]
    fn fields_that_look_like_references_are_in_a_list() {
        let pool = DescriptorPool::decode(&*stripped().unwrap()).unwrap();
        let listed: BTreeSet<_> = NAMES.iter().map(|name| name.field).collect();
        let mut unlisted = BTreeSet::new();
        let mut others: BTreeSet<_> = OTHERS.iter().chain(OTHER_SOURCES).copied().collect();
        let messages: Vec<_> = pool.all_messages().collect();
        let messages = messages.iter().filter(|message| {
            !NOT_IN_RESOURCES.iter().any(|package| message.full_name().starts_with(package))
        });
        for message in messages {
            let fields: Vec<_> = message.fields().collect();
            for field in fields.iter().filter(|field| field.kind() == Kind::String) {
                let name = field.name();
                let parts = ["cluster", "route_config", "secret_name", "listener_name"];
                let looks = parts.iter().any(|part| name.contains(part));
                if looks && !listed.contains(field.full_name()) && !others.remove(field.full_name())
                {
                    unlisted.insert(field.full_name().to_owned());
                }
            }
            // A name beside the source of what it names.
            let is_source = |inner: &str| {
                ["ConfigSource", "ExtensionConfigSource"]
                    .iter()
                    .any(|source| inner == format!("envoy.config.core.v3.{source}"))
            };
            let has_source = fields.iter().any(|field| {
                matches!(field.kind(), Kind::Message(inner) if is_source(inner.full_name()))
            });
            let has_listed = fields.iter().any(|field| listed.contains(field.full_name()));
            if has_source && !has_listed && !others.remove(message.full_name()) {
                unlisted.insert(message.full_name().to_owned());
            }
        }
        assert!(unlisted.is_empty(), "{unlisted:#?}");
        assert!(others.is_empty(), "no longer such fields: {others:#?}");
    }
}
