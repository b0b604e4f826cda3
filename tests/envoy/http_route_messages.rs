//! Headers, rewrites, redirects, mirrors and caller overrides of HTTP routes. Each is set, changed
//! and removed under load.

mod headers;
mod mirrors;
mod overrides;
mod redirects;
mod rewrites;

use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, LongConnections, Mesh, Programs, ProxyOptions, Response,
    eventually, get_once,
};

use crate::bookstore::ensure_status;

/// A store that `buyer` may call for `/new/…`, and for any path as `gold`; and a mirror target.
const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "shadow"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8081 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "store"
matches = [
  { name = "new", path_regex = "/new(/|$)" },
  { name = "gold", headers = { x-tier = "gold" } },
  { name = "host", headers = { host = "books[.]example" } },
  { name = "search", path_regex = "/new/search" },
  { name = "all" },
]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["new", "gold", "host"] }]
"#;

/// The buyer may call the mirror target without limits.
const SHADOWED: &str = r#"
[[traffic_target]]
name = "shadow"
destination = { name = "shadow" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["all"] }]
"#;

struct MessageMesh {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    shadow: App,
    long_connections: LongConnections,
    /// The number of the store's requests and retries before the load.
    before_load: u64,
    tried_before: u64,
    /// The number of retries of named requests.
    named_retries: AtomicU64,
    /// The number of copies lost before the mirror target existed.
    lost_copies: u64,
}

/// The counters of sent copies, and of those that wait for a connection.
const COPIES: &str = "cluster.default/shadow|14001.upstream_rq_total";
const COPIES_AND_WAITING: &str =
    r"^cluster\.default/shadow\|14001\.upstream_rq_(?:total|pending_active)$";

impl MessageMesh {
    /// Opens the mesh without HTTP routes.
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [
            ("services.toml", SERVICES),
            ("targets.toml", SHADOWED),
            ("beside.toml", LongConnections::POLICY),
        ];
        let mesh = Mesh::start(&programs, &policy).await;
        let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let shadow = App::http1("shadow", mesh.loopback().socket(21, 8081)).await;
        let long_connections =
            LongConnections::start(|port| mesh.loopback().socket(21, port)).await;
        let server = ProxyOptions::new("default/store", 21).with_service("default/shadow");
        let server = mesh.envoy(&LongConnections::with_services(server)).await;
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/store=14001")
            .upstream("default/shadow=14002");
        let buyer = mesh.envoy(&LongConnections::with_upstreams(buyer)).await;
        for (port, path) in [(14001, "/new"), (14002, "/")] {
            eventually("both to answer", async || {
                ensure_status(&get_once(buyer.socket(port), path, &[]).await?, 200)
            })
            .await;
        }
        long_connections.wait_for(&buyer).await;
        let before_load = store.unnamed_requests();
        let tried_before = retries_of(&buyer).await;
        let lost_copies = buyer.stat(COPIES).await - shadow.requests();
        let named_retries = AtomicU64::default();
        Some(Self {
            mesh,
            buyer,
            server,
            store,
            shadow,
            long_connections,
            before_load,
            tried_before,
            named_retries,
            lost_copies,
        })
    }

    /// Starts load on the store through the upstream, with a stream and a connection.
    async fn load(&self, path: &str) -> Load {
        let load = Load::start(self.buyer.socket(14001), "store", path);
        self.long_connections.join(load, &self.buyer).await
    }

    /// Checks the load: each request got one of these statuses, and each 200 came from the store
    /// exactly once. No other request was retried.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    async fn assert_no_failures(&self, load: Load, statuses: &[StatusCode]) {
        let report = load.finish().await;
        let retries = retries_of(&self.buyer).await - self.tried_before;
        let meant = self.named_retries.load(Ordering::Relaxed);
        eprintln!(
            "{} requests in {:?}: {:?}; {} messages, {} lines; retries: {retries}, of the load {}",
            report.requests,
            report.duration,
            report.by_status,
            report.stream_messages,
            report.connection_lines,
            retries.wrapping_sub(meant)
        );
        report.assert_answered_with(statuses);
        self.long_connections.assert_uninterrupted(&report);
        assert_eq!(retries, meant);
        assert_eq!(
            self.store.unnamed_requests() - self.before_load,
            report.answers(StatusCode::OK),
            "tried again"
        );
        for envoy in [&self.buyer, &self.server] {
            envoy.assert_no_update_errors().await;
        }
    }

    /// Waits until all copies made so far have arrived. The buyer's sidecar makes them before the
    /// answer.
    async fn wait_for_copies(&self) {
        // A copy that moves from waiting to sent may be counted twice; the lowest reading counts
        // none twice.
        let mut made = u64::MAX;
        eventually("all copies to have arrived", async || {
            let (arrived, stats) = (
                self.shadow.requests() + self.lost_copies,
                self.buyer.stats(COPIES_AND_WAITING).await,
            );
            made = made.min(stats.values().sum());
            if arrived >= made { Ok(()) } else { Err(format!("{arrived} of {made}")) }
        })
        .await;
    }

    /// Sends this many requests with one name, waits for the expected copies and returns their
    /// number.
    async fn copies(&self, name: &str, count: u32, expected: u64) -> u64 {
        for _ in 0..count {
            ensure_status(&self.get("/old/1", &[("x-request-name", name)]).await, 200).unwrap();
        }
        assert_eq!(self.store.requests_named(name), u64::from(count));
        self.wait_for_copies().await;
        // A copy of the load may arrive first.
        eventually("these copies to have arrived", async || {
            match self.shadow.requests_named(name) {
                count if count >= expected => Ok(count),
                count => Err(count),
            }
        })
        .await
    }

    /// A named request through the upstream.
    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let named = headers.iter().any(|(name, _)| *name == "x-request-name");
        let name: &[_] = if named { &[] } else { &[("x-request-name", "one")] };
        let headers = [headers, name].concat();
        get_once(self.buyer.socket(14001), path, &headers).await.unwrap()
    }

    /// A request by `Host`.
    async fn get_by_host(&self, path: &str) -> Response {
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await.unwrap();
        let headers = [("host", "store:14001"), ("x-request-name", "one")];
        connection.request(Method::GET, path, &headers).await.unwrap()
    }

    /// The output of `policy explain` for a request.
    async fn explain(&self, path: &str) -> String {
        let arguments = ["policy", "explain", "--from", "buyer", "--to", "store", "--path", path];
        String::from_utf8(self.mesh.run(&arguments).await.stdout).unwrap()
    }

    fn write(&self, routes: &str) {
        self.mesh.write_policy("routes.toml", routes);
    }
}

/// The number of retries of an Envoy.
async fn retries_of(envoy: &Envoy) -> u64 {
    envoy.sum(r"^cluster\..*\.upstream_rq_retry$").await
}

/// An HTTP route of the store with these keys.
fn route(keys: &str) -> String {
    format!("[[http_route]]\nname = \"store\"\nservice = \"store\"\n{keys}\n")
}
