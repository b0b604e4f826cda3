//! Localities from Consul: calls stay near the caller, and move on, in order, as endpoints become
//! unhealthy or leave. No caller loses a request.

use ironmesh_tests::{
    App, Consul, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, eventually,
};
use serde_json::json;

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
endpoints = { consul = {} }

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "web" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[upstream_traffic_setting]]
name = "near"
service = "web"
[upstream_traffic_setting.locality]
prefer_local = "zone"
failover = [{ from = "eu", to = ["us", "ap"] }]
"#;

/// The machines: host, region and zone.
const MACHINES: [(u8, &str, &str); 4] =
    [(21, "eu", "1"), (22, "eu", "2"), (23, "us", "1"), (24, "ap", "1")];

struct LocalityMesh {
    consul: Consul,
    mesh: Mesh,
}

impl LocalityMesh {
    /// Registers the machine with this state of its check.
    async fn register(&self, host: u8, check: &str, status: &str) {
        let (_, region, zone) = MACHINES.into_iter().find(|(one, ..)| *one == host).unwrap();
        let (node, id) = (format!("node-{host}"), format!("web-{host}"));
        let registration = json!({
            "Node": node, "Address": self.mesh.loopback().host(host).to_string(),
            "NodeMeta": { "region": region, "zone": zone },
            "Service": { "ID": id, "Service": "web", "Port": 8080 },
            "Check": { "Node": node, "CheckID": check, "Name": check, "Status": status, "ServiceID": id }
        });
        self.consul.register_as(registration).await;
    }
}

/// Waits until only this machine answers.
async fn wait_for_answers(buyer: &Envoy, host: u8) {
    let name = host.to_string();
    eventually(&format!("{host} alone to answer"), async || {
        let mut connection = Http1Connection::connect(buyer.socket(14001)).await?;
        for _ in 0..30 {
            let response = connection.get("/", "web").await?;
            let who = response.header("x-app").map(str::to_owned);
            anyhow::ensure!(who.as_ref() == Some(&name), "{who:?} answers {}", response.status);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_endpoints_are_preferred_and_failover_fails_no_request() {
    let Some(consul) = Consul::dev().await else { return };
    let Some(programs) = Programs::find() else { return };
    let settings = format!(
        // Most endpoints become unhealthy on purpose, so the provider guard is disabled.
        "consul = {{ agents = [\"{}\"] }}\nendpoints = {{ keep_share = 0 }}",
        consul.url(0)
    );
    let mesh = Mesh::prepare(&settings, &programs, &[("policy.toml", POLICY)]);
    let mut setup = LocalityMesh { consul, mesh };
    for (host, ..) in MACHINES {
        setup.register(host, "works", "passing").await;
    }
    setup.mesh.restart_control_plane().await;
    let (mut apps, mut servers) = (Vec::new(), Vec::new());
    for (host, ..) in MACHINES {
        let address = setup.mesh.loopback().socket(host, 8080);
        apps.push(App::http1(&host.to_string(), address).await);
        servers.push(setup.mesh.envoy(&ProxyOptions::new("default/web", host)).await);
    }
    let buyer = |host, locality: &str| {
        ProxyOptions::new("default/buyer", host).upstream("default/web=14001").locality(locality)
    };
    let european = setup.mesh.envoy(&buyer(11, "eu/1")).await;
    let american = setup.mesh.envoy(&buyer(12, "us/7")).await;
    wait_for_answers(&european, 21).await;
    wait_for_answers(&american, 23).await;

    let loads = [&european, &american].map(|buyer| Load::start(buyer.socket(14001), "web", "/"));
    // The zone fails, the region, and then one locality after the other.
    for (gone, next) in [(21, 22), (22, 23), (23, 24)] {
        setup.register(gone, "works", "critical").await;
        wait_for_answers(&european, next).await;
    }
    // The others are equally far.
    wait_for_answers(&american, 24).await;
    // The nearest endpoint is called again once it is back.
    setup.register(22, "works", "passing").await;
    wait_for_answers(&european, 22).await;
    setup.register(23, "works", "passing").await;
    wait_for_answers(&american, 23).await;
    setup.register(21, "works", "passing").await;
    wait_for_answers(&european, 21).await;
    // A draining endpoint gets no calls either.
    setup.register(23, "_service_maintenance:web-23", "critical").await;
    eventually("the American to go elsewhere", async || {
        let mut connection = Http1Connection::connect(american.socket(14001)).await?;
        for _ in 0..30 {
            let response = connection.get("/", "web").await?;
            anyhow::ensure!(response.header("x-app") != Some("23"), "{}", response.status);
        }
        Ok(())
    })
    .await;
    wait_for_answers(&european, 21).await;
    for load in loads {
        load.finish().await.assert_undisturbed();
    }
    for one in [&european, &american] {
        one.assert_no_update_errors().await;
        assert_eq!(one.sum(r"^cluster\.default/web\|80\.upstream_rq_retry$").await, 0);
    }
}
