//! A dead or frozen peer: callers notice within seconds, and only requests in flight fail.

use ironmesh_tests::{
    App, Envoy, Ledger, Load, LoadReport, Mesh, Programs, ProxyOptions, TcpConnection, eventually,
};

use crate::split_mesh::services;

/// The number of requests after the fault before the load is judged.
const REQUESTS: u64 = 2_000;

/// The number of requests between two checks of the load, so that a slow machine has time for all
/// of them.
const STEP: u64 = 100;

/// Two stores, each with its own Envoy, and a buyer.
struct TwoStoreMesh {
    _mesh: Mesh,
    buyer: Envoy,
    servers: Vec<Envoy>,
    _apps: Vec<App>,
    _ledgers: Vec<Ledger>,
}

impl TwoStoreMesh {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let services = services(&["store"]);
        let mesh = Mesh::start(&programs, &[("services.toml", &services)]).await;
        let (mut apps, mut ledgers, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for (host, name) in [(21, "one"), (22, "two")] {
            apps.push(App::http1(name, mesh.loopback().socket(host, 8080)).await);
            ledgers.push(Ledger::start(name, mesh.loopback().socket(host, 8090)).await);
            servers.push(mesh.envoy(&ProxyOptions::new("default/store", host)).await);
        }
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/store:14001=14001")
            .upstream("default/store:3306=3306");
        let buyer = mesh.envoy(&buyer).await;
        for cluster in ["default/store|14001", "default/store|3306"] {
            eventually(&format!("both endpoints of {cluster}"), async || {
                let name = format!("cluster.{cluster}.membership_healthy");
                let healthy = buyer.sum(&format!("^{}$", name.replace('|', r"\|"))).await;
                if healthy == 2 { Ok(()) } else { Err(healthy) }
            })
            .await;
        }
        Some(Self { _mesh: mesh, buyer, servers, _apps: apps, _ledgers: ledgers })
    }

    /// Starts load that has reached both stores.
    async fn load(&self) -> Load {
        let load = Load::start(self.buyer.socket(14001), "store", "/");
        wait_for_requests(&load, STEP).await;
        load
    }

    async fn ejected(&self) -> u64 {
        let name = "cluster.default/store|14001.outlier_detection.ejections_active";
        self.buyer.stat(name).await
    }

    /// The result of the load, once enough of it has met the fault and the endpoint is ejected.
    async fn outcome(&self, load: Load) -> LoadReport {
        let begin = load.requests();
        for step in 1..=REQUESTS / STEP {
            wait_for_requests(&load, begin + step * STEP).await;
        }
        eventually("the endpoint to be ejected", async || {
            let ejected = self.ejected().await;
            if ejected == 1 { Ok(()) } else { Err(ejected) }
        })
        .await;
        load.finish().await
    }
}

async fn wait_for_requests(load: &Load, count: u64) {
    eventually(&format!("{count} requests"), async || {
        let requests = load.requests();
        if requests >= count { Ok(()) } else { Err(requests) }
    })
    .await;
}

fn assert_at_most_one_percent_failed(report: &LoadReport) {
    assert!(report.requests >= REQUESTS, "{report:?}");
    assert!(report.failed * 100 <= report.requests, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_peer_fails_at_most_one_percent_of_requests() {
    let Some(mut stores) = TwoStoreMesh::open().await else { return };
    let load = stores.load().await;
    stores.servers.remove(0).kill().await;
    let report = stores.outcome(load).await;
    assert_at_most_one_percent_failed(&report);

    // A connection to the dead peer fails at once, and the other peer answers.
    for _ in 0..20 {
        let mut connection = TcpConnection::connect(stores.buyer.socket(3306)).await.unwrap();
        assert_eq!(connection.line().await.unwrap(), "two");
    }
    stores.buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_peer_fails_at_most_one_percent_of_requests() {
    let Some(stores) = TwoStoreMesh::open().await else { return };
    let load = stores.load().await;
    let [frozen, _] = &stores.servers[..] else { panic!("{}", stores.servers.len()) };
    frozen.freeze();
    let report = stores.outcome(load).await;
    assert_at_most_one_percent_failed(&report);
    let timeouts = r"^cluster\.default/store\|14001\.http2\.keepalive_timeout$";
    assert!(stores.buyer.sum(timeouts).await > 0, "no keepalive noticed it");
    frozen.thaw();
    stores.buyer.assert_no_update_errors().await;
}
