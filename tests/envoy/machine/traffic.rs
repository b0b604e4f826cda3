//! Traffic that agents report, beside real Envoys: it agrees with what the clients of the test have counted.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_tests::{
    App, Http1Connection, Ledger, Load, Mesh, Programs, REQUESTS_PER_FAULT, eventually, get_once,
};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::SHORT;
use super::joined::Machine;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]
health = { tcp = {}, interval = "1s", timeout = "1s" }

[[service]]
name = "ledger"
service_account = "store"
ports = [{ name = "sql", port = 15015, protocol = "tcp", target_port = 8071 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "open"
matches = [{ name = "open", path_regex = "/open.*" }]

[[tcp_route]]
name = "sql"
matches = { ports = [15015] }

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "open" }, { kind = "TCPRoute", name = "sql" }]
"#;

const UPSTREAMS: &str = r#"upstreams = ["default/store=14001", "default/ledger=15015"]"#;

/// A server with its applications, and a buyer.
struct Shop {
    mesh: Mesh,
    app: App,
    _ledger: Ledger,
    buyer: Machine,
    _server: Machine,
}

impl Shop {
    async fn start(programs: &Programs) -> Self {
        let mesh = Mesh::start(programs, &[("policy.toml", POLICY)]).await;
        let socket = |port| mesh.loopback().socket(21, port);
        let app = App::http1("store", socket(8080)).await;
        let ledger = Ledger::start("ledger", socket(8071)).await;
        let services = ["default/store", "default/ledger"];
        let server = Machine::start(&mesh, programs, 21, &services, ("", SHORT)).await;
        let services = ["default/buyer"];
        let buyer = Machine::start(&mesh, programs, 11, &services, (UPSTREAMS, SHORT)).await;
        let shop = Self { mesh, app, _ledger: ledger, buyer, _server: server };
        // From then on, each request gets the response of the server: its Envoy serves before it is an endpoint.
        eventually("the endpoints of the buyer", async || {
            let stats = shop.buyer.stats("store.14001.membership_healthy").await;
            if stats.values().any(|count| *count > 0) { Ok(()) } else { Err(format!("{stats:?}")) }
        })
        .await;
        eventually("the upstream of the buyer", async || {
            Http1Connection::connect(shop.buyer.socket(14001)).await.map(drop)
        })
        .await;
        shop
    }

    /// What operators see of a service port, as its callers count it or as its servers do.
    async fn row(&self, direction: &str, port: u16) -> Value {
        let view = self.mesh.admin_get("/v1/traffic").await;
        let rows = view["traffic"].as_array().unwrap();
        let is_wanted = |row: &&Value| row["direction"] == direction && row["port"] == port;
        let caller = if direction == "outbound" { "default/buyer".into() } else { Value::Null };
        let row = rows.iter().find(is_wanted).cloned().unwrap_or_default();
        assert!(row.is_null() || row["caller"] == caller, "{view:#}");
        row
    }

    /// Waits until numbers of a service port are as expected.
    async fn wait_for(&self, (direction, port): (&str, u16), expected: &[(&str, u64)]) -> Value {
        eventually("the traffic of a service port", async || {
            let row = self.row(direction, port).await;
            let is_shown = |(key, number): &(&str, u64)| row[*key] == *number;
            if expected.iter().all(is_shown) { Ok(row) } else { Err(format!("{row:#}")) }
        })
        .await
    }

    /// Sends requests that get this response.
    async fn send(&self, count: u64, path: &str, answer: &str) {
        for _ in 0..count {
            let headers = [("host", "store"), ("x-answer", answer)];
            let response = get_once(self.buyer.socket(14001), path, &headers).await.unwrap();
            let expected = if path == "/closed" { "403" } else { answer };
            assert_eq!(response.status.as_str(), expected, "{}", response.text());
        }
    }

    /// Sends requests at once, and holds their responses back for a time. Returns the bounds of how long they took.
    async fn send_slow(&self, count: u64, time: Duration) -> (Duration, Duration) {
        let hold = self.app.hold().await;
        let (before, begin) = (self.app.requests(), Instant::now());
        let mut requests = JoinSet::new();
        for _ in 0..count {
            let address = self.buyer.socket(14001);
            requests.spawn(async move { get_once(address, "/open", &[("host", "store")]).await });
        }
        eventually("the requests to arrive", async || {
            let arrived = self.app.requests() - before;
            if arrived == count { Ok(()) } else { Err(arrived) }
        })
        .await;
        let arrived = Instant::now();
        eventually("the time to pass", async || {
            if arrived.elapsed() >= time { Ok(()) } else { Err("not yet") }
        })
        .await;
        let least = arrived.elapsed();
        drop(hold);
        while let Some(response) = requests.join_next().await {
            assert_eq!(response.unwrap().unwrap().status, 200);
        }
        (least, begin.elapsed())
    }
}

const STORE: (&str, u16) = ("outbound", 14001);

#[tokio::test(flavor = "multi_thread")]
async fn reported_traffic_agrees_with_the_load() {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start(&programs).await;
    let load = Load::start(shop.buyer.socket(14001), "store", "/open").finish().await;
    load.assert_undisturbed();
    shop.send(7, "/open", "404").await;
    shop.send(5, "/open", "503").await;
    shop.send(3, "/open", "302").await;
    // The server's Envoy answers these: callers see them, and the application does not.
    shop.send(4, "/closed", "200").await;
    let connections = [shop.buyer.connect().await.unwrap(), shop.buyer.connect().await.unwrap()];
    let served = load.requests + 7 + 5 + 3;
    let answers = [("responses_2xx", load.requests), ("responses_3xx", 3), ("responses_5xx", 5)];
    let sums = BTreeMap::from([("requests", served + 4), ("responses_4xx", 7 + 4)]);
    let expected: Vec<_> = answers.into_iter().chain(sums).collect();
    shop.wait_for(STORE, &expected).await;
    let expected: Vec<_> =
        answers.into_iter().chain([("requests", served), ("responses_4xx", 7)]).collect();
    shop.wait_for(("inbound", 14001), &expected).await;
    let row = shop.wait_for(("outbound", 15015), &[("in_flight", 2)]).await;
    assert!(row["connections"].as_u64() >= Some(2) && row["requests"] == 0, "{row:#}");
    drop(connections);
    shop.wait_for(("outbound", 15015), &[("in_flight", 0)]).await;

    // Held requests are in flight, and are no requests yet.
    let hold = shop.app.hold().await;
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(shop.buyer.socket(14001)).await.unwrap();
        let request = b"GET /open HTTP/1.1\r\nhost: store\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        held.push(stream);
    }
    for direction in ["outbound", "inbound"] {
        let row = shop.wait_for((direction, 14001), &[("in_flight", 6)]).await;
        assert_eq!(row["responses_2xx"], load.requests, "{row:#}");
    }
    drop(hold);
    for mut stream in held {
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
    let answered = load.requests + 6;
    shop.wait_for(STORE, &[("in_flight", 0), ("responses_2xx", answered)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn latency_quantiles_are_within_the_stated_error() {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start(&programs).await;
    let fast = shop.send_slow(30, Duration::from_millis(60)).await;
    let slow = shop.send_slow(10, Duration::from_millis(700)).await;
    let is_within = |shown: &Value, (least, most): (Duration, Duration)| {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let shown = shown.as_f64().unwrap();
        // Of Envoy's whole milliseconds, the rest is omitted.
        milliseconds(least) * 0.95 - 1.0 <= shown && shown <= milliseconds(most) * 1.05 + 1.0
    };
    for direction in ["outbound", "inbound"] {
        eventually("the quantiles", async || {
            let row = shop.row(direction, 14001).await;
            let latency = &row["latency_ms"];
            let is_shown = row["requests"] == 40
                && latency.is_object()
                && is_within(&latency["p50"], fast)
                && [&latency["p90"], &latency["p99"]].iter().all(|shown| is_within(shown, slow));
            if is_shown { Ok(()) } else { Err(format!("{fast:?} {slow:?} {row:#}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_of_envoy_never_count_a_request_twice() {
    let Some(programs) = Programs::find() else { return };
    let mut shop = Shop::start(&programs).await;
    let load = Load::start(shop.buyer.socket(14001), "store", "/open");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    eventually("the first report", async || {
        let row = shop.row("outbound", 14001).await;
        if row.is_object() { Ok(()) } else { Err(row) }
    })
    .await;
    shop.buyer.signal_envoy(Signal::KILL).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    shop.buyer.wait_until_live().await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    shop.buyer.reload(&shop.mesh).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    // Counting goes on, and what was counted was sent.
    let mut sent = 0;
    eventually("further requests", async || {
        shop.send(1, "/open", "404").await;
        sent += 1;
        let row = shop.row("outbound", 14001).await;
        let number = |key: &str| row[key].as_u64().unwrap();
        let (requests, not_found) = (number("requests"), number("responses_4xx"));
        assert!(requests <= load.requests() + sent + 4 && not_found <= sent, "{row:#}");
        if not_found > 0 { Ok(()) } else { Err(format!("{row:#}")) }
    })
    .await;
    let report = load.finish().await;
    let row = shop.row("outbound", 14001).await;
    eprintln!("{} of {} requests were reported", row["requests"], report.requests + sent);
    assert!(row["requests"].as_u64() <= Some(report.requests + sent), "{row:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_waits_for_a_control_plane_that_is_away() {
    let Some(programs) = Programs::find() else { return };
    let mut shop = Shop::start(&programs).await;
    shop.send(10, "/open", "200").await;
    shop.wait_for(STORE, &[("requests", 10)]).await;
    // Reports of this time are repeated: the control plane reads both when it goes on.
    shop.mesh.freeze_control_plane();
    shop.send(20, "/open", "200").await;
    eventually("a failed report", async || {
        let log = fs_err::read_to_string(shop.buyer.path("agent.log")).unwrap();
        if log.contains("cannot report the health") { Ok(()) } else { Err(log) }
    })
    .await;
    shop.send(5, "/open", "404").await;
    shop.mesh.thaw_control_plane();
    shop.wait_for(STORE, &[("requests", 35), ("responses_4xx", 5)]).await;
    // A control plane that starts again knows nothing of before.
    shop.mesh.kill_control_plane().await;
    shop.send(30, "/open", "200").await;
    shop.mesh.launch_control_plane(&[]);
    shop.mesh.ready().await;
    shop.wait_for(STORE, &[("requests", 30)]).await;
}
