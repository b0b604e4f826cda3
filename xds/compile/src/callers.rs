//! A filter chain for each caller of a TCP port, behind the chain of the port (docs/decisions/0079).
//!
//! Envoy ends the connections of a removed chain within its drain time, and only those. The chain
//! of the port serves all callers, because Envoy selects a chain before it knows the caller. So after
//! the handshake a connection goes on to an internal listener, in the same process, which selects
//! the chain by the caller's certificate. A withdrawal removes one chain of that listener.

use ironmesh_catalog::{Callers, ServiceAccount, ServicePort, TcpAccess, TrustDomain};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::data_source::Specifier;
use ironmesh_xds_wire::pb::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use ironmesh_xds_wire::pb::envoy::config::core::v3::substitution_format_string::Format;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Address, DataSource, EnvoyInternalAddress, SubstitutionFormatString, TrafficDirection,
    TransportSocket, address, transport_socket,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::listener::{
    InternalListenerConfig, ListenerSpecifier,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use ironmesh_xds_wire::pb::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use ironmesh_xds_wire::pb::envoy::extensions::filters::common::set_filter_state::v3::filter_state_value::{
    Key, SharedWithUpstream, Value,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::set_filter_state::v3::Config;
use ironmesh_xds_wire::pb::envoy::extensions::matching::common_inputs::network::v3::FilterStateInput;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::internal_upstream::v3::InternalUpstreamTransport;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use ironmesh_xds_wire::pb::google::protobuf::{Any, StringValue, value::Kind};
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::Matcher;
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use ironmesh_xds_wire::pb::xds::r#type::matcher::v3::matcher::{
    MatcherTree, MatcherType, OnMatch, on_match,
};

use crate::limits::unlimited;
use crate::names::{callers_cluster, callers_listener};
use crate::shape::{CONNECT_TIMEOUT, network_filter, own_metadata};
use crate::withdrawals::extension;
use crate::{inbound, secret, tcp};

/// The state of a connection that names its caller.
const CALLER: &str = "ironmesh.caller";

/// The filter that passes the caller's SPIFFE ID on to the internal listener.
pub(crate) fn name_caller() -> Filter {
    let text = Specifier::InlineString("%DOWNSTREAM_PEER_URI_SAN%".to_owned());
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(text),
            ..DataSource::default()
        })),
        ..SubstitutionFormatString::default()
    };
    let caller = FilterStateValue {
        key: Some(Key::ObjectKey(CALLER.to_owned())),
        value: Some(Value::FormatString(format)),
        // Connections of callers with other names must not share a pool: with a text that has no
        // hash, Envoy passes on the name of the pool's first caller (seen on Envoy 1.40).
        factory_key: "envoy.hashable_string".to_owned(),
        shared_with_upstream: SharedWithUpstream::Once.into(),
        ..FilterStateValue::default()
    };
    let config = Config { on_downstream_tls_handshake: vec![caller], ..Config::default() };
    network_filter("envoy.filters.network.set_filter_state", any(&config))
}

/// The cluster of [`listener`].
pub(crate) fn cluster(port: &ServicePort) -> Cluster {
    let name = callers_cluster(port);
    let internal = EnvoyInternalAddress {
        address_name_specifier: Some(AddressNameSpecifier::ServerListenerName(callers_listener(
            port,
        ))),
        ..EnvoyInternalAddress::default()
    };
    let address = Address { address: Some(address::Address::EnvoyInternalAddress(internal)) };
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let transport = InternalUpstreamTransport {
        transport_socket: Some(socket("envoy.transport_sockets.raw_buffer", any(&RawBuffer {}))),
        ..InternalUpstreamTransport::default()
    };
    Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: unlimited(),
        // It passes the state of a connection on.
        transport_socket: Some(socket(
            "envoy.transport_sockets.internal_upstream",
            any(&transport),
        )),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![LbEndpoint {
                    host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
                    ..LbEndpoint::default()
                }],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}

/// The internal listener of a port, with a chain for each caller, which leads to `cluster`.
///
/// In permissive and audit mode one chain serves all callers that policy does not name. Those that
/// it named before have their own: a wider access ends no connection.
///
/// The name of a caller's chain contains its number in `last_listed`: so the connections of a revoked
/// proxy end, and its account's other proxies dial again (docs/decisions/0078).
pub(crate) fn listener(
    trust_domain: &TrustDomain,
    port: &ServicePort,
    access: &TcpAccess,
    last_listed: impl Fn(&ServiceAccount) -> Option<u64>,
    cluster: &str,
) -> Listener {
    let name = callers_listener(port);
    let chain_of = |account: &ServiceAccount| match last_listed(account) {
        None => format!("{name}|{account}"),
        Some(number) => format!("{name}|{account}|{number}"),
    };
    let is_open = !matches!(access.callers, Callers::These(_));
    let chains = access.named().iter().map(chain_of);
    let chains: Vec<_> = chains.chain(is_open.then(|| name.clone())).collect();
    let proxy = tcp::to_counted_application(
        format!("callers_{}", inbound::stat_prefix(port)),
        cluster.to_owned(),
    );
    let filter_chains = chains.into_iter().map(|name| FilterChain {
        name,
        filters: vec![proxy.clone()],
        ..FilterChain::default()
    });
    let entries = access.named().iter().map(|account| {
        (trust_domain.workload(account).as_str().to_owned(), selects(chain_of(account)))
    });
    let tree = MatcherTree {
        input: Some(extension(
            "caller",
            &FilterStateInput { key: CALLER.to_owned(), ..FilterStateInput::default() },
        )),
        tree_type: Some(TreeType::ExactMatchMap(MatchMap { map: entries.collect() })),
    };
    // Envoy rejects an empty map. Without a matcher the only chain serves all.
    let matcher = (!access.named().is_empty()).then(|| Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        on_no_match: is_open.then(|| Box::new(selects(name.clone()))),
    });
    Listener {
        name: name.clone(),
        // For people: the list of callers, which Envoy gets first ([`crate::shared`]).
        metadata: own_metadata("callers", Kind::StringValue(secret::authorization_name(port))),
        traffic_direction: TrafficDirection::Inbound.into(),
        listener_specifier: Some(ListenerSpecifier::InternalListener(InternalListenerConfig {})),
        filter_chains: filter_chains.collect(),
        filter_chain_matcher: matcher,
        ..Listener::default()
    }
}

fn selects(chain: String) -> OnMatch {
    let chain = extension("chain", &StringValue { value: chain });
    OnMatch { on_match: Some(on_match::OnMatch::Action(chain)), ..OnMatch::default() }
}

fn socket(name: &str, config: Any) -> TransportSocket {
    TransportSocket {
        name: name.to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(config)),
    }
}
