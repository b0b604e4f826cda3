//! TCP: authorized in the handshake, also if the server speaks first, and never after it.

use ironmesh_tests::authority::TestAuthority;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{Envoy, Ledger, Mesh, Programs, ProxyOptions, TcpConnection, eventually, tls};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::bookstore::wait_for_endpoint;

const SERVICES: &str = r#"
[[service]]
name = "bookwarehouse"
ports = [{ name = "ledger", port = 3306, protocol = "tcp", target_port = 8080 }]

[[service]]
name = "bookstore"

[[service]]
name = "bookkeeper"

[[service]]
name = "bookthief"

[[tcp_route]]
name = "ledger"
matches = { ports = [3306] }
"#;

/// The file `ledger.toml`: the callers that may connect.
pub(crate) fn ledger(callers: &[&str]) -> String {
    let sources: Vec<_> = callers.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    format!(
        "[[traffic_target]]\nname = \"ledger\"\ndestination = {{ name = \"bookwarehouse\" }}\n\
         sources = [{}]\nrules = [{{ kind = \"TCPRoute\", name = \"ledger\" }}]\n",
        sources.join(", ")
    )
}

pub(crate) const UPSTREAM: &str = "default/bookwarehouse=3306";
const SNI: &str = "3306.bookwarehouse.default.mesh.internal";

/// The time for which the warehouse's Envoy keeps connections of removed chains.
pub(crate) const DRAIN_SECONDS: u32 = 2;

/// The warehouse, its sidecar, and the store's.
pub(crate) struct TcpMesh {
    pub(crate) mesh: Mesh,
    app: Ledger,
    pub(crate) sidecar: Envoy,
    pub(crate) store: Envoy,
}

impl TcpMesh {
    /// Opens the mesh; only the store may connect, and can.
    pub(crate) async fn open() -> Option<Self> {
        Self::open_with(|warehouse| warehouse).await
    }

    /// The same with these options of the warehouse's proxy.
    pub(crate) async fn open_with(
        options: impl FnOnce(ProxyOptions) -> ProxyOptions,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [("services.toml", SERVICES), ("ledger.toml", &ledger(&["bookstore"]))];
        let mesh = Mesh::start(&programs, &policy).await;
        let app = Ledger::start("bookwarehouse", mesh.loopback().socket(31, 8080)).await;
        let warehouse = ProxyOptions::new("default/bookwarehouse", 31);
        let sidecar = mesh.envoy(&options(warehouse.drain_seconds(DRAIN_SECONDS))).await;
        let store =
            mesh.envoy(&ProxyOptions::new("default/bookstore", 21).upstream(UPSTREAM)).await;
        wait_for_endpoint(&store, "default/bookwarehouse|3306").await;
        let warehouse = Self { mesh, app, sidecar, store };
        drop(warehouse.connected(&warehouse.store).await);
        Some(warehouse)
    }

    /// A connection through `sidecar` that has received the warehouse's greeting.
    pub(crate) async fn connected(&self, sidecar: &Envoy) -> TcpConnection {
        eventually("the warehouse to speak", async || {
            let mut connection = TcpConnection::connect(sidecar.socket(3306)).await?;
            anyhow::ensure!(connection.line().await? == "bookwarehouse");
            anyhow::Ok(connection)
        })
        .await
    }

    /// A caller that dials the mesh port directly with the valid certificate of `account`.
    pub(crate) async fn direct_caller(&self, account: &str, host: u8) -> DirectCaller<'_> {
        let folder = self.mesh.bootstrap(&ProxyOptions::new(account, host)).await;
        let control_plane = self.mesh.xds();
        let proxy_client = ProxyClient::connect(&folder, control_plane).await.unwrap();
        let certificate = proxy_client.service_certificate(account).await.unwrap();
        DirectCaller { warehouse: self, proxy_client, certificate }
    }
}

pub(crate) struct DirectCaller<'a> {
    pub(crate) warehouse: &'a TcpMesh,
    pub(crate) proxy_client: ProxyClient,
    pub(crate) certificate: (String, String),
}

impl DirectCaller<'_> {
    /// The warehouse's greeting.
    pub(crate) async fn greeting(&self) -> anyhow::Result<String> {
        self.dial().await?.line().await
    }

    /// A connection after the handshake, as far as the client knows.
    pub(crate) async fn dial(&self) -> anyhow::Result<TcpConnection<TlsStream<TcpStream>>> {
        let (chain, key) = &self.certificate;
        let (port, roots) = (self.warehouse.sidecar.socket(15003), &self.proxy_client.roots);
        let stream = tls::connect_mesh(port, SNI, &["ironmesh"], chain, key, roots).await?;
        Ok(TcpConnection::over(stream))
    }
}

/// Uses these connections for longer than the drain time.
pub(crate) async fn use_past_drain_time(connections: &mut [&mut TcpConnection]) {
    let begin = Instant::now();
    eventually("the drain time to pass", async || {
        for connection in &mut *connections {
            connection.exchange("still there").await.unwrap();
        }
        let passed = begin.elapsed().as_secs();
        if passed > u64::from(DRAIN_SECONDS) + 1 { Ok(()) } else { Err(passed) }
    })
    .await;
}

/// OSM 11.
#[tokio::test(flavor = "multi_thread")]
async fn denied_caller_of_server_first_protocol_receives_no_byte() {
    let Some(warehouse) = TcpMesh::open().await else { return };
    let store = warehouse.direct_caller("default/bookstore", 22).await;
    assert_eq!(store.greeting().await.unwrap(), "bookwarehouse", "the connection itself works");

    let thief = warehouse.direct_caller("default/bookthief", 12).await;
    let before = warehouse.app.connections();
    let failed = r"^listener\..*15003\.ssl\.fail_verify_san$";
    let rejected = warehouse.sidecar.sum(failed).await;
    for _ in 0..5 {
        thief.greeting().await.unwrap_err();
    }
    assert_eq!(warehouse.app.connections(), before, "the application saw a connection");
    assert_eq!(warehouse.sidecar.sum(failed).await, rejected + 5);
    // A certificate of the mesh that policy does not name.
    let folder = warehouse.mesh.bootstrap(&ProxyOptions::new("default/bookstore", 23)).await;
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let proxy = DirectCaller { certificate: (read("proxy.crt"), read("proxy.key")), ..thief };
    proxy.greeting().await.unwrap_err();
    // A certificate of another mesh, with the SPIFFE ID of the allowed caller.
    let foreign = TestAuthority::new().account(&"default/bookstore".parse().unwrap());
    let foreign =
        DirectCaller { certificate: (foreign.chain, foreign.key.expose().to_owned()), ..store };
    foreign.greeting().await.unwrap_err();
    assert_eq!(warehouse.app.connections(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_tcp_upstream_has_no_listener() {
    let Some(warehouse) = TcpMesh::open().await else { return };
    let options = ProxyOptions::new("default/bookthief", 12).upstream(UPSTREAM);
    let thief = warehouse.mesh.envoy(&options).await;
    let rejected = TcpConnection::connect(thief.socket(3306)).await.unwrap_err();
    assert!(format!("{rejected:#}").contains("refused"), "{rejected:#}");

    let both = ledger(&["bookstore", "bookthief"]);
    warehouse.mesh.write_policy("ledger.toml", &both);
    let mut connection = warehouse.connected(&thief).await;
    connection.exchange("now it may").await.unwrap();
    thief.assert_no_update_errors().await;
    warehouse.sidecar.assert_no_update_errors().await;
}

/// OSM 10. Of a proxy whose bootstrap has no runtime layer for withdrawals, a withdrawal ends the
/// connections of all callers.
#[tokio::test(flavor = "multi_thread")]
async fn added_caller_keeps_tcp_connections_and_withdrawal_ends_them() {
    let warehouse = TcpMesh::open_with(ProxyOptions::first_bootstrap).await;
    let Some(mut warehouse) = warehouse else { return };
    let options = ProxyOptions::new("default/bookkeeper", 13).upstream(UPSTREAM);
    let keeper = warehouse.mesh.envoy(&options).await;
    let mut old = warehouse.connected(&warehouse.store).await;
    let modified = "listener_manager.listener_modified";
    let before = warehouse.sidecar.stat(modified).await;

    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore", "bookkeeper"]));
    let mut kept = warehouse.connected(&keeper).await;
    assert_eq!(warehouse.sidecar.stat(modified).await, before, "the listener was touched");
    // Longer than the drain time, so that a connection that should end has ended.
    use_past_drain_time(&mut [&mut old, &mut kept]).await;

    // A withdrawal with a control-plane restart in between: the withdrawn caller's connections end,
    // and the others can reconnect.
    let keeper_dials = warehouse.direct_caller("default/bookkeeper", 14).await;
    assert_eq!(keeper_dials.greeting().await.unwrap(), "bookwarehouse");
    // No sidecar of its own ends this one: the warehouse's must.
    let mut past_sidecars = keeper_dials.dial().await.unwrap();
    assert_eq!(past_sidecars.line().await.unwrap(), "bookwarehouse");
    let certificate = keeper_dials.certificate.clone();
    let proxy_client = keeper_dials.proxy_client;
    warehouse.mesh.kill_control_plane().await;
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore"]));
    old.exchange("while it is away").await.unwrap();
    kept.exchange("while it is away").await.unwrap();
    warehouse.mesh.restart_control_plane().await;
    for connection in [&mut old, &mut kept] {
        eventually("the end of a connection", async || {
            connection.exchange("still there").await.err().ok_or("it is open")
        })
        .await;
    }
    eventually("the end of a connection", async || {
        past_sidecars.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    let keeper_dials = DirectCaller { warehouse: &warehouse, proxy_client, certificate };
    keeper_dials.greeting().await.unwrap_err();
    let mut again = warehouse.connected(&warehouse.store).await;
    // The withdrawal is applied once: another restart ends no connection.
    warehouse.mesh.restart_control_plane().await;
    use_past_drain_time(&mut [&mut again]).await;
    warehouse.sidecar.assert_no_update_errors().await;
    warehouse.store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_port_without_grants_has_no_filter_chain() {
    let Some(warehouse) = TcpMesh::open().await else { return };
    let store = warehouse.direct_caller("default/bookstore", 22).await;
    let mut old = warehouse.connected(&warehouse.store).await;
    warehouse.mesh.remove_policy("ledger.toml");
    eventually("the handshake to be rejected", async || {
        store.greeting().await.err().ok_or("the warehouse still speaks")
    })
    .await;
    eventually("the end of the connection", async || {
        old.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    // Back to the first policy.
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore"]));
    warehouse.connected(&warehouse.store).await.exchange("again").await.unwrap();
}

// A TCP port without grants, next to one of another account with a caller.
#[tokio::test(flavor = "multi_thread")]
async fn tcp_port_without_grants_does_not_block_other_ports() {
    let Some(programs) = Programs::find() else { return };
    let policy = r#"
[[service]]
name = "shelf"
ports = [{ name = "shelf", port = 7000, protocol = "tcp", target_port = 8080 }]

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "shelf"
destination = { name = "shelf" }
sources = [{ name = "bookstore" }]
rules = [{ kind = "TCPRoute", name = "all" }]
"#;
    let mesh = Mesh::start(&programs, &[("services.toml", SERVICES), ("shelf.toml", policy)]).await;
    let _app = Ledger::start("shelf", mesh.loopback().socket(31, 8080)).await;
    let both = ProxyOptions::new("default/bookwarehouse", 31).with_service("default/shelf");
    let both = mesh.envoy(&both).await;
    let store = ProxyOptions::new("default/bookstore", 21).upstream("default/shelf=7000");
    let store = mesh.envoy(&store.upstream(UPSTREAM)).await;
    eventually("the shelf to speak", async || {
        let mut connection = TcpConnection::connect(store.socket(7000)).await?;
        connection.line().await
    })
    .await;
    // The finding gives the reason for the other one.
    let proxies = mesh.proxies().await.to_string();
    assert!(
        proxies.contains("IM0407")
            && proxies.contains("no traffic target allows `default/bookstore`")
    );
    both.assert_no_update_errors().await;
}
