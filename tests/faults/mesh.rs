//! The mesh that the rows break: a buyer under load, and a store on two machines.
//!
//! It owns the load and the observations of a row. It breaks nothing by itself.

use ironmesh_tests::{
    App, Envoy, Load, LoadReport, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually,
    get_once,
};

/// Services and grants of the mesh: file `shop.toml`.
pub(crate) const POLICY: &str = r#"
[[service]]
name = "buyer"

[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The machines of the store.
pub(crate) const MACHINES: [u8; 2] = [21, 22];

pub(crate) struct FaultMesh {
    pub(crate) mesh: Mesh,
    pub(crate) buyer: Envoy,
    pub(crate) stores: [Envoy; 2],
    pub(crate) apps: [Option<App>; 2],
    load: Load,
}

/// The output of `ironmesh status`, and its exit code.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl FaultMesh {
    /// Opens the mesh; `None` without Envoy. Load runs until [`Self::close`], and none of it has
    /// failed so far.
    pub(crate) async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("shop.toml", POLICY)]).await;
        let mut apps = Vec::new();
        let mut stores = Vec::new();
        for host in MACHINES {
            let address = mesh.loopback().socket(host, 8080);
            apps.push(Some(App::http1(&host.to_string(), address).await));
            stores.push(mesh.envoy(&ProxyOptions::new("default/store", host)).await);
        }
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
        let buyer = mesh.envoy(&buyer).await;
        eventually("both machines to be called", async || {
            for app in apps.iter().flatten() {
                let before = app.requests();
                for _ in 0..4 {
                    get_once(buyer.socket(14001), "/", &[]).await?;
                }
                anyhow::ensure!(app.requests() > before, "{} is not called", app.address());
            }
            Ok(())
        })
        .await;
        let load = Load::start(buyer.socket(14001), "store", "/");
        let (stores, apps) = (stores.try_into().unwrap(), apps.try_into().unwrap());
        let setup = Self { mesh, buyer, stores, apps, load };
        setup.wait_until_healthy().await;
        Some(setup)
    }

    /// The current status.
    pub(crate) async fn status(&self) -> Status {
        let output = self.mesh.run(&["status"]).await;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        Status { code: output.status.code().unwrap_or(-1), text }
    }

    /// Waits until `status` exits with `code` and has all of `words`.
    pub(crate) async fn wait_for_status(&self, code: i32, words: &[&str]) -> Status {
        eventually(&format!("status to exit with {code} and print {words:?}"), async || {
            let status = self.status().await;
            let says_all = words.iter().all(|words| status.text.contains(words));
            if status.code == code && says_all { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Waits until status reports no error, and no request fails any more.
    pub(crate) async fn wait_until_healthy(&self) {
        self.wait_for_status(0, &[]).await;
        eventually("requests to pass", async || {
            let lost = self.failures_of(100).await;
            if lost == 0 { Ok(()) } else { Err(format!("{lost} of 100 failed")) }
        })
        .await;
    }

    /// The number of failures among at least this many further requests.
    pub(crate) async fn failures_of(&self, requests: u64) -> u64 {
        let before = self.load.failed();
        self.load.wait_for_requests(requests).await;
        self.load.failed() - before
    }

    /// Keeps the fault until enough requests have met it. Fails the test if a request fails while
    /// `status` reports a healthy mesh. Tests call it once the fault is detected
    /// ([`Self::wait_for_status`]). Prints the row, and returns the number of failed requests.
    pub(crate) async fn row(&self, fault: &str) -> u64 {
        let mut lost = 0;
        for _ in 0..WINDOWS {
            let of_window = self.failures_of(REQUESTS_PER_FAULT / WINDOWS).await;
            let status = self.status().await;
            assert!(of_window == 0 || status.code != 0, "{of_window} requests failed: {status:?}");
            lost += of_window;
        }
        let status = self.status().await;
        let first = status.text.lines().next().unwrap_or_default();
        eprintln!("| {fault} | {lost} of {REQUESTS_PER_FAULT} | {} | {first} |", status.code);
        lost
    }

    /// Ends the row. Returns the report of the whole load.
    pub(crate) async fn close(self) -> LoadReport {
        self.load.finish().await
    }
}

/// The number of comparisons of load and status in a row.
const WINDOWS: u64 = 5;
