//! Endpoints without a proxy, which are called in plaintext: their metadata, and the socket that it
//! selects.

use std::collections::HashMap;

use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Metadata, TransportSocket, transport_socket::ConfigType,
};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use ironmesh_xds_wire::pb::google::protobuf::{Struct, Value, value::Kind};

/// The metadata key that Envoy compares with transport socket matches.
const MATCHED: &str = "envoy.transport_socket_match";

/// The metadata field of a plaintext endpoint.
const PLAINTEXT: &str = "plaintext";

/// The metadata of a plaintext endpoint.
pub(crate) fn metadata() -> Metadata {
    Metadata {
        filter_metadata: HashMap::from([(MATCHED.to_owned(), is_plaintext())]),
        ..Metadata::default()
    }
}

/// Selects plaintext for these endpoints. All others of the cluster use its own transport socket.
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
