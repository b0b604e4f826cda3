//! Localities: callers prefer near endpoints, and use others if none is near.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::StatusCode;
use ironmesh_tests::{App, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, eventually};

use super::setting;
use crate::split_mesh::services;

/// A store on machines in several localities, and buyers in some of them.
struct LocalityMesh {
    mesh: Mesh,
    apps: Vec<App>,
    _servers: Vec<Envoy>,
    buyers: BTreeMap<&'static str, Envoy>,
}

/// The localities of the machines; each application has the name of its locality.
const MACHINES: [&str; 4] = ["eu/1", "eu/2", "us/1", "ap/1"];

/// The localities of the buyers.
const BUYERS: [&str; 3] = ["eu/1", "us/9", ""];

impl LocalityMesh {
    async fn open(policy: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let services = services(&["store"]);
        let policy = [("services.toml", &*services), ("settings.toml", policy)];
        let mesh = Mesh::start(&programs, &policy).await;
        let (mut apps, mut servers, mut buyers) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (host, locality) in (21..).zip(MACHINES) {
            apps.push(App::http1(locality, mesh.loopback().socket(host, 8080)).await);
            let store = ProxyOptions::new("default/store", host).locality(locality);
            servers.push(mesh.envoy(&store).await);
        }
        for (host, locality) in (11..).zip(BUYERS) {
            let buyer =
                ProxyOptions::new("default/buyer", host).upstream("default/store:14001=14001");
            let buyer = if locality.is_empty() { buyer } else { buyer.locality(locality) };
            buyers.insert(locality, mesh.envoy(&buyer).await);
        }
        Some(Self { mesh, apps, _servers: servers, buyers })
    }

    /// The requests of the buyer in a locality, by application and status.
    async fn answers(&self, locality: &str, many: u32) -> BTreeMap<(String, u16), u32> {
        let buyer = self.buyers.get(locality).unwrap();
        let mut connection = Http1Connection::connect(buyer.socket(14001)).await.unwrap();
        let mut answers = BTreeMap::new();
        for _ in 0..many {
            let response = connection.get("/", "store").await.unwrap();
            let who = response.header("x-app").unwrap_or("nobody").to_owned();
            *answers.entry((who, response.status.as_u16())).or_default() += 1;
        }
        answers
    }

    /// Waits until exactly these applications answer the buyer in a locality with 200.
    async fn wait_for(&self, locality: &str, names: &[&str]) {
        let mut wanted: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 200)).collect();
        wanted.sort();
        eventually(&format!("{names:?} to answer `{locality}`"), async || {
            let answers = self.answers(locality, 30).await;
            anyhow::ensure!(answers.keys().cloned().collect::<Vec<_>>() == wanted, "{answers:?}");
            Ok(())
        })
        .await;
    }

    /// The buyer's upstream address for the store.
    fn socket(&self, locality: &str) -> SocketAddr {
        self.buyers.get(locality).unwrap().socket(14001)
    }

    /// Checks the load: each request got one of these statuses, and reached an application once.
    async fn assert_no_failures(&self, load: Load, statuses: &[StatusCode]) {
        load.finish().await.assert_answered_with(statuses);
        for buyer in self.buyers.values() {
            assert_eq!(buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
        }
        self.assert_no_update_errors().await;
    }

    async fn assert_no_update_errors(&self) {
        for buyer in self.buyers.values() {
            buyer.assert_no_update_errors().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_endpoints_are_preferred_and_failover_follows_order() {
    let near = "[upstream_traffic_setting.locality]\nprefer_local = \"zone\"\n\
                failover = [{ from = \"eu\", to = [\"ap\", \"us\"] }]\n";
    let ejecting = "outlier_detection = { consecutive_gateway_errors = 1, max_ejection_percent = 100, \
                    interval = \"100ms\", base_ejection_time = \"1h\" }\n";
    let Some(setup) = LocalityMesh::open("").await else { return };
    setup.wait_for("eu/1", &MACHINES).await;
    let load = Load::start(setup.socket("eu/1"), "store", "/");
    let other_load = Load::long_connections(setup.socket("us/9"), "store", "/");
    load.wait_for_status(StatusCode::OK).await;
    setup.mesh.write_policy("settings.toml", &setting(&format!("{ejecting}{near}")));
    setup.wait_for("eu/1", &["eu/1"]).await;
    setup.wait_for("us/9", &["us/1"]).await;
    // No endpoint is near to a buyer without a locality.
    setup.wait_for("", &MACHINES).await;

    // The zone, the region, and then the order of policy: each caller follows what it has seen
    // itself.
    let order = [("eu/1", "eu/2"), ("eu/2", "ap/1"), ("ap/1", "us/1")];
    for (gone, next) in order {
        let app = MACHINES.iter().position(|name| *name == gone).and_then(|n| setup.apps.get(n));
        // Envoy itself answers 503 without an endpoint.
        app.unwrap().answer_with(StatusCode::BAD_GATEWAY);
        setup.wait_for("eu/1", &[next]).await;
    }
    for app in &setup.apps {
        app.answer_with(StatusCode::OK);
    }
    // Another order changes nothing of the cluster: ejected endpoints stay ejected.
    let other = setting(&format!("{ejecting}locality.prefer_local = \"region\"\n"));
    setup.mesh.write_policy("settings.toml", &other);
    setup.wait_for("us/9", &["us/1"]).await;
    setup.wait_for("eu/1", &["us/1"]).await;
    // Without settings all are called; and the cluster without ejections is a new one.
    setup.mesh.write_policy("settings.toml", "");
    setup.wait_for("eu/1", &MACHINES).await;
    setup.wait_for("us/9", &MACHINES).await;
    // Only the applications' own errors before their ejection, and nothing else.
    setup.assert_no_failures(load, &[StatusCode::OK, StatusCode::BAD_GATEWAY]).await;
    setup.assert_no_failures(other_load, &[StatusCode::OK]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locality_weights_distribute_calls() {
    let shares = "[upstream_traffic_setting.locality]\nprefer_local = \"region\"\n\
                  [[upstream_traffic_setting.locality.distribute]]\nfrom = \"eu\"\n\
                  to = [{ locality = \"eu/1\", weight = 80 }, { locality = \"us\", weight = 20 }]\n";
    let Some(setup) = LocalityMesh::open("").await else { return };
    setup.wait_for("eu/1", &MACHINES).await;
    let load = Load::start(setup.socket("eu/1"), "store", "/");
    load.wait_for_status(StatusCode::OK).await;
    setup.mesh.write_policy("settings.toml", &setting(shares));
    setup.wait_for("eu/1", &["eu/1", "us/1"]).await;
    let answers = setup.answers("eu/1", 1000).await;
    let of = |name: &str| answers.get(&(name.to_owned(), 200)).copied().unwrap_or_default();
    assert!((700..=900).contains(&of("eu/1")) && of("eu/1") + of("us/1") == 1000, "{answers:?}");
    // Weights for callers of one locality do not apply to others.
    setup.wait_for("us/9", &["us/1"]).await;
    setup.wait_for("", &MACHINES).await;
    // A new share is a new order, and no new cluster.
    let warmed = "cluster_manager.cluster_modified";
    let buyer = setup.buyers.get("eu/1").unwrap();
    let before = buyer.stat(warmed).await;
    setup
        .mesh
        .write_policy("settings.toml", &setting(&shares.replace("80", "1").replace("20", "99")));
    eventually("the other shares", async || {
        let answers = setup.answers("eu/1", 1000).await;
        let us = answers.get(&("us/1".to_owned(), 200)).copied().unwrap_or_default();
        anyhow::ensure!((950..1000).contains(&us), "{answers:?}");
        Ok(())
    })
    .await;
    assert_eq!(buyer.stat(warmed).await, before);
    setup.mesh.write_policy("settings.toml", "");
    setup.wait_for("eu/1", &MACHINES).await;
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
}
