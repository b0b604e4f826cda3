//! A shop with two servers, whose applications are probed by their agents or by their Envoys, and a buyer.

use std::collections::BTreeMap;

use ironmesh_tests::{App, Envoy, Load, Mesh, Programs, ProxyOptions, eventually, get_once};
use serde_json::Value;

use crate::bookstore::ensure_status;
use crate::enrollment::text;
use crate::machine::SHORT;
use crate::machine::joined::Machine;

/// The policy, with the health check of the service `store` in the middle.
const SERVICE: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]
[service.health]
"#;
const REST: &str = r#"
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

/// The probe of most tests.
pub(super) const HTTP: &str = "http = { path = \"/healthz\" }";

/// The hosts of the servers, and that of the buyer.
pub(super) const SERVERS: [u8; 2] = [21, 22];
const BUYER: u8 = 11;

/// What probes the applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The agent of each machine.
    Agent,
    /// Each Envoy, which runs by hand.
    Envoy,
}

impl Kind {
    fn source(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Envoy => "envoy",
        }
    }
}

/// Two servers and a buyer.
pub(super) struct Shop {
    pub(super) mesh: Mesh,
    pub(super) kind: Kind,
    machines: Vec<Machine>,
    _envoys: Vec<Envoy>,
    pub(super) buyer: Envoy,
}

/// An endpoint of the store, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) health: String,
    pub(super) source: Option<String>,
    pub(super) reason: Option<String>,
}

/// The policy with this probe.
pub(super) fn policy(probe: &str) -> String {
    let times =
        "interval = \"1s\"\ntimeout = \"1s\"\nunhealthy_threshold = 2\nhealthy_threshold = 2\n";
    format!("{SERVICE}{probe}\n{times}{REST}")
}

async fn buyer(mesh: &Mesh) -> Envoy {
    mesh.envoy(&ProxyOptions::new("default/buyer", BUYER).upstream("default/store=14001")).await
}

impl Shop {
    /// Starts the shop. The agents have the settings of `[commands]`.
    pub(super) async fn start(programs: &Programs, kind: Kind, probe: &str) -> Self {
        let mesh = Mesh::start(programs, &[("policy.toml", &policy(probe))]).await;
        let (mut machines, mut envoys) = (Vec::new(), Vec::new());
        for host in SERVERS {
            match kind {
                Kind::Agent => {
                    let commands = format!("{SHORT}\n[commands]\npass = [\"/bin/true\"]");
                    let settings = ("", commands.as_str());
                    let services = ["default/store"];
                    machines.push(Machine::start(&mesh, programs, host, &services, settings).await);
                }
                Kind::Envoy => {
                    envoys.push(mesh.envoy(&ProxyOptions::new("default/store", host)).await);
                }
            }
        }
        let buyer = buyer(&mesh).await;
        Self { mesh, kind, machines, _envoys: envoys, buyer }
    }

    /// Starts a shop with one server, whose Envoy has a bootstrap from before there was health discovery.
    pub(super) async fn start_with_first_bootstrap(programs: &Programs) -> Self {
        let mesh = Mesh::start(programs, &[("policy.toml", &policy(HTTP))]).await;
        let [first, _] = SERVERS;
        let server = ProxyOptions::new("default/store", first).first_bootstrap();
        let envoys = vec![mesh.envoy(&server).await];
        let buyer = buyer(&mesh).await;
        Self { mesh, kind: Kind::Envoy, machines: Vec::new(), _envoys: envoys, buyer }
    }

    /// Starts the application of a server.
    pub(super) async fn app(&self, host: u8) -> App {
        App::http1(&format!("store-{host}"), self.mesh.loopback().socket(host, 8080)).await
    }

    /// The endpoints of the servers, in their order.
    pub(super) async fn rows(&self) -> Vec<Row> {
        let shown = self.mesh.run(&["endpoints", "default/store", "--output", "json"]).await;
        let shown: Value = serde_json::from_str(&text(&shown)).unwrap();
        let rows = shown["services"][0]["endpoints"].as_array().unwrap();
        let row = |row: &Value| {
            let text = |field: &str| row[field].as_str().map(str::to_owned);
            let health = text("health").unwrap();
            let shown = Row { health, source: text("health_source"), reason: text("reason") };
            (text("address").unwrap(), shown)
        };
        let by_address: BTreeMap<_, _> = rows.iter().map(row).collect();
        by_address.into_values().collect()
    }

    /// Waits until the endpoints have this health, and asserts who says so.
    pub(super) async fn wait_for(&self, healths: [&str; 2]) {
        let rows = eventually("the health of the applications", async || {
            let rows = self.rows().await;
            let is_equal = rows.iter().map(|row| &*row.health).eq(healths);
            if is_equal { Ok(rows) } else { Err(format!("{rows:?}")) }
        })
        .await;
        for row in rows.iter().filter(|row| row.health != "unknown") {
            assert_eq!(row.source.as_deref(), Some(self.kind.source()));
        }
    }

    /// Waits until each application is unknown for this reason.
    pub(super) async fn wait_for_unknown(&self, reason: &str) {
        eventually("unknown health with a reason", async || {
            let rows = self.rows().await;
            let is_unknown = |row: &Row| {
                row.health == "unknown"
                    && row.reason.as_ref().is_some_and(|shown| shown.contains(reason))
            };
            if rows.iter().all(is_unknown) { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .await;
    }

    /// The status of the mesh, with its exit code.
    pub(super) async fn status(&self) -> (Option<i32>, String) {
        let run = self.mesh.run(&["status"]).await;
        (run.status.code(), String::from_utf8_lossy(&run.stdout).into_owned())
    }

    /// Waits until the status has this text.
    pub(super) async fn wait_for_status(&self, expected: &str) {
        eventually(expected, async || {
            let (_, status) = self.status().await;
            if status.contains(expected) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// Waits until calls of the buyer have this status.
    pub(super) async fn wait_for_answer(&self, status: u16) {
        eventually("the status of calls", async || {
            ensure_status(&get_once(self.buyer.socket(14001), "/", &[]).await?, status)
        })
        .await;
    }

    /// The healthy endpoints of the store at the buyer.
    pub(super) async fn hosts(&self) -> u64 {
        self.buyer.stat("cluster.default/store|14001.membership_healthy").await
    }

    /// Waits until the buyer has this many healthy endpoints.
    pub(super) async fn wait_for_hosts(&self, hosts: u64) {
        eventually("the endpoints of the buyer", async || {
            let shown = self.hosts().await;
            if shown == hosts { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    pub(super) fn load(&self) -> Load {
        Load::start(self.buyer.socket(14001), "store", "/")
    }

    /// The revision of the store, which each write raises.
    pub(super) fn store_writes(&self) -> u64 {
        let mark = fs_err::read_to_string(self.mesh.folder().join("state/high-water")).unwrap();
        let (_, rest) = mark.split_once("\"revision\":").unwrap();
        let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    /// Waits until the agent of the first server has a result of a probe of this kind.
    pub(super) async fn wait_for_probe(&self, kind: &str) {
        eventually("a result of the probe", async || {
            let status = self.machines[0].agent_status(&self.mesh).await;
            let probe = &status["probes"][0];
            let has_passed = probe["kind"] == kind && probe["state"] == "healthy";
            if has_passed { Ok(()) } else { Err(format!("{status:#}")) }
        })
        .await;
    }
}
