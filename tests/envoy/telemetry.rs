//! Telemetry: access logs and traces arrive, enabling them drains only what it must, and calls
//! survive a missing collector.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::Method;
use ironmesh_tests::collector::Span;
use ironmesh_tests::{
    App, Collector, Envoy, Http1Connection, Ledger, Load, Mesh, Programs, ProxyOptions,
    TcpConnection, eventually,
};
use serde_json::{Value, json};

use crate::bookstore::{ensure_status, wait_for_endpoint};

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [
  { name = "web", port = 80, protocol = "http2", target_port = 8080 },
  { name = "ledger", port = 3306, protocol = "tcp" },
]

# By the same sidecar.
[[service]]
name = "archive"
ports = [{ name = "journal", port = 3307, protocol = "tcp" }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }, { kind = "TCPRoute", name = "all" }]

[[traffic_target]]
name = "archive"
destination = { name = "archive" }
sources = [{ name = "buyer" }]
rules = [{ kind = "TCPRoute", name = "all" }]
"#;

const WEB: u16 = 8000;
const LEDGER: u16 = 3306;
const JOURNAL: u16 = 3307;

/// A store and an archive on the same sidecar, and a caller of both.
struct TelemetryMesh {
    mesh: Mesh,
    _apps: (App, Ledger, Ledger),
    store: Envoy,
    buyer: Envoy,
}

impl TelemetryMesh {
    /// Opens the mesh with this file `telemetry.toml`, given the collector's address.
    async fn open(telemetry: impl Fn(SocketAddr) -> String) -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
        let collector = collector_address(&mesh);
        mesh.write_policy("telemetry.toml", &telemetry(collector));
        let at = |port| mesh.loopback().socket(31, port);
        let apps = (
            App::http2("store", at(8080)).await,
            Ledger::start("store", at(3306)).await,
            Ledger::start("archive", at(3307)).await,
        );
        let store = ProxyOptions::new("default/store", 31)
            .with_service("default/archive")
            .access_log_dir(mesh.folder())
            .drain_seconds(2);
        let store = mesh.envoy(&store).await;
        let buyer = ProxyOptions::new("default/buyer", 51)
            .upstream("default/store:80=8000")
            .upstream("default/store:3306=3306")
            .upstream("default/archive:3307=3307")
            .drain_seconds(2);
        let buyer = mesh.envoy(&buyer).await;
        for port in ["store|80", "store|3306", "archive|3307"] {
            wait_for_endpoint(&buyer, &format!("default/{port}")).await;
        }
        Some(Self { mesh, _apps: apps, store, buyer })
    }

    /// Calls the store with these headers until it answers.
    async fn call(&self, path: &str, headers: &[(&str, &str)]) -> Value {
        let all: Vec<_> = [("host", "store")].into_iter().chain(headers.iter().copied()).collect();
        eventually("an answer", async || {
            let mut connection = Http1Connection::connect(self.buyer.socket(WEB)).await?;
            let response = connection.request(Method::GET, path, &all).await?;
            ensure_status(&response, 200)?;
            anyhow::Ok(response.json())
        })
        .await
    }

    async fn assert_no_update_errors(&self) {
        for envoy in [&self.store, &self.buyer] {
            envoy.assert_no_update_errors().await;
        }
    }
}

/// The address of a mesh's collector.
fn collector_address(mesh: &Mesh) -> SocketAddr {
    mesh.loopback().socket(61, 4317)
}

/// A connection to a ledger that has received its greeting.
async fn ledger(envoy: &Envoy, port: u16) -> TcpConnection {
    eventually("the ledger to speak", async || {
        let mut connection = TcpConnection::connect(envoy.socket(port)).await?;
        connection.line().await?;
        anyhow::Ok(connection)
    })
    .await
}

/// Telemetry that reports everything to a collector.
fn full_telemetry(name: &str, about: &str, collector: SocketAddr) -> String {
    let (host, port) = (collector.ip(), collector.port());
    format!(
        r#"
[[telemetry]]
name = "{name}"
{about}
[telemetry.access_log]
format = '{{"path": "%PATH(NQ)%", "status": "%RESPONSE_CODE%", "bytes": "%BYTES_RECEIVED%"}}'
[telemetry.access_log.sink]
open_telemetry = {{ host = "{host}", port = {port} }}
attributes = {{ caller = "%DOWNSTREAM_PEER_URI_SAN%", chain = "%FILTER_CHAIN_NAME%" }}
[telemetry.tracing]
open_telemetry = {{ host = "{host}", port = {port} }}
sampling_percent = 100
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sidecars_deliver_access_logs_and_spans() {
    let Some(setup) = TelemetryMesh::open(|at| full_telemetry("all", "scope = \"mesh\"", at)).await
    else {
        return;
    };
    let collector = Collector::start(collector_address(&setup.mesh)).await;
    let requested = setup.call("/books/1?secret=1", &[]).await;
    let traceparent = requested["headers"]["traceparent"].as_str().unwrap().to_owned();
    let trace = traceparent.split('-').nth(1).unwrap().to_owned();
    let mut connection = ledger(&setup.buyer, LEDGER).await;
    connection.exchange("one").await.unwrap();
    drop(connection);

    let spans = eventually("both spans", async || {
        let spans = collector.spans().into_iter().filter(|span| span.trace == trace);
        let spans: Vec<Span> = spans.collect();
        if spans.len() == 2 {
            Ok(spans)
        } else {
            Err(format!(
                "{:?} {:#?}",
                collector.spans(),
                setup.store.stats("telemetr|tracing").await
            ))
        }
    })
    .await;
    let of = |service: &str| spans.iter().find(|span| span.service == service).unwrap();
    let (client, server) = (of("buyer.default"), of("store.default"));
    assert_eq!((client.kind, server.kind), (3, 2));
    assert_eq!(server.parent, client.id);
    assert_eq!(client.parent, "");
    assert!(traceparent.contains(&server.id), "{traceparent}: {server:?}");

    let records = eventually("both records of the request and the connection", async || {
        let records = collector.records();
        let reported: BTreeSet<_> =
            records.iter().map(|one| (one.service.as_str(), one.body["status"] == "200")).collect();
        if reported.len() == 4 { Ok(records) } else { Err(format!("{records:#?}")) }
    })
    .await;
    let request =
        records.iter().find(|one| one.service == "store.default" && one.body["path"] == "/books/1");
    let request = request.unwrap();
    assert_eq!(request.attributes["caller"], "spiffe://mesh.internal/ns/default/sa/buyer");
    assert_eq!(request.attributes["chain"], "inbound|default/store|80");
    let connection = |one: &&ironmesh_tests::collector::Record| one.body["status"] == "0";
    let connections: Vec<_> = records.iter().filter(connection).collect();
    assert!(connections.iter().any(|one| one.body["bytes"] == "4"), "{connections:#?}");
    setup.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_access_log_applies_its_filter_and_default_fields() {
    // For all services: the buyer's bootstrap allows no folder, so only the store logs.
    let telemetry = "[[telemetry]]\nname = \"log\"\n[telemetry.access_log]\n\
                     sink = { file = \"store.log\" }\nfilter = { status_at_least = 201 }\n";
    let plain = telemetry.replace("filter =", "# filter =");
    let Some(setup) = TelemetryMesh::open(|_| telemetry.to_owned()).await else { return };
    let file = setup.mesh.folder().join("store.log");
    setup.call("/filtered", &[]).await;
    // The other policy file is active once its first call is logged.
    setup.mesh.write_policy("telemetry.toml", &plain);
    let lines = eventually("a line", async || {
        setup.call("/books/1?secret=1", &[("user-agent", "test")]).await;
        let text = fs_err::read_to_string(&file)?;
        anyhow::ensure!(!text.is_empty(), "nothing yet");
        anyhow::Ok(text)
    })
    .await;
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    for (key, value) in [
        ("method", json!("GET")),
        ("path", json!("/books/1")),
        ("response_code", json!(200)),
        ("user_agent", json!("test")),
        ("upstream_cluster", json!("default/store|80|local")),
        ("requested_server_name", json!("80.store.default.mesh.internal")),
    ] {
        assert_eq!(line[key], value, "{key} in {line:#}");
    }
    assert!(!lines.contains("filtered") && !lines.contains("secret"), "{lines}");
    let proxies = setup.mesh.proxies().await.to_string();
    assert_eq!(proxies.matches("IM0664").count(), 1, "{proxies}");
    setup.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_cannot_increase_trace_sampling() {
    let nothing = |at| full_telemetry("all", "scope = \"mesh\"", at).replace("= 100\n", "= 0\n");
    let Some(setup) = TelemetryMesh::open(nothing).await else { return };
    let collector = Collector::start(collector_address(&setup.mesh)).await;
    let forced = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{forced}-00f067aa0ba902b7-01");
    // The fourteenth digit of a request id means `forced` to Envoy.
    let id = ("x-request-id", "11111111-1111-a111-8111-111111111111");
    let claims = [
        ("x-envoy-force-trace", "1"),
        id,
        ("x-client-trace-id", "1"),
        ("traceparent", &*traceparent),
    ];
    let mut traces = BTreeSet::new();
    for claim in claims.iter().map(std::slice::from_ref).chain([&claims[..]]) {
        let requested = setup.call("/", claim).await;
        let trace =
            requested["headers"]["traceparent"].as_str().unwrap().split('-').nth(1).unwrap();
        traces.insert(trace.to_owned());
    }
    assert!(traces.contains(forced), "what came is passed on: {traces:?}");

    setup.mesh.write_policy(
        "telemetry.toml",
        &full_telemetry("all", "scope = \"mesh\"", collector_address(&setup.mesh)),
    );
    eventually("a span", async || {
        setup.call("/", &[]).await;
        if collector.spans().is_empty() { Err("none") } else { Ok(()) }
    })
    .await;
    let reported: Vec<_> =
        collector.spans().into_iter().filter(|span| traces.contains(&span.trace)).collect();
    assert!(reported.is_empty(), "{reported:#?}");
    setup.assert_no_update_errors().await;
}

/// The cost of enabling telemetry: only connections of the service's own chains drain. No request
/// is lost.
#[tokio::test(flavor = "multi_thread")]
async fn enabling_telemetry_drains_only_chains_of_its_service() {
    let Some(setup) = TelemetryMesh::open(|_| String::new()).await else { return };
    let collector = Collector::start(collector_address(&setup.mesh)).await;
    let mut journal = ledger(&setup.buyer, JOURNAL).await;
    let mut books = ledger(&setup.buyer, LEDGER).await;
    let load = Load::start(setup.buyer.socket(WEB), "store", "/");
    let at = collector_address(&setup.mesh);
    setup.mesh.write_policy("telemetry.toml", &full_telemetry("store", "service = \"store\"", at));
    eventually("records of the store", async || {
        let spans = collector.spans();
        if spans.iter().any(|span| span.service == "store.default") {
            Ok(())
        } else {
            Err(format!("{spans:?}"))
        }
    })
    .await;
    eventually("the drained connection to end", async || {
        books.exchange("one").await.err().ok_or("still open")
    })
    .await;
    journal.exchange("one").await.unwrap();
    load.finish().await.assert_undisturbed();
    assert!(setup.store.stat("listener_manager.listener_in_place_updated").await > 0);
    assert!(collector.spans().iter().all(|span| span.service == "store.default"));
    for envoy in [&setup.store, &setup.buyer] {
        assert_eq!(envoy.sum("upstream_rq_retry$").await, 0);
    }

    // The buyer's telemetry drains its own listeners: its applications reconnect and lose nothing.
    let load = Load::start(setup.buyer.socket(WEB), "store", "/");
    let both = full_telemetry("all", "scope = \"mesh\"", at);
    setup.mesh.write_policy("telemetry.toml", &both);
    eventually("records of the buyer", async || {
        let spans = collector.spans();
        if spans.iter().any(|span| span.service == "buyer.default") {
            Ok(())
        } else {
            Err(spans.len())
        }
    })
    .await;
    let report = load.finish().await;
    assert_eq!(report.failed, 0, "{:#?}", report.failures);
    assert!(report.reconnects > 0, "nothing was drained");
    setup.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_or_silent_collector_does_not_delay_calls() {
    let Some(setup) = TelemetryMesh::open(|at| full_telemetry("all", "scope = \"mesh\"", at)).await
    else {
        return;
    };
    setup.call("/", &[]).await;
    let load = Load::start(setup.buyer.socket(WEB), "store", "/");
    let load = load.with_stream(setup.buyer.socket(WEB), "store").await.unwrap();
    let load = load.with_connection(setup.buyer.socket(LEDGER)).await.unwrap();
    let at = collector_address(&setup.mesh);
    // Envoy's stat names have no colon.
    let stat = |name: &str| format!("cluster.telemetry|{}_{}.{name}", at.ip(), at.port());
    // First no collector; then one that accepts calls and never answers; then none again.
    eventually("attempts to report", async || {
        let failed = setup.store.stat(&stat("upstream_cx_connect_fail")).await;
        if failed > 0 { Ok(()) } else { Err(failed) }
    })
    .await;
    let silent = Collector::start_silent(at).await;
    eventually("calls without an answer", async || {
        let calls = silent.calls();
        if calls > 5 { Ok(()) } else { Err(calls) }
    })
    .await;
    load.wait_for_requests(1000).await;
    drop(silent);
    // A collector that returns receives data again.
    let collector =
        eventually("the address to be free", async || std::net::TcpListener::bind(at).map(drop));
    collector.await;
    let collector = Collector::start(at).await;
    eventually("records and spans", async || {
        let (records, spans) = (collector.records().len(), collector.spans().len());
        if records > 0 && spans > 0 { Ok(()) } else { Err(format!("{records} and {spans}")) }
    })
    .await;
    load.finish().await.assert_undisturbed();
    for envoy in [&setup.store, &setup.buyer] {
        assert_eq!(envoy.sum("default/store.*upstream_rq_retry$").await, 0);
        // The number of calls in flight is bounded.
        let under_way = envoy.stat(&stat("upstream_rq_active")).await;
        assert!(under_way <= 64, "{under_way}");
    }
    setup.assert_no_update_errors().await;
}
