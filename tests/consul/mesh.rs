//! A mesh with Consul under load: three web servers, a ledger and a journal that are called all the
//! time, and a spare service that may vanish.

use std::time::Duration;

use ironmesh_tests::{
    App, Consul, Envoy, Ledger, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::host_watch::{HostWatch, host};

const POLICY: &str = r#"
[[service]]
name = "web"
service_account = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080, allowed_target_ports = ["9000-9100"] }]
endpoints = { consul = {} }

[[service]]
name = "ledger"
service_account = "shop"
ports = [{ name = "ledger", port = 14002, protocol = "grpc", target_port = 8081 }]
endpoints = { consul = {} }

[[service]]
name = "journal"
service_account = "shop"
ports = [{ name = "journal", port = 3306, protocol = "tcp", target_port = 8082 }]
endpoints = { consul = {} }

[[service]]
name = "spare"
service_account = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8083 }]
endpoints = { consul = {} }

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "buyers"
destination = { name = "shop" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }, { kind = "TCPRoute", name = "all" }]
"#;

/// The initial instances: id in Consul, service, machine and application port.
const INSTANCES: [(&str, &str, u8, u16); 6] = [
    ("a", "web", 21, 8080),
    ("b", "web", 22, 8080),
    (REMOVABLE, "web", 23, 9000),
    ("ledger", "ledger", 21, 8081),
    ("journal", "journal", 21, 8082),
    (SPARE, "spare", 23, 8083),
];

/// The web server that leaves and returns at another port. At the same one it would flap.
const REMOVABLE: &str = "c";
/// The only instance of its service.
const SPARE: &str = "spare";

/// The mesh, its load and its watch on hosts.
pub(crate) struct ConsulMesh {
    pub(crate) consul: Consul,
    pub(crate) mesh: Mesh,
    load: Load,
    /// The watch on the instances that never leave.
    always: HostWatch,
    buyer: Envoy,
    sidecars: [Envoy; 3],
    /// The current port of the removable instance.
    port: u16,
    apps: Vec<App>,
    _journal: Ledger,
}

impl ConsulMesh {
    /// Opens the mesh with these settings. `None` skips the test because a program is missing.
    pub(crate) async fn open(consul: Consul, settings: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let mut mesh = Mesh::prepare(settings, &programs, &[("policy.toml", POLICY)]);
        for (id, ..) in INSTANCES {
            consul.register_as(registration(&mesh, id)).await;
        }
        mesh.restart_control_plane().await;
        let at = |host, port| mesh.loopback().socket(host, port);
        let apps = vec![
            App::http1("a", at(21, 8080)).await,
            App::http1("b", at(22, 8080)).await,
            App::http1(REMOVABLE, at(23, 9000)).await,
            App::http2("ledger", at(21, 8081)).await,
            App::http1("spare", at(23, 8083)).await,
        ];
        let journal = Ledger::start("journal", at(21, 8082)).await;
        let web = |host| ProxyOptions::new("default/web", host);
        let first = web(21).with_service("default/ledger").with_service("default/journal");
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/ledger:14002=14002")
            .upstream("default/journal:3306=3306");
        let third = web(23).with_service("default/spare");
        let sidecars =
            [mesh.envoy(&first).await, mesh.envoy(&web(22)).await, mesh.envoy(&third).await];
        let buyer = mesh.envoy(&buyer).await;
        let hosts = |mesh: &Mesh| INSTANCES.map(|(id, ..)| line(mesh, id));
        eventually("the buyer to know everybody", async || {
            let text = buyer.admin_get("/clusters").await.text();
            let is_there = |host: &String| text.lines().any(|line| line == host);
            if hosts(&mesh).iter().all(is_there) { Ok(()) } else { Err(text) }
        })
        .await;
        let always = ["a", "b", "ledger", "journal"].map(|id| line(&mesh, id));
        let always = HostWatch::of(&buyer, always);
        let load = eventually("the load to begin", async || {
            let load = Load::start(buyer.socket(15080), "web", "/");
            let load = load.with_stream(buyer.socket(14002), "ledger").await?;
            load.with_connection(buyer.socket(3306)).await
        })
        .await;
        let port = 9000;
        Some(Self { consul, mesh, load, always, buyer, sidecars, port, apps, _journal: journal })
    }

    /// Injects a fault: `fault` waits until it is seen, and returns once it is over. All hosts stay
    /// present meanwhile, and later changes arrive.
    pub(crate) async fn assert_tolerated(
        &mut self,
        what: &str,
        fault: impl AsyncFnOnce(&mut Self),
    ) {
        let others = self.watch_hosts();
        fault(self).await;
        others.assert_complete(what).await;
        self.assert_follows_changes(what).await;
    }

    /// Watches the instances that a fault might remove.
    pub(crate) fn watch_hosts(&self) -> HostWatch {
        HostWatch::of(&self.buyer, [REMOVABLE, SPARE].map(|id| line(&self.mesh, id)))
    }

    /// A removal, an addition and a confirmed scale to zero arrive.
    pub(crate) async fn assert_follows_changes(&mut self, what: &str) {
        let started_at = Instant::now();
        self.consul.deregister(REMOVABLE).await;
        let removal = self.wait_for_instance(REMOVABLE, false, started_at).await;
        let started_at = Instant::now();
        self.move_instance().await;
        self.register(REMOVABLE).await;
        let addition = self.wait_for_instance(REMOVABLE, true, started_at).await;

        self.consul.deregister(SPARE).await;
        let mut started_at = Instant::now();
        eventually("the scale to zero to be accepted", async || {
            started_at = Instant::now();
            let output = self.mesh.run(&["endpoints", "accept", "default/spare"]).await;
            if output.status.success() {
                Ok(())
            } else {
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        })
        .await;
        let scale = self.wait_for_instance(SPARE, false, started_at).await;
        let started_at = Instant::now();
        self.register(SPARE).await;
        let from_zero = self.wait_for_instance(SPARE, true, started_at).await;
        eprintln!(
            "{what}: then a removal arrives after {removal:?}, an addition after {addition:?}, \
             a confirmed scale to zero after {scale:?}, and from zero after {from_zero:?}"
        );
    }

    /// Waits until the buyer's Envoy has an instance, or has it no more; returns the elapsed time.
    async fn wait_for_instance(&self, id: &str, is_there: bool, started_at: Instant) -> Duration {
        let host = line(&self.mesh, id);
        eventually(&format!("{id} to be there: {is_there}"), async || {
            let text = self.buyer.admin_get("/clusters").await.text();
            let found = text.lines().any(|line| line == host);
            if found == is_there {
                Ok(())
            } else {
                Err(self.mesh.readyz().await["findings"].to_string())
            }
        })
        .await;
        started_at.elapsed()
    }

    /// Waits for a finding with this code and these words.
    pub(crate) async fn wait_for_finding(&self, code: &str, words: &str) {
        eventually(&format!("{code}: {words}"), async || {
            let findings = self.mesh.readyz().await["findings"].clone();
            let matches = |finding: &Value| {
                let message = finding["message"].as_str().unwrap_or_default();
                finding["code"] == code && message.contains(words)
            };
            let all = findings.as_array().unwrap();
            if all.iter().any(matches) { Ok(()) } else { Err(findings.to_string()) }
        })
        .await;
    }

    /// Waits until no finding about Consul is left.
    pub(crate) async fn wait_until_healthy(&self) {
        eventually("nothing to be wrong", async || {
            let findings = self.mesh.readyz().await["findings"].clone();
            if findings.as_array().is_some_and(Vec::is_empty) {
                Ok(())
            } else {
                Err(findings.to_string())
            }
        })
        .await;
    }

    /// Waits until enough requests have met a fault.
    pub(crate) async fn wait_for_load(&self) {
        self.load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }

    /// Registers all instances with a Consul that has lost its memory.
    pub(crate) async fn register_all(&self) {
        for (id, ..) in INSTANCES {
            self.register(id).await;
        }
    }

    async fn register(&self, id: &str) {
        self.consul.register_as(self.registration(id)).await;
    }

    fn registration(&self, id: &str) -> Value {
        let mut registration_body = registration(&self.mesh, id);
        if id == REMOVABLE {
            registration_body["Service"]["Port"] = self.port.into();
        }
        registration_body
    }

    /// Moves the removable instance to another port.
    async fn move_instance(&mut self) {
        self.port += 1;
        let address = self.mesh.loopback().socket(23, self.port);
        self.apps.push(App::http1(REMOVABLE, address).await);
    }

    /// Consul's answer for an instance, with these keys added to `Service`.
    pub(crate) fn entry(&self, id: &str, besides: &Value) -> Value {
        let mut service = self.registration(id)["Service"].clone();
        let service_fields = service.as_object_mut().unwrap();
        service_fields.extend(besides.as_object().unwrap().clone());
        let node = json!({ "Node": format!("node-{id}"), "Address": "10.255.0.1" });
        json!({ "Node": node, "Service": service, "Checks": [] })
    }

    /// Fails the test unless all requests succeeded and all hosts stayed.
    pub(crate) async fn close(mut self) {
        self.wait_for_load().await;
        let report = self.load.finish().await;
        self.always.assert_complete("all the time").await;
        report.assert_undisturbed();
        assert!(report.stream_messages > 0 && report.connection_lines > 0, "{report:?}");
        let retries = self.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
        eprintln!(
            "{} requests, {} messages and {} lines in {:?}, none failed; upstream_rq_retry: {retries}",
            report.requests, report.stream_messages, report.connection_lines, report.duration
        );
        assert_eq!(retries, 0);
        for envoy in self.sidecars.iter().chain([&self.buyer]) {
            envoy.assert_no_update_errors().await;
        }
        self.mesh.stop().await;
    }
}

/// Envoy's line for a healthy instance.
fn line(mesh: &Mesh, id: &str) -> String {
    let (_, service, at, _) = *INSTANCES.iter().find(|(of, ..)| *of == id).unwrap();
    let port = match service {
        "ledger" => 14002,
        "journal" => 3306,
        _ => 80,
    };
    host(&format!("default/{service}|{port}"), mesh.loopback().host(at))
}

fn registration(mesh: &Mesh, id: &str) -> Value {
    let (_, service, at, port) = *INSTANCES.iter().find(|(of, ..)| *of == id).unwrap();
    json!({
        "Node": format!("node-{id}"), "Address": "10.255.0.1",
        "Service": { "ID": id, "Service": service, "Address": mesh.loopback().host(at), "Port": port }
    })
}
