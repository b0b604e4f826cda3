//! Endpoints without a proxy, which are called in plaintext: how they say so, and what follows.

use std::collections::HashMap;

use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Metadata, TransportSocket, transport_socket::ConfigType,
};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use ironmesh_xds_wire::pb::google::protobuf::{Struct, Value, value::Kind};

/// The key under which Envoy looks, in an endpoint's metadata, for what a match is compared with.
const MATCHED: &str = "envoy.transport_socket_match";

/// What the metadata of an endpoint says that is called in plaintext.
const PLAINTEXT: &str = "plaintext";

/// The metadata of an endpoint that is called in plaintext.
pub(crate) fn metadata() -> Metadata {
    Metadata {
        filter_metadata: HashMap::from([(MATCHED.to_owned(), is_plaintext())]),
        ..Metadata::default()
    }
}

/// Calls these endpoints in plaintext. All others of the cluster are called by its own socket.
pub(crate) fn socket_match() -> TransportSocketMatch {
    TransportSocketMatch {
        name: PLAINTEXT.to_owned(),
        r#match: Some(is_plaintext()),
        transport_socket: Some(TransportSocket {
            name: "envoy.transport_sockets.raw_buffer".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(&RawBuffer {}))),
        }),
    }
}

fn is_plaintext() -> Struct {
    let yes = Value { kind: Some(Kind::BoolValue(true)) };
    Struct { fields: [(PLAINTEXT.to_owned(), yes)].into() }
}
