//! TCP: judged in the handshake, also where the server speaks first, and never after it.

use ironmesh_tests::xds::Imposter;
use ironmesh_tests::{Envoy, Ledger, Mesh, Programs, ProxyOptions, TcpConnection, eventually, tls};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::bookstore::endpoint_known;

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

/// The file `ledger.toml`: who may connect.
fn ledger(callers: &[&str]) -> String {
    let sources: Vec<_> = callers.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    format!(
        "[[traffic_target]]\nname = \"ledger\"\ndestination = {{ name = \"bookwarehouse\" }}\n\
         sources = [{}]\nrules = [{{ kind = \"TCPRoute\", name = \"ledger\" }}]\n",
        sources.join(", ")
    )
}

const UPSTREAM: &str = "default/bookwarehouse=3306";
const SNI: &str = "3306.bookwarehouse.default.mesh.internal";

/// How long the warehouse's Envoy lets go on what has no chain any more.
const DRAIN_SECONDS: u32 = 2;

/// The warehouse, its sidecar, and the store's.
struct Warehouse {
    mesh: Mesh,
    app: Ledger,
    sidecar: Envoy,
    store: Envoy,
}

impl Warehouse {
    /// Opens it; the store alone may connect, and can.
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [("services.toml", SERVICES), ("ledger.toml", &ledger(&["bookstore"]))];
        let mesh = Mesh::start(&programs, &policy).await;
        let app = Ledger::start("bookwarehouse", mesh.loopback().socket(31, 8080)).await;
        let options = ProxyOptions::new("default/bookwarehouse", 31).drain_seconds(DRAIN_SECONDS);
        let sidecar = mesh.envoy(&options).await;
        let store =
            mesh.envoy(&ProxyOptions::new("default/bookstore", 21).upstream(UPSTREAM)).await;
        endpoint_known(&store, "default/bookwarehouse|3306").await;
        let warehouse = Self { mesh, app, sidecar, store };
        drop(warehouse.connected(&warehouse.store).await);
        Some(warehouse)
    }

    /// A connection through `sidecar` on which the warehouse has spoken.
    async fn connected(&self, sidecar: &Envoy) -> TcpConnection {
        eventually("the warehouse to speak", async || {
            let mut connection = TcpConnection::connect(sidecar.socket(3306)).await?;
            anyhow::ensure!(connection.line().await? == "bookwarehouse");
            anyhow::Ok(connection)
        })
        .await
    }

    /// Somebody who dials the mesh port past any sidecar, with the true certificate of `account`.
    async fn stranger(&self, account: &str, host: u8) -> Stranger<'_> {
        let folder = self.mesh.bootstrap(&ProxyOptions::new(account, host)).await;
        let control_plane = self.mesh.xds();
        let imposter = Imposter::connect(&folder, control_plane).await.unwrap();
        let certificate = imposter.service_certificate(account).await.unwrap();
        Stranger { warehouse: self, imposter, certificate }
    }
}

struct Stranger<'a> {
    warehouse: &'a Warehouse,
    imposter: Imposter,
    certificate: (String, String),
}

impl Stranger<'_> {
    /// What the warehouse says to it, unasked.
    async fn hears(&self) -> anyhow::Result<String> {
        self.dials().await?.line().await
    }

    /// A connection whose handshake is done, as far as this side knows.
    async fn dials(&self) -> anyhow::Result<TcpConnection<TlsStream<TcpStream>>> {
        let (chain, key) = &self.certificate;
        let (port, roots) = (self.warehouse.sidecar.socket(15003), &self.imposter.roots);
        let stream = tls::connect_mesh(port, SNI, &["ironmesh"], chain, key, roots).await?;
        Ok(TcpConnection::over(stream))
    }
}

/// Uses these connections for longer than the drain time.
async fn stay_open(connections: &mut [&mut TcpConnection]) {
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

#[tokio::test(flavor = "multi_thread")]
async fn denied_caller_of_server_first_protocol_receives_no_byte() {
    let Some(warehouse) = Warehouse::open().await else { return };
    let store = warehouse.stranger("default/bookstore", 22).await;
    assert_eq!(store.hears().await.unwrap(), "bookwarehouse", "the way itself is good");

    let thief = warehouse.stranger("default/bookthief", 12).await;
    let before = warehouse.app.connections();
    let failed = r"^listener\..*15003\.ssl\.fail_verify_san$";
    let refused = warehouse.sidecar.sum(failed).await;
    for _ in 0..5 {
        thief.hears().await.unwrap_err();
    }
    assert_eq!(warehouse.app.connections(), before, "the application saw a connection");
    assert_eq!(warehouse.sidecar.sum(failed).await, refused + 5);
    // A certificate of the mesh that is nobody's in policy.
    let folder = warehouse.mesh.bootstrap(&ProxyOptions::new("default/bookstore", 23)).await;
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let proxy = Stranger { certificate: (read("proxy.crt"), read("proxy.key")), ..thief };
    proxy.hears().await.unwrap_err();
    assert_eq!(warehouse.app.connections(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_tcp_upstream_has_no_listener() {
    let Some(warehouse) = Warehouse::open().await else { return };
    let options = ProxyOptions::new("default/bookthief", 12).upstream(UPSTREAM);
    let thief = warehouse.mesh.envoy(&options).await;
    let refused = TcpConnection::connect(thief.socket(3306)).await.unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");

    let both = ledger(&["bookstore", "bookthief"]);
    warehouse.mesh.write_policy("ledger.toml", &both);
    let mut connection = warehouse.connected(&thief).await;
    connection.exchange("now it may").await.unwrap();
    thief.assert_calm().await;
    warehouse.sidecar.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn added_caller_keeps_tcp_connections_and_withdrawal_ends_them() {
    let Some(mut warehouse) = Warehouse::open().await else { return };
    let options = ProxyOptions::new("default/bookkeeper", 13).upstream(UPSTREAM);
    let keeper = warehouse.mesh.envoy(&options).await;
    let mut old = warehouse.connected(&warehouse.store).await;
    let modified = "listener_manager.listener_modified";
    let before = warehouse.sidecar.stat(modified).await;

    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore", "bookkeeper"]));
    let mut kept = warehouse.connected(&keeper).await;
    assert_eq!(warehouse.sidecar.stat(modified).await, before, "the listener was touched");
    // Longer than the drain time, so that a connection that was to be ended has ended.
    stay_open(&mut [&mut old, &mut kept]).await;

    // A withdrawal, and a restart of ours in between: what was let in is ended, and the others can
    // come in again.
    let keeper_dials = warehouse.stranger("default/bookkeeper", 14).await;
    assert_eq!(keeper_dials.hears().await.unwrap(), "bookwarehouse");
    // No sidecar of his own ends this one: it is the warehouse's that has to.
    let mut past_sidecars = keeper_dials.dials().await.unwrap();
    assert_eq!(past_sidecars.line().await.unwrap(), "bookwarehouse");
    let certificate = keeper_dials.certificate.clone();
    let imposter = keeper_dials.imposter;
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
    let keeper_dials = Stranger { warehouse: &warehouse, imposter, certificate };
    keeper_dials.hears().await.unwrap_err();
    let mut again = warehouse.connected(&warehouse.store).await;
    // The withdrawal is carried out once: another restart ends nothing.
    warehouse.mesh.restart_control_plane().await;
    stay_open(&mut [&mut again]).await;
    warehouse.sidecar.assert_calm().await;
    warehouse.store.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_port_without_grants_has_no_filter_chain() {
    let Some(warehouse) = Warehouse::open().await else { return };
    let store = warehouse.stranger("default/bookstore", 22).await;
    let mut old = warehouse.connected(&warehouse.store).await;
    warehouse.mesh.remove_policy("ledger.toml");
    eventually("the handshake to be refused", async || {
        store.hears().await.err().ok_or("the warehouse still speaks")
    })
    .await;
    eventually("the end of the connection", async || {
        old.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    // And back.
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore"]));
    warehouse.connected(&warehouse.store).await.exchange("again").await.unwrap();
}

// A service whose TCP port nobody may call, beside one of another account that is called.
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
    let both = ProxyOptions::new("default/bookwarehouse", 31).also("default/shelf");
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
    both.assert_calm().await;
}
