//! The bookstore: one name with two versions, a buyer and a thief.

use std::net::SocketAddr;

use ironmesh_config_language::{Document, load_documents};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, Response, eventually, get_once,
};

/// The running bookstore.
pub(crate) struct Bookstore {
    pub(crate) mesh: Mesh,
    pub(crate) buyer: Envoy,
    pub(crate) v1: Envoy,
    pub(crate) v2: Envoy,
    pub(crate) app_v1: App,
    pub(crate) app_v2: App,
    /// Changes the options of each proxy.
    adapt: fn(ProxyOptions) -> ProxyOptions,
}

/// The host name of the bookstore.
pub(crate) const HOST: &str = "bookstore.default.mesh.internal";
/// The bookstore's port, and the local port of the upstream of the buyer and the thief.
pub(crate) const PORT: u16 = 14001;

pub(crate) const SERVICES: &str = r#"
[[service]]
name = "bookstore"
ports = [{ name = "web", port = 14001, protocol = "http" }]

[[service]]
name = "bookstore-v1"
service_account = "bookstore"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "bookstore-v2"
service_account = "bookstore"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "bookbuyer"

[[service]]
name = "bookthief"

[[service]]
name = "bookwarehouse"
ports = [
  { name = "ledger", port = 14002, protocol = "grpc", target_port = 8080 },
  { name = "journal", port = 3306, protocol = "tcp", target_port = 8081 },
]
"#;

/// The thief may see the front page. Its sidecar therefore knows the store, and the store's own
/// sidecar has to deny the rest.
pub(crate) const THIEF: &str = r#"
[[http_route_group]]
name = "front"
[[http_route_group.matches]]
name = "home"
path_regex = "/$"
methods = ["GET"]

[[traffic_target]]
name = "thieves"
destination = { name = "bookstore" }
sources = [{ name = "bookthief" }]
rules = [{ kind = "HTTPRouteGroup", name = "front", matches = ["home"] }]
"#;

/// The file `buyers.toml`: the paths that the buyer may request.
pub(crate) fn buyers(path_regex: &str) -> String {
    format!(
        r#"
[[http_route_group]]
name = "bookstore"
[[http_route_group.matches]]
name = "buy"
path_regex = "{path_regex}"
methods = ["GET"]

[[traffic_target]]
name = "buyers"
destination = {{ name = "bookstore" }}
sources = [{{ name = "bookbuyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "bookstore", matches = ["buy"] }}]
"#
    )
}

/// The file `split.toml`: the weights of both versions.
pub(crate) fn split(v1: u32, v2: u32) -> String {
    format!(
        r#"
[[traffic_split]]
name = "bookstore"
service = "bookstore"
backends = [
  {{ service = "bookstore-v1", weight = {v1} }},
  {{ service = "bookstore-v2", weight = {v2} }},
]
"#
    )
}

impl Bookstore {
    /// Starts the bookstore with the split 90/10, and waits until the buyer reaches both versions.
    /// `None` skips the test because a program is missing.
    pub(crate) async fn open() -> Option<Self> {
        Self::open_with(&[], &[]).await
    }

    /// Starts it with Envoys of the state-of-the-world variant.
    pub(crate) async fn open_sotw() -> Option<Self> {
        Self::open_adapted(&[], &[], ProxyOptions::sotw).await
    }

    /// Starts it with further policy files, and upstreams of the buyer.
    pub(crate) async fn open_with(policy: &[(&str, &str)], upstreams: &[&str]) -> Option<Self> {
        Self::open_adapted(policy, upstreams, |options| options).await
    }

    /// Starts it with proxies that `adapt` has changed.
    pub(crate) async fn open_adapted(
        policy: &[(&str, &str)],
        upstreams: &[&str],
        adapt: fn(ProxyOptions) -> ProxyOptions,
    ) -> Option<Self> {
        Self::open_with_settings("", policy, upstreams, adapt).await
    }

    /// Starts it with these settings of the control plane.
    pub(crate) async fn open_with_settings(
        settings: &str,
        policy: &[(&str, &str)],
        upstreams: &[&str],
        adapt: fn(ProxyOptions) -> ProxyOptions,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let (buyers, split) = (buyers("/books/.*"), split(90, 10));
        let first = [
            ("services.toml", SERVICES),
            ("buyers.toml", &buyers),
            ("split.toml", &split),
            ("thief.toml", THIEF),
        ];
        let mesh = Mesh::start_with(settings, &programs, &[&first, policy].concat()).await;
        let app_v1 = App::http1("bookstore-v1", mesh.loopback().socket(21, 8080)).await;
        let app_v2 = App::http1("bookstore-v2", mesh.loopback().socket(22, 8080)).await;
        let v1 = mesh.envoy(&adapt(ProxyOptions::new("default/bookstore-v1", 21))).await;
        let v2 = mesh.envoy(&adapt(ProxyOptions::new("default/bookstore-v2", 22))).await;
        let mut buyer = ProxyOptions::new("default/bookbuyer", 11).upstream(UPSTREAM);
        for upstream in upstreams {
            buyer = buyer.upstream(upstream);
        }
        let buyer = mesh.envoy(&adapt(buyer)).await;
        for version in ["v1", "v2"] {
            wait_for_endpoint(&buyer, &format!("default/bookstore-{version}|{PORT}")).await;
        }
        let store = Self { mesh, buyer, v1, v2, app_v1, app_v2, adapt };
        eventually("the buyer to be served", async || {
            ensure_status(&store.buy("/books/1").await?, 200)
        })
        .await;
        Some(store)
    }

    /// Starts the thief's sidecar, and waits until it may see the front page.
    pub(crate) async fn thief(&self) -> Envoy {
        let options = ProxyOptions::new("default/bookthief", 12).upstream(UPSTREAM);
        let thief = self.mesh.envoy(&(self.adapt)(options)).await;
        eventually("the thief to see the front page", async || {
            ensure_status(&get_once(thief.socket(PORT), "/", &[]).await?, 200)
        })
        .await;
        thief
    }

    /// The address of the buyer's upstream.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.buyer.socket(PORT)
    }

    /// One request by the buyer.
    pub(crate) async fn buy(&self, path: &str) -> anyhow::Result<Response> {
        get_once(self.local_address(), path, &[]).await
    }

    /// The number of `count` requests by the buyer that reached the second version. None may fail.
    pub(crate) async fn served_by_v2(&self, count: u64) -> u64 {
        let mut connection = Http1Connection::connect(self.local_address()).await.unwrap();
        let before = (self.app_v1.requests(), self.app_v2.requests());
        let mut second = 0;
        for _ in 0..count {
            let response = connection.get("/books/1", HOST).await.unwrap();
            assert_eq!(response.status, 200, "{}", response.text());
            second += u64::from(response.header("x-app") == Some("bookstore-v2"));
        }
        let (v1, v2) = (self.app_v1.requests() - before.0, self.app_v2.requests() - before.1);
        assert_eq!((v1 + v2, v2), (count, second), "the applications saw the same requests");
        second
    }

    /// The number of requests that both applications have received.
    pub(crate) fn requests_seen(&self) -> u64 {
        self.app_v1.requests() + self.app_v2.requests()
    }

    /// The number of requests that the store's sidecars have denied.
    pub(crate) async fn denied_by_store(&self) -> u64 {
        self.v1.sum(DENIED).await + self.v2.sum(DENIED).await
    }

    /// Fails the test if any Envoy has NACKed an update or timed out for one.
    pub(crate) async fn assert_no_update_errors(&self) {
        for envoy in [&self.buyer, &self.v1, &self.v2] {
            envoy.assert_no_update_errors().await;
        }
    }
}

/// Waits until `envoy` has an endpoint in `cluster`.
pub(crate) async fn wait_for_endpoint(envoy: &Envoy, cluster: &str) {
    let stat = format!("cluster.{cluster}.membership_healthy");
    eventually(&format!("an endpoint of {cluster}"), async || {
        let stats = envoy.stats(r"^cluster\..*\.membership_healthy$").await;
        if stats.get(&stat).is_some_and(|count| *count > 0) {
            Ok(())
        } else {
            Err(format!("{stats:?}"))
        }
    })
    .await;
}

/// Returns the whole response as an error unless it has this status.
pub(crate) fn ensure_status(response: &Response, status: u16) -> anyhow::Result<()> {
    anyhow::ensure!(response.status == status, "{}: {}", response.status, response.text());
    Ok(())
}

/// A mistake in these files would otherwise show as a fault of the mesh, half a minute later.
#[test]
fn bookstore_policy_has_only_expected_findings() {
    let (buyers, split) = (buyers("/books/.*"), split(90, 10));
    let all = [SERVICES, &buyers, &split, THIEF, crate::restart::WAREHOUSE];
    let without_buyers = [SERVICES, &split, THIEF];
    // Without `WAREHOUSE`, no policy grants access to the warehouse.
    for (texts, codes) in [(&all[..], &[][..]), (&without_buyers, &["IM0308"])] {
        let documents = texts.iter().map(|text| Document::new("policy.toml", *text));
        let loaded = load_documents(documents);
        let found: Vec<_> = loaded.findings.iter().map(|one| one.code.to_string()).collect();
        assert_eq!(found, codes, "{:#?}", loaded.findings);
    }
}

const UPSTREAM: &str = "default/bookstore=14001";
const DENIED: &str = r"^http\..*\.rbac\.denied$";
