//! What callers may hold open at a mesh port or an ingress, and for how long: half-sent requests, idle
//! connections, streams, and the bytes that wait on them.
//!
//! A stream that is open and silent stays, unless policy bounds its duration.

use ironmesh_xds_wire::pb::envoy::config::core::v3::{Http2ProtocolOptions, HttpProtocolOptions};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use ironmesh_xds_wire::pb::envoy::r#type::v3::Percent;
use ironmesh_xds_wire::pb::google::protobuf::Duration;

use crate::shape::{duration, number};

/// How long a caller may take from the first byte of a request to the end of its headers.
const REQUEST_HEADERS_TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// A connection without requests closes after this time. Callers in the mesh close theirs sooner
/// ([`crate::keepalive::UPSTREAM_IDLE_TIMEOUT`]); load balancers in front of an ingress mostly keep theirs
/// for 60 to 90 s.
const IDLE_TIMEOUT: Duration = Duration { seconds: 300, nanos: 0 };

/// By how much connections of bounded duration outlast each other, at random: callers that connected together
/// do not reconnect together.
pub(crate) const JITTER: Percent = Percent { value: 10.0 };

/// Of one HTTP/2 connection from outside of the mesh, as Envoy recommends at an edge: how many streams are open,
/// and how many bytes wait on each of them and on all together.
const INGRESS_STREAMS: u32 = 100;
const INGRESS_STREAM_WINDOW: u32 = 64 * 1024;
const INGRESS_CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Of one connection to a plaintext ingress: how many bytes Envoy buffers for each direction. (At the mesh port a
/// bound would be for the mesh's own callers too; Envoy's 1 MiB holds there.)
pub(crate) const INGRESS_BUFFER: u32 = 32 * 1024;

/// The limits on callers in the mesh.
///
/// Envoy's `max_connection_duration` alone would let open streams go on: it closes the connection when the last
/// one has ended (measured on Envoy 1.40). So the same bound holds for each stream.
pub(crate) fn by_peers(
    manager: HttpConnectionManager,
    max: Option<std::time::Duration>,
) -> HttpConnectionManager {
    let max = max.map(duration);
    HttpConnectionManager {
        request_headers_timeout: Some(REQUEST_HEADERS_TIMEOUT),
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: Some(IDLE_TIMEOUT),
            max_connection_duration: max,
            max_connection_duration_jitter: max.map(|_| JITTER),
            max_stream_duration: max,
            ..manager.common_http_protocol_options.unwrap_or_default()
        }),
        ..manager
    }
}

/// The limits on callers from outside of the mesh.
pub(crate) fn by_outsiders(
    manager: HttpConnectionManager,
    max: Option<std::time::Duration>,
) -> HttpConnectionManager {
    let manager = by_peers(manager, max);
    HttpConnectionManager {
        http2_protocol_options: Some(Http2ProtocolOptions {
            max_concurrent_streams: number(INGRESS_STREAMS),
            initial_stream_window_size: number(INGRESS_STREAM_WINDOW),
            initial_connection_window_size: number(INGRESS_CONNECTION_WINDOW),
            ..manager.http2_protocol_options.clone().unwrap_or_default()
        }),
        ..manager
    }
}
