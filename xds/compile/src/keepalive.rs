//! How callers notice a peer that is dead or frozen: HTTP/2 PINGs, TCP keepalive, and limits on silence.
//!
//! It never judges what a peer answers; that is outlier detection ([`crate::limits`]).

use ironmesh_xds_wire::pb::envoy::config::cluster::v3::UpstreamConnectionOptions;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    BindConfig, KeepaliveSettings, SocketOption, TcpKeepalive,
    socket_option::{SocketState, Value},
};
use ironmesh_xds_wire::pb::google::protobuf::Duration;

use crate::shape::number;

/// A proxy pings each of its HTTP/2 connections to peers this often (Envoy adds up to 15 % at random), and
/// closes the connection when nothing arrives for [`PING_TIMEOUT`] after a ping. Together they stay below
/// 3 s. A ping costs the two Envoys about 0.1 ms of CPU each (docs/decisions/0048).
const PING_INTERVAL: Duration = Duration { seconds: 1, nanos: 0 };

/// Long enough for three TCP retransmissions inside one region.
const PING_TIMEOUT: Duration = Duration { seconds: 1, nanos: 800_000_000 };

/// A connection to a peer closes after this time without requests. Without it, Envoy would ping a connection
/// for an hour after its last request.
///
/// It is shorter than the server's own limit, so that the caller closes first and no request meets a closing
/// connection.
pub(crate) const UPSTREAM_IDLE_TIMEOUT: Duration = Duration { seconds: 60, nanos: 0 };

/// After how many seconds of silence the kernel probes the peer's machine, how many seconds lie between the
/// probes, and after how many unanswered probes it closes the connection: 25 s in all. The kernel of a frozen
/// process still answers; PINGs notice that, TCP keepalive cannot.
const TCP_TIME: u32 = 10;
const TCP_INTERVAL: u32 = 5;
const TCP_PROBES: u32 = 3;

/// Linux: `IPPROTO_TCP`, `TCP_USER_TIMEOUT`.
const IPPROTO_TCP: i64 = 6;
const TCP_USER_TIMEOUT: i64 = 18;

/// How long sent bytes may stay unacknowledged, in milliseconds. The kernel does not probe while it
/// retransmits, and gives up only after a quarter of an hour by itself.
const UNACKNOWLEDGED_MILLISECONDS: i64 = 25_000;

/// HTTP/2 PINGs to a proxy of the mesh.
pub(crate) fn http2() -> KeepaliveSettings {
    KeepaliveSettings {
        interval: Some(PING_INTERVAL),
        timeout: Some(PING_TIMEOUT),
        ..KeepaliveSettings::default()
    }
}

/// TCP keepalive, which notices a machine that is gone.
pub(crate) fn tcp() -> UpstreamConnectionOptions {
    UpstreamConnectionOptions {
        tcp_keepalive: Some(TcpKeepalive {
            keepalive_probes: number(TCP_PROBES),
            keepalive_time: number(TCP_TIME),
            keepalive_interval: number(TCP_INTERVAL),
        }),
        ..UpstreamConnectionOptions::default()
    }
}

/// `TCP_USER_TIMEOUT`, for connections without PINGs: it notices a machine that is gone while bytes for it are
/// on their way.
pub(crate) fn unacknowledged_data_limit() -> BindConfig {
    BindConfig {
        socket_options: vec![SocketOption {
            level: IPPROTO_TCP,
            name: TCP_USER_TIMEOUT,
            state: SocketState::StatePrebind.into(),
            value: Some(Value::IntValue(UNACKNOWLEDGED_MILLISECONDS)),
            ..SocketOption::default()
        }],
        ..BindConfig::default()
    }
}
