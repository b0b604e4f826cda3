//! Outlier detection: a failing endpoint gets no calls for a while.

use std::collections::BTreeMap;

use http::StatusCode;
use ironmesh_tests::{App, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, eventually};

use super::setting;
use crate::split_mesh::services;

/// A store on several machines, and a buyer.
struct OutlierMesh {
    _mesh: Mesh,
    buyer: Envoy,
    apps: Vec<App>,
    _servers: Vec<Envoy>,
}

/// The names of the machines' applications.
const MACHINES: [&str; 3] = ["one", "two", "three"];

impl OutlierMesh {
    async fn open(policy: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let services = services(&["store"]);
        let policy = [("services.toml", &*services), ("settings.toml", policy)];
        let mesh = Mesh::start(&programs, &policy).await;
        let (mut apps, mut servers) = (Vec::new(), Vec::new());
        for (host, name) in (21..).zip(MACHINES) {
            apps.push(App::http1(name, mesh.loopback().socket(host, 8080)).await);
            servers.push(mesh.envoy(&ProxyOptions::new("default/store", host)).await);
        }
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store:14001=14001");
        let buyer = mesh.envoy(&buyer).await;
        let stores = Self { _mesh: mesh, buyer, apps, _servers: servers };
        stores.wait_for(&MACHINES).await;
        Some(stores)
    }

    /// Thirty requests, by application and status.
    async fn answers(&self) -> BTreeMap<(String, u16), u32> {
        let mut connection = Http1Connection::connect(self.buyer.socket(14001)).await.unwrap();
        let mut answers = BTreeMap::new();
        for _ in 0..30 {
            let response = connection.get("/", "store").await.unwrap();
            let who = response.header("x-app").unwrap_or("nobody").to_owned();
            *answers.entry((who, response.status.as_u16())).or_default() += 1;
        }
        answers
    }

    /// Waits until exactly these applications answer with 200.
    async fn wait_for(&self, names: &[&str]) {
        let mut wanted: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 200)).collect();
        wanted.sort();
        eventually(&format!("{names:?} to answer"), async || {
            let answers = self.answers().await;
            anyhow::ensure!(answers.keys().cloned().collect::<Vec<_>>() == wanted, "{answers:?}");
            Ok(())
        })
        .await;
    }

    async fn ejected(&self) -> u64 {
        let name = "cluster.default/store|14001.outlier_detection.ejections_active";
        self.buyer.stat(name).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_endpoint_is_ejected_and_others_keep_serving() {
    let long =
        "outlier_detection = { consecutive_gateway_errors = 3, base_ejection_time = \"1h\" }";
    let Some(stores) = OutlierMesh::open(&setting(long)).await else { return };
    let load = Load::start(stores.buyer.socket(14001), "store", "/");
    let [one, two, three] = &stores.apps[..] else { panic!("{}", stores.apps.len()) };
    one.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    eventually("the first to be ejected", async || {
        let ejected = stores.ejected().await;
        anyhow::ensure!(ejected == 1, "{ejected}");
        Ok(())
    })
    .await;
    stores.wait_for(&["three", "two"]).await;
    let report = load.finish().await;
    let failed = report.by_status.get(&503).copied().unwrap_or_default();
    assert!(failed >= 3 && failed == report.failed && report.requests > failed, "{report:?}");

    // At most half of them: two of three would be more.
    two.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    let answers = stores.answers().await;
    let of = |name: &str, status| answers.get(&(name.to_owned(), status)).copied();
    assert!(of("two", 503) > Some(3) && of("three", 200) > Some(3), "{answers:?}");
    assert_eq!(stores.ejected().await, 1);

    // Errors other than gateway errors do not count.
    two.answer_with(StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(stores.answers().await.len(), 2);
    two.answer_with(StatusCode::OK);
    three.answer_with(StatusCode::OK);
    stores.buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fully_ejected_service_returns_503_until_ejection_ends() {
    let short = "[upstream_traffic_setting.outlier_detection]\nconsecutive_5xx = 2\n\
                 interval = \"100ms\"\nbase_ejection_time = \"5s\"\nmax_ejection_percent = 100\n";
    let Some(stores) = OutlierMesh::open(&setting(short)).await else { return };
    for app in &stores.apps {
        app.answer_with(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let nobody = BTreeMap::from([(("nobody".to_owned(), 503), 30)]);
    eventually("all to be ejected", async || {
        let answers = stores.answers().await;
        anyhow::ensure!(answers == nobody, "{answers:?}");
        Ok(())
    })
    .await;
    for app in &stores.apps {
        app.answer_with(StatusCode::OK);
    }
    stores.wait_for(&MACHINES).await;
    assert_eq!(stores.ejected().await, 0);
}
