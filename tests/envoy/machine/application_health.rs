//! Applications that fail beside a real Envoy whose agent probes them: their callers' endpoints follow.

use std::collections::BTreeMap;

use http::StatusCode;
use ironmesh_tests::{App, Load, Mesh, Programs, REQUESTS_PER_FAULT, eventually, get_once};
use serde_json::Value;

use super::SHORT;
use super::joined::Machine;
use crate::bookstore::ensure_status;
use crate::enrollment::text;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]
[service.health]
http = { path = "/healthz" }
interval = "1s"
timeout = "1s"
unhealthy_threshold = 2
healthy_threshold = 2

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

const UPSTREAMS: &str = r#"upstreams = ["default/store=14001"]"#;

/// The hosts of the servers, and that of the buyer.
const SERVERS: [u8; 2] = [21, 22];
const BUYER: u8 = 11;

/// Two servers and a buyer.
struct Shop {
    mesh: Mesh,
    servers: Vec<Machine>,
    buyer: Machine,
}

async fn app(mesh: &Mesh, host: u8) -> App {
    App::http1(&format!("store-{host}"), mesh.loopback().socket(host, 8080)).await
}

impl Shop {
    async fn start(programs: &Programs) -> Self {
        let mesh = Mesh::start(programs, &[("policy.toml", POLICY)]).await;
        let mut servers = Vec::new();
        for host in SERVERS {
            let services = ["default/store"];
            servers.push(Machine::start(&mesh, programs, host, &services, ("", SHORT)).await);
        }
        let services = ["default/buyer"];
        let buyer = Machine::start(&mesh, programs, BUYER, &services, (UPSTREAMS, SHORT)).await;
        Self { mesh, servers, buyer }
    }

    /// The health of each server's endpoint, and who probes it, as operators see it.
    async fn healths(&self) -> Vec<(String, Option<String>)> {
        let shown = self.mesh.run(&["endpoints", "default/store", "--output", "json"]).await;
        let shown: Value = serde_json::from_str(&text(&shown)).unwrap();
        let rows = shown["services"][0]["endpoints"].as_array().unwrap();
        let row = |row: &Value| {
            let source = row["health_source"].as_str().map(str::to_owned);
            let health = row["health"].as_str().unwrap().to_owned();
            (row["address"].as_str().unwrap().to_owned(), (health, source))
        };
        let by_address: BTreeMap<_, _> = rows.iter().map(row).collect();
        by_address.into_values().collect()
    }

    async fn wait_for(&self, healths: [&str; 2]) {
        eventually("the health of the applications", async || {
            let shown = self.healths().await;
            let is_equal = shown.iter().map(|(health, _)| &**health).eq(healths);
            if is_equal { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    }

    /// The status of the mesh, with its exit code.
    async fn status(&self) -> (Option<i32>, String) {
        let run = self.mesh.run(&["status"]).await;
        (run.status.code(), String::from_utf8_lossy(&run.stdout).into_owned())
    }

    /// Waits until the status has this text.
    async fn wait_for_status(&self, expected: &str) {
        eventually(expected, async || {
            let (_, status) = self.status().await;
            if status.contains(expected) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Waits until calls of the buyer have this status.
    async fn wait_for_answer(&self, status: u16) {
        eventually("the status of calls", async || {
            ensure_status(&get_once(self.buyer.socket(14001), "/", &[]).await?, status)
        })
        .await;
    }

    /// Waits until Envoy of the buyer has this many healthy hosts.
    async fn wait_for_hosts(&self, hosts: u64) {
        eventually("the endpoints of the buyer", async || {
            let stats = self.buyer.stats("store.14001.membership_healthy").await;
            if stats.values().any(|healthy| *healthy == hosts) {
                Ok(())
            } else {
                Err(format!("{stats:?}"))
            }
        })
        .await;
    }

    fn load(&self) -> Load {
        Load::start(self.buyer.socket(14001), "store", "/")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_application_leaves_its_callers_and_returns() {
    let Some(programs) = Programs::find() else { return };
    let mut shop = Shop::start(&programs).await;
    // No application listens yet: a slow start is unknown, and never unhealthy.
    eventually("a failed probe", async || {
        let status = shop.servers[0].agent_status(&shop.mesh).await;
        let probe = &status["probes"][0];
        let is_failed = probe["state"] == "unknown" && probe["last_error"].is_string();
        if is_failed { Ok(()) } else { Err(format!("{status:#}")) }
    })
    .await;
    assert!(shop.healths().await.iter().all(|(health, _)| health == "unknown"));
    let [first, second] = [app(&shop.mesh, 21).await, app(&shop.mesh, 22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    assert!(shop.healths().await.iter().all(|(_, source)| source.as_deref() == Some("agent")));
    shop.wait_for_hosts(2).await;

    // One answers errors: it leaves, and the others lose no request, nor does its return fail one.
    first.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    shop.wait_for_status("warning[IM0735]").await;
    let load = shop.load();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    first.answer_with(StatusCode::OK);
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
    let before = first.requests();
    eventually("calls of the one that is back", async || {
        if first.requests() > before + 20 { Ok(()) } else { Err(first.requests()) }
    })
    .await;
    load.finish().await.assert_undisturbed();

    // One hangs: it accepts, and never answers.
    let hold = second.hold().await;
    shop.wait_for(["healthy", "unhealthy"]).await;
    shop.wait_for_hosts(1).await;
    drop(hold);
    shop.wait_for(["healthy", "healthy"]).await;

    // All are killed: 503, and an error in the status, also after a restart of the control plane.
    drop((first, second));
    shop.wait_for(["unhealthy", "unhealthy"]).await;
    shop.wait_for_answer(503).await;
    shop.wait_for_status("error[IM0735]").await;
    shop.wait_for_status("error[IM0732]").await;
    assert_eq!(shop.status().await.0, Some(1));
    shop.mesh.restart_control_plane().await;
    shop.wait_for(["unhealthy", "unhealthy"]).await;
    let _back = [app(&shop.mesh, 21).await, app(&shop.mesh, 22).await];
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_answer(200).await;
    shop.wait_for_hosts(2).await;
}
