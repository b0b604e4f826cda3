//! Long-lived connections during load: a gRPC-like stream and a TCP connection.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::app::App;
use crate::client::Http2Connection;
use crate::envoy::Envoy;
use crate::eventually::eventually;
use crate::ledger::{Ledger, TcpConnection};
use crate::load::{Load, LoadReport};
use crate::proxy_options::ProxyOptions;

/// Two services, `calls` and `ledger`, that add a long stream and a long connection to HTTP load.
#[derive(Debug)]
pub struct LongConnections {
    _calls: App,
    _ledger: Ledger,
}

impl LongConnections {
    /// The policy of the two services; `buyer` may call both.
    pub const POLICY: &str = r#"
[[service]]
name = "calls"
service_account = "beside"
ports = [{ name = "rpc", port = 14002, protocol = "grpc", target_port = 8070 }]

[[service]]
name = "ledger"
service_account = "beside"
ports = [{ name = "sql", port = 3306, protocol = "tcp", target_port = 8071 }]

[[http_route_group]]
name = "beside"
matches = [{ name = "all" }]

[[tcp_route]]
name = "beside"

[[traffic_target]]
name = "beside"
destination = { name = "beside" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "beside" }, { kind = "TCPRoute", name = "beside" }]
"#;

    /// Starts both applications at the target ports of the policy.
    pub async fn start(socket: impl Fn(u16) -> SocketAddr) -> Self {
        let calls = App::http2("calls", socket(8070)).await;
        Self { _calls: calls, _ledger: Ledger::start("ledger", socket(8071)).await }
    }

    /// Adds both services to a proxy.
    #[must_use]
    pub fn with_services(server: ProxyOptions) -> ProxyOptions {
        server.with_service("default/calls").with_service("default/ledger")
    }

    /// Adds both upstreams to a proxy of `buyer`.
    #[must_use]
    pub fn with_upstreams(buyer: ProxyOptions) -> ProxyOptions {
        buyer.upstream("default/calls=15014").upstream("default/ledger=15015")
    }

    /// Waits until `buyer` can call both, because load does not retry its start.
    pub async fn wait_for(&self, buyer: &Envoy) {
        eventually("a stream and a connection", async || {
            let mut connection = Http2Connection::connect(buyer.socket(15014)).await?;
            let mut stream = connection.open_echo("/echo", "calls").await?;
            stream.exchange(Bytes::from_static(b"one message")).await?;
            TcpConnection::connect(buyer.socket(15015)).await?.line().await
        })
        .await;
    }

    /// Adds a stream and a connection of `buyer` to load.
    pub async fn join(&self, load: Load, buyer: &Envoy) -> Load {
        let load = load.with_stream(buyer.socket(15014), "calls").await.unwrap();
        load.with_connection(buyer.socket(15015)).await.unwrap()
    }

    /// Fails the test unless both carried data. Errors on them are failures of the load.
    pub fn assert_uninterrupted(&self, report: &LoadReport) {
        assert!(report.stream_messages > 0 && report.connection_lines > 0, "{report:?}");
    }
}
