//! Declared upstreams (docs/concepts/traffic.md): a local port for one service port.

use std::collections::BTreeSet;

use ironmesh_catalog::{
    Code, Finding, Proxy, Service, ServiceAccount, ServicePort, Spot, Upstream, UpstreamSource,
    hosts,
};
use ironmesh_sidecar::ports;
use ironmesh_xds_wire::pb::envoy::config::core::v3::TrafficDirection;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};

use crate::caller_name::{CALLER, answer_naming_caller};
use crate::destination::Destination;
use crate::http::{Side, connection_manager, every_request};
use crate::mesh_view::MeshView;
use crate::shape::listener;
use crate::telemetry::ServiceTelemetry;
use crate::{egress, names, tcp};

/// An upstream that names no service port.
const UPSTREAM_UNKNOWN: Code = Code(401);

/// An upstream whose local port another upstream or the proxy itself uses.
const UPSTREAM_PORT_IN_USE: Code = Code(402);

/// A TCP upstream without a destination.
pub(crate) const UPSTREAM_CLOSED: Code = Code(407);

/// The service port of an upstream, which policy declares at `spot`, or else a bootstrap.
pub(crate) fn service_port<'a>(
    mesh: MeshView<'a>,
    proxy: &Proxy,
    upstream: &Upstream,
    spot: Option<&Spot>,
) -> Result<(&'a Service, ServicePort), Box<Finding>> {
    let problem = |what: String, help: &str| {
        let id = proxy.record.id;
        let message = format!("upstream `{}` of proxy {id} {what}", upstream.service);
        Box::new(Finding::error(UPSTREAM_UNKNOWN, spot.cloned(), message).object(id).help(help))
    };
    let Some(service) = mesh.service(&upstream.service) else {
        return Err(problem(
            "names a service that policy does not define".to_owned(),
            "define the service, or correct `upstreams` in the metadata of the proxy's bootstrap",
        ));
    };
    // To the caller it does not exist; the reader of the finding may know more.
    let caller = proxy.record.services.first();
    if caller.is_some_and(|caller| !service.is_visible_in(&caller.namespace)) {
        let namespace = &service.name.namespace;
        return Err(problem(
            format!("names a service that is private to namespace `{namespace}`"),
            "leave out `visibility` of the service, or the upstream",
        ));
    }
    let Some(port) = service.upstream_port(upstream.port) else {
        let ports: Vec<_> = service.ports.iter().map(|port| port.number.to_string()).collect();
        let help = match ports.as_slice() {
            [] => "the service has no ports, so nothing can call it".to_owned(),
            ports => format!("the service has the ports: {}", ports.join(", ")),
        };
        return Err(problem("does not name one of its service's ports".to_owned(), &help));
    };
    Ok((service, ServicePort::new(service.name.clone(), port.number)))
}

/// The local ports that no upstream can have, because the proxy itself listens there: Envoy would
/// reject the listener.
pub(crate) fn own_ports(proxy: &Proxy) -> BTreeSet<u16> {
    // Port 0 would be an arbitrary port that no caller knows.
    let own = [ports::ADMIN, ports::METRICS, ports::OUTBOUND_HTTP];
    let mut ports: BTreeSet<_> = [0].into_iter().chain(own).collect();
    let bind = proxy.bind();
    if bind == proxy.local_address() || bind.is_unspecified() {
        ports.insert(proxy.record.mesh_address.port());
    }
    ports
}

/// The finding about an upstream whose port is in use, which is omitted.
pub(crate) fn port_in_use(
    proxy: &Proxy,
    upstream: &str,
    port: u16,
    spot: Option<&Spot>,
) -> Finding {
    let id = proxy.record.id;
    let message = format!("upstream `{upstream}` of proxy {id} cannot have the local port {port}");
    let own: Vec<_> = own_ports(proxy).iter().map(u16::to_string).collect();
    Finding::error(UPSTREAM_PORT_IN_USE, spot.cloned(), message).object(id).help(format!(
        "give each upstream a port of its own, and none of the proxy's: {}",
        own.join(", ")
    ))
}

/// The name and the port of the listener of an upstream.
pub(crate) struct UpstreamListener {
    name: String,
    local_port: u16,
}

impl UpstreamListener {
    /// The listener of an upstream from `source` that leads to `port`.
    ///
    /// A running Envoy rejects another listener at an address in use, so the name must stay when policy changes the
    /// target: it has the service port of the flag at this local port, or else none.
    pub(crate) fn new(
        mesh: MeshView<'_>,
        proxy: &Proxy,
        port: &ServicePort,
        local_port: u16,
        source: &UpstreamSource,
    ) -> Self {
        let flagged = match source {
            UpstreamSource::Flag => Some(port.clone()),
            UpstreamSource::Policy { .. } => {
                let mut flags = proxy.metadata.upstreams.iter();
                let flag = flags.find(|flag| flag.local_port == local_port);
                flag.and_then(|flag| Some(service_port(mesh, proxy, flag, None).ok()?.1))
            }
        };
        Self { name: names::upstream_listener(flagged.as_ref(), local_port), local_port }
    }
}

/// The listener of an HTTP upstream, with the routes of [`upstream_routes`].
pub(crate) fn http_listener(
    proxy: &Proxy,
    service: &Service,
    port: &ServicePort,
    listener: UpstreamListener,
    telemetry: ServiceTelemetry<'_>,
) -> Listener {
    let goes_by_host = hosts::is_passed_through(service);
    let filters = if goes_by_host { egress::filters::all(proxy) } else { Vec::new() };
    let manager = connection_manager(
        Side::Outbound,
        service.escaped_slashes,
        stat_prefix(port),
        name(port),
        filters,
        telemetry,
    );
    upstream_listener(proxy, listener, manager)
}

/// The listener of a TCP upstream; `None` without a destination.
///
/// Its chain is named by the transport of the endpoints: when a service becomes strict, plaintext
/// connections end within the drain time.
pub(crate) fn tcp_listener(
    proxy: &Proxy,
    port: &ServicePort,
    listener: UpstreamListener,
    destination: &Destination,
    may_be_plaintext: bool,
    telemetry: ServiceTelemetry<'_>,
) -> Option<Listener> {
    let filter = tcp::to_destination(stat_prefix(port), destination, telemetry)?;
    let mut listener = upstream_listener(proxy, listener, filter);
    for chain in &mut listener.filter_chains {
        let name = if may_be_plaintext { "or-plaintext" } else { "mutual-tls" };
        name.clone_into(&mut chain.name);
    }
    Some(listener)
}

/// The finding about a TCP upstream without a listener. (An HTTP upstream answers 403 with a reason
/// instead.)
pub(crate) fn closed(
    proxy: &Proxy,
    upstream: &Upstream,
    spot: Option<&Spot>,
    account: &ServiceAccount,
    to: Option<&Destination>,
) -> Finding {
    let (service, port, id) = (&upstream.service, upstream.local_port, proxy.record.id);
    let message = format!("local port {port} of proxy {id} for `{service}` is closed:");
    match to {
        None => Finding::warning(
            UPSTREAM_CLOSED,
            spot.cloned(),
            format!("{message} no traffic target allows `{account}` to connect to it"),
        )
        .object(id)
        .help("name the account in the sources of a target with a rule of kind `TCPRoute`"),
        Some(_) => Finding::warning(
            UPSTREAM_CLOSED,
            spot.cloned(),
            format!("{message} no backend of its split with a weight has this TCP port"),
        )
        .object(id)
        .help("give a backend the port, or a weight"),
    }
}

fn stat_prefix(port: &ServicePort) -> String {
    let ServicePort { service, port } = port;
    format!("upstream_{}_{}_{port}", service.namespace, service.name)
}

fn upstream_listener(proxy: &Proxy, of: UpstreamListener, filter: Filter) -> Listener {
    Listener {
        traffic_direction: TrafficDirection::Outbound.into(),
        filter_chains: vec![FilterChain { filters: vec![filter], ..FilterChain::default() }],
        ..listener(of.name, proxy.local_address(), of.local_port)
    }
}

/// The routes of an upstream: for requests to any host, except for an external service whose calls
/// go to their host.
pub(crate) fn upstream_routes(
    service: &Service,
    port: &ServicePort,
    routes: Vec<Route>,
) -> RouteConfiguration {
    let external = service.external.as_ref().filter(|_| hosts::is_passed_through(service));
    let any = || vec!["*".to_owned()];
    let never = external.map(|_| egress::filters::never()).unwrap_or_default();
    RouteConfiguration {
        typed_per_filter_config: never,
        name: name(port),
        virtual_hosts: vec![VirtualHost {
            name: "upstream".to_owned(),
            domains: external.map_or_else(any, |external| hosts::outside(external, port, true)),
            routes,
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}

/// The route of a declared HTTP upstream that policy forbids. Its listener stays, and gives the
/// reason.
pub(crate) fn forbidden(service: &Service) -> Route {
    let name = &service.name;
    let text = format!("ironmesh: {CALLER} may not call {name}: no traffic target allows it\n");
    every_request(answer_naming_caller(403, text))
}

fn name(port: &ServicePort) -> String {
    format!("upstream|{port}")
}
