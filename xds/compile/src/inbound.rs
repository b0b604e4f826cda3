//! Inbound: one listener on the mesh address, a filter chain per service port, and the cluster of
//! the application.

use std::net::SocketAddr;

use ironmesh_catalog::{
    Application, CertificateSource, GlobalHttpLimit, Health, Mode, Protocol, Proxy, Service,
    ServicePort, TcpAccess,
};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::TrafficDirection;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{
    FilterChain, FilterChainMatch, Listener, ListenerFilter, listener_filter,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    RouteAction, RouteConfiguration, VirtualHost, route_action::ClusterSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::google::protobuf::{Any, Duration};

use crate::http::{Side, connection_manager, every_request, forward, grpc_web, protocol_options};
use crate::limits::unlimited;
use crate::mesh_view::{MeshView, ServiceSettings};
use crate::revoked::{self, REVOKED_FILTER};
use crate::secret::{self, ROOTS};
use crate::shape::{CONNECT_TIMEOUT, health_status, lb_endpoint, listener, never_panic};
use crate::telemetry::ServiceTelemetry;
use crate::tls::{self, MESH_ALPN};
use crate::{callers, names, rate_limit, rbac, tcp, withdrawals};

/// The name of the inbound listener.
pub const LISTENER: &str = "inbound";

/// The time that a client may take to send its ClientHello.
const INSPECTION_TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };

/// The time for a handshake; Envoy's default has no limit.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// The listener filter that reads the ClientHello, so that SNI and ALPN select the chain.
pub(crate) fn tls_inspector() -> ListenerFilter {
    let inspector = listener_filter::ConfigType::TypedConfig(any(&TlsInspector::default()));
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(inspector),
        ..ListenerFilter::default()
    }
}

/// The listener on the mesh port, with these chains. There is always at least one: Envoy rejects a
/// listener without.
pub(crate) fn inbound_listener(proxy: &Proxy, filter_chains: Vec<FilterChain>) -> Listener {
    Listener {
        traffic_direction: TrafficDirection::Inbound.into(),
        listener_filters: vec![tls_inspector()],
        listener_filters_timeout: Some(INSPECTION_TIMEOUT),
        filter_chains,
        ..listener(LISTENER.to_owned(), proxy.bind(), proxy.record.mesh_address.port())
    }
}

/// The chain of one HTTP service port: mutual TLS for clients whose SNI is this port and that offer
/// the mesh's ALPN. Anything else, above all plaintext, matches no chain and is disconnected.
pub(crate) fn http_filter_chain(
    mesh: MeshView<'_>,
    source: CertificateSource,
    service: &Service,
    port: &ServicePort,
    protocol: Protocol,
    global: Option<&GlobalHttpLimit>,
    telemetry: ServiceTelemetry<'_>,
) -> FilterChain {
    let manager = connection_manager(
        Side::Inbound { max_duration: service.max_connection_duration },
        service.escaped_slashes,
        stat_prefix(port),
        names::inbound_route(port),
        filters_for_mesh(protocol, global),
        telemetry,
    );
    FilterChain {
        name: names::inbound_route(port),
        transport_socket: tls::downstream(&service.account, source, ROOTS),
        filters: vec![manager],
        ..chain(mesh, port)
    }
}

/// The filters that a request of another proxy passes: first the one that refuses revoked callers.
fn filters_for_mesh(protocol: Protocol, global: Option<&GlobalHttpLimit>) -> Vec<HttpFilter> {
    [revoked::filter()].into_iter().chain(filters(protocol, global)).collect()
}

/// The filters that a request to a service port of `protocol` passes before it is forwarded.
pub(crate) fn filters(protocol: Protocol, global: Option<&GlobalHttpLimit>) -> Vec<HttpFilter> {
    let mut filters = vec![rbac::join_repeated(), rbac::deny_all()];
    if protocol == Protocol::GrpcWeb {
        filters.push(grpc_web());
    }
    filters.push(rate_limit::local_filter());
    filters.extend(global.map(rate_limit::global::http_filter_of));
    filters
}

/// The chain of one TCP service port: like [`http_filter_chain`], but a caller is authorized in the
/// handshake. Afterwards would be too late if the server speaks first.
///
/// It accepts as many connections as `settings` allow. Envoy ends the connections of a changed
/// chain within its drain time: so the name counts the withdrawals. If `by_caller`, it serves
/// connections through chains of single callers, never changes by a withdrawal, and ends the
/// withdrawn caller's connections by a filter (docs/decisions/0079).
#[expect(clippy::too_many_arguments, reason = "a chain depends on all of them")]
pub(crate) fn tcp_filter_chain(
    mesh: MeshView<'_>,
    source: CertificateSource,
    by_caller: bool,
    service: &Service,
    port: &ServicePort,
    access: &TcpAccess,
    settings: ServiceSettings<'_>,
    telemetry: ServiceTelemetry<'_>,
) -> FilterChain {
    let peers = secret::authorization_name(port);
    let is_audited = mesh.mode_of(service) == Mode::Audit;
    let local = settings.local_tcp();
    let local = local.map(|rate| rate_limit::local_tcp(rate, stat_prefix(port)));
    // If a rate limit service counts connections, they pass its listener first.
    let is_counted = settings.global_tcp().is_some();
    let cluster =
        if is_counted { names::counted_cluster(port) } else { names::local_cluster(port) };
    let (cluster, name) = if by_caller {
        (names::callers_cluster(port), format!("inbound|{port}|callers"))
    } else {
        (cluster, format!("inbound|{port}|{}", access.withdrawals))
    };
    let by_caller = by_caller.then(|| [withdrawals::filter(port), callers::name_caller()]);
    let max_duration = service.max_connection_duration;
    let proxy =
        tcp::to_application(stat_prefix(port), cluster, is_audited, max_duration, telemetry);
    FilterChain {
        name,
        transport_socket: tls::downstream(&service.account, source, &peers),
        filters: by_caller.into_iter().flatten().chain(local).chain([proxy]).collect(),
        ..chain(mesh, port)
    }
}

/// The match of a chain.
fn chain(mesh: MeshView<'_>, port: &ServicePort) -> FilterChain {
    FilterChain {
        filter_chain_match: Some(FilterChainMatch {
            server_names: vec![names::server_name(port, mesh.domain())],
            transport_protocol: "tls".to_owned(),
            application_protocols: vec![MESH_ALPN.to_owned()],
            ..FilterChainMatch::default()
        }),
        transport_socket_connect_timeout: Some(HANDSHAKE_TIMEOUT),
        ..FilterChain::default()
    }
}

pub(crate) fn stat_prefix(port: &ServicePort) -> String {
    let ServicePort { service, port } = port;
    format!("inbound_{}_{}_{port}", service.namespace, service.name)
}

/// The routes of one service port, with authorization, and with the refusal of revoked callers. They
/// are the same for all proxies that serve it.
pub(crate) fn route_configuration(
    mesh: MeshView<'_>,
    service: &Service,
    port: &ServicePort,
    revoked: Option<&Any>,
) -> RouteConfiguration {
    let local = ClusterSpecifier::Cluster(names::local_cluster(port));
    let action = forward(RouteAction { cluster_specifier: Some(local), ..RouteAction::default() });
    let settings = mesh.settings(service);
    // Authorization is set on the virtual host, and so on all of its routes.
    let mut typed_per_filter_config = rbac::per_route(mesh, service, port);
    typed_per_filter_config.extend(rate_limit::local_http(settings.local_http()));
    typed_per_filter_config
        .extend(revoked.map(|revoked| (REVOKED_FILTER.to_owned(), revoked.clone())));
    let global = settings.global_http();
    let rate_limits =
        global.map(|limit| rate_limit::global::descriptors(&limit.descriptors)).unwrap_or_default();
    let mut routes = rate_limit::routes(settings.http_routes(), &action);
    routes.push(every_request(action));
    RouteConfiguration {
        name: names::inbound_route(port),
        virtual_hosts: vec![VirtualHost {
            name: "inbound".to_owned(),
            domains: vec!["*".to_owned()],
            routes,
            typed_per_filter_config,
            rate_limits,
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}

/// The cluster of the applications that serve the port behind the proxy.
///
/// Weights and health select among them. With a single application both are omitted: otherwise each
/// change that a provider reports would change the cluster and drain its connections, and callers
/// with older health would be rejected here.
pub(crate) fn local_cluster(
    proxy: &Proxy,
    port: &ServicePort,
    protocol: Protocol,
    applications: &[Application],
) -> Cluster {
    let is_alone = applications.len() == 1;
    let is_healthy = |one: &Application| one.health == Health::Healthy;
    let has_health = applications.iter().any(is_healthy) && !applications.iter().all(is_healthy);
    let endpoint = |one: &Application| LbEndpoint {
        health_status: health_status(if has_health { one.health } else { Health::Healthy }),
        ..lb_endpoint(
            SocketAddr::new(proxy.app_address(), one.port),
            if is_alone { 1 } else { one.weight },
        )
    };
    let name = names::local_cluster(port);
    Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: unlimited(),
        common_lb_config: has_health.then(never_panic).flatten(),
        typed_extension_protocol_options: protocol_options(protocol, None),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: applications.iter().map(endpoint).collect(),
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}
