//! Limits on what callers may hold open at a mesh port or an ingress: half-sent requests, idle
//! connections, streams, and the bytes that wait on them.
//!
//! A silent open stream stays, unless policy limits its duration.

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

/// The random extension of limited durations: callers that connected together do not reconnect
/// together.
pub(crate) const JITTER: Percent = Percent { value: 10.0 };

/// The limits of one HTTP/2 connection from outside the mesh, as Envoy recommends at an edge: open
/// streams, and bytes that wait on each of them and on all together.
const INGRESS_STREAMS: u32 = 100;
const INGRESS_STREAM_WINDOW: u32 = 64 * 1024;
const INGRESS_CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The bytes that Envoy buffers for each direction of one connection to a plaintext ingress. (At
/// the mesh port a limit would affect the mesh's own callers; Envoy's 1 MiB applies there.)
pub(crate) const INGRESS_BUFFER: u32 = 32 * 1024;

/// The limits on callers in the mesh.
///
/// Envoy's `max_connection_duration` alone lets open streams continue: it closes the connection
/// when the last one has ended (measured on Envoy 1.40). So each stream has the same limit.
pub(crate) fn limit_mesh_callers(
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

/// The limits on callers outside the mesh.
pub(crate) fn limit_ingress_callers(
    manager: HttpConnectionManager,
    max: Option<std::time::Duration>,
) -> HttpConnectionManager {
    let manager = limit_mesh_callers(manager, max);
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
