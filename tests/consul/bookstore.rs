//! A bookstore whose instances enroll a proxy and register with Consul, without policy edits.

use ironmesh_tests::{App, Consul, Envoy, Load, Mesh, Programs, ProxyOptions, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

const POLICY: &str = r#"
[[service]]
name = "bookstore"
# Consul knows at which of these ports its instances listen.
ports = [{ name = "web", port = 14001, protocol = "http", allowed_target_ports = ["8000-8999"] }]
endpoints = { consul = {} }

[[service]]
name = "bookbuyer"

[[http_route_group]]
name = "bookstore"
matches = [{ name = "buy", path_regex = "/books/.*", methods = ["GET"] }]

[[traffic_target]]
name = "buyers"
destination = { name = "bookstore" }
sources = [{ name = "bookbuyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "bookstore" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn consul_registration_adds_endpoints_without_policy_edit() {
    let Some(consul) = Consul::dev().await else { return };
    let Some(programs) = Programs::find() else { return };
    let settings = format!("consul = {{ agents = [\"{}\"], join_by_tag = true }}", consul.url(0));
    let mesh = Mesh::start_with(&settings, &programs, &[("policy.toml", POLICY)]).await;
    let mut store = ConsulBookstore::open(consul, mesh).await;
    // Two by their address, and one by the key of its proxy.
    store.open_instance(21, "bookstore", &json!({})).await;
    store.open_instance(22, "bookstore", &json!({})).await;
    let third = store.enroll(23).await;
    let behind = json!({ "Address": "192.0.2.3", "Meta": { "ironmesh-proxy": third } });
    store.register(23, "bookstore", &behind).await;
    for host in [21, 22, 23] {
        store.wait_for_status_of(host, "health_flags::healthy").await;
    }
    let load = Load::start(store.buyer.socket(14001), "bookstore", "/books/1");
    for host in [21, 22, 23] {
        store.wait_for_requests_to(host).await;
    }

    // A new instance needs no edit, whether it has the same Consul service or a tag of the mesh
    // service.
    store.open_instance(24, "bookstore", &json!({})).await;
    store
        .open_instance(25, "kiosk", &json!({ "Tags": ["ironmesh-service=default/bookstore"] }))
        .await;
    for host in [24, 25] {
        store.wait_for_status_of(host, "health_flags::healthy").await;
        store.wait_for_requests_to(host).await;
    }
    // A tag with a service that policy does not define has no effect.
    store.open_instance(26, "kiosk", &json!({ "Tags": ["ironmesh-service=default/kiosk"] })).await;

    // One instance flaps briefly.
    let started_at = Instant::now();
    store.deregister(24).await;
    store.wait_until_gone(24).await;
    let gone = started_at.elapsed();
    store.register(24, "bookstore", &json!({})).await;
    store.wait_for_status_of(24, "health_flags::healthy").await;
    let back = started_at.elapsed().saturating_sub(gone);
    eprintln!("a removal reached Envoy after {gone:?}, and its return after {back:?}");

    // Maintenance drains: no new requests, and none in flight are lost.
    store.agent("service/maintenance/22?enable=true").await;
    store.wait_for_status_of(22, "health_flags::/eds_status_draining").await;
    store.assert_no_requests(22, &load).await;
    store.agent("service/maintenance/22?enable=false").await;
    store.wait_for_status_of(22, "health_flags::healthy").await;
    store.wait_for_requests_to(22).await;

    // Warning has its own weight: here a tenth of the others'.
    store.wait_for_status_of(21, "weight::10").await;
    store.agent("check/warn/service:21").await;
    store.wait_for_status_of(21, "weight::1").await;
    let before = store.requests();
    load.wait_for_requests(1000).await;
    let after = store.requests();
    let of_all: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    let of_one = after[0] - before[0];
    // Its share is one in 41.
    assert!(of_one > 0 && of_one * 15 < of_all, "{of_one} of {of_all}");

    // Critical gets nothing.
    store.agent("check/fail/service:21").await;
    store.wait_for_status_of(21, "health_flags::/failed_eds_health").await;
    store.assert_no_requests(21, &load).await;
    store.agent("check/pass/service:21").await;
    store.wait_for_status_of(21, "health_flags::healthy").await;
    store.wait_for_requests_to(21).await;

    let report = load.finish().await;
    report.assert_undisturbed();
    let retries = store.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
    eprintln!("{} requests, none failed; upstream_rq_retry: {retries}", report.requests);
    assert_eq!(retries, 0);
    assert_eq!(store.apps[5].requests(), 0);
    store.buyer.assert_no_update_errors().await;
    store.mesh.stop().await;
}

struct ConsulBookstore {
    consul: Consul,
    mesh: Mesh,
    buyer: Envoy,
    /// The applications at hosts 21, 22 and so on.
    apps: Vec<App>,
    sidecars: Vec<Envoy>,
}

const FIRST: u8 = 21;

impl ConsulBookstore {
    async fn open(consul: Consul, mesh: Mesh) -> Self {
        let options =
            ProxyOptions::new("default/bookbuyer", 11).upstream("default/bookstore=14001");
        let buyer = mesh.envoy(&options).await;
        let mut apps = Vec::new();
        for host in FIRST..FIRST + 6 {
            apps.push(App::http1(&host.to_string(), mesh.loopback().socket(host, 8080)).await);
        }
        Self { consul, mesh, buyer, apps, sidecars: Vec::new() }
    }

    /// Enrolls a proxy for the application of this host; returns its id.
    async fn enroll(&mut self, host: u8) -> String {
        let proxy = ProxyOptions::new("default/bookstore", host);
        self.sidecars.push(self.mesh.envoy(&proxy).await);
        let address = self.mesh.loopback().host(host).to_string();
        let proxies = self.mesh.proxies().await;
        let matches = |proxy: &&Value| proxy.to_string().contains(&format!("\"{address}"));
        let found = proxies.as_array().unwrap().iter().find(matches).unwrap();
        found["id"].as_str().unwrap().to_owned()
    }

    /// Enrolls a proxy and registers its application with the machine's agent.
    async fn open_instance(&mut self, host: u8, service: &str, besides: &Value) {
        self.enroll(host).await;
        self.register(host, service, besides).await;
    }

    async fn register(&self, host: u8, service: &str, besides: &Value) {
        let mut registration = json!({
            "ID": host.to_string(), "Name": service, "Port": 8080,
            "Address": self.mesh.loopback().host(host),
            "Weights": { "Passing": 10, "Warning": 1 },
            "Check": { "TTL": "10m", "Status": "passing" },
        });
        registration.as_object_mut().unwrap().extend(besides.as_object().unwrap().clone());
        self.consul.put("agent/service/register", registration).await;
    }

    async fn deregister(&self, host: u8) {
        self.consul.put(&format!("agent/service/deregister/{host}"), Value::Null).await;
    }

    /// Sends a request to the agent.
    async fn agent(&self, path: &str) {
        self.consul.put(&format!("agent/{path}"), Value::Null).await;
    }

    /// Waits until the buyer's Envoy shows this for the instance.
    async fn wait_for_status_of(&self, host: u8, words: &str) {
        let line = format!("{}{words}", self.line(host));
        eventually(&line, async || {
            let text = self.buyer.admin_get("/clusters").await.text();
            if text.lines().any(|one| one == line) { Ok(()) } else { Err(of_store(&text)) }
        })
        .await;
    }

    /// Waits until the buyer's Envoy has no such instance.
    async fn wait_until_gone(&self, host: u8) {
        let line = self.line(host);
        eventually(&format!("the end of {line}"), async || {
            let text = self.buyer.admin_get("/clusters").await.text();
            if text.contains(&line) { Err(of_store(&text)) } else { Ok(()) }
        })
        .await;
    }

    fn line(&self, host: u8) -> String {
        format!("default/bookstore|14001::{}:15003::", self.mesh.loopback().host(host))
    }

    fn app(&self, host: u8) -> &App {
        &self.apps[usize::from(host - FIRST)]
    }

    /// The number of requests of each application.
    fn requests(&self) -> Vec<u64> {
        self.apps.iter().map(App::requests).collect()
    }

    /// Waits until the application of this host has received more requests.
    async fn wait_for_requests_to(&self, host: u8) {
        let before = self.app(host).requests();
        eventually(&format!("requests to {host}"), async || {
            match self.app(host).requests() - before {
                count if count > 10 => Ok(()),
                count => Err(count),
            }
        })
        .await;
    }

    /// Checks that the application of this host receives none of many requests.
    async fn assert_no_requests(&self, host: u8, load: &Load) {
        // Requests in flight.
        load.wait_for_requests(20).await;
        let before = self.app(host).requests();
        load.wait_for_requests(300).await;
        assert_eq!(self.app(host).requests(), before);
    }
}

fn of_store(text: &str) -> String {
    let says = |line: &&str| {
        line.starts_with("default/bookstore")
            && (line.contains("_flags") || line.contains("weight"))
    };
    text.lines().filter(says).collect::<Vec<_>>().join("\n")
}
