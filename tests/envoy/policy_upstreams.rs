//! Upstreams in policy: a change opens or closes only its own local port of a running Envoy.

use std::net::TcpListener;

use ironmesh_tests::{
    App, Envoy, Load, Mesh, Programs, ProxyOptions, Response, eventually, get_once,
};
use tokio::net::TcpStream;

use crate::bookstore::ensure_status;

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "safe"
ports = [
  { name = "web", port = 80, protocol = "http", target_port = 8081 },
  { name = "other", port = 81, protocol = "http", target_port = 8082 },
]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[traffic_target]]
name = "safe"
destination = { name = "safe" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The file with the buyer's upstreams.
const BUYER: &str = "buyer.toml";

fn buyer(upstreams: &str) -> String {
    format!("[[service]]\nname = \"buyer\"\nupstreams = [{upstreams}]\n")
}

/// A mesh with a store and a safe, and a buyer with flags.
struct Shop {
    mesh: Mesh,
    buyer: Envoy,
    _servers: (Vec<App>, Vec<Envoy>),
}

impl Shop {
    async fn open(
        upstreams: &str,
        flag: &str,
        adapt: fn(ProxyOptions) -> ProxyOptions,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let policy = buyer(upstreams);
        let mesh = Mesh::start(&programs, &[("policy.toml", SERVICES), (BUYER, &policy)]).await;
        let apps = vec![
            App::http1("store", mesh.loopback().socket(21, 8080)).await,
            App::http1("safe", mesh.loopback().socket(31, 8081)).await,
        ];
        let mut servers = Vec::new();
        for (service, host) in [("default/store", 21), ("default/safe", 31)] {
            servers.push(mesh.envoy(&adapt(ProxyOptions::new(service, host))).await);
        }
        let options = ProxyOptions::new("default/buyer", 11).upstream(flag);
        let buyer = mesh.envoy(&adapt(options)).await;
        for service in ["store", "safe"] {
            eventually(&format!("the {service} to answer"), async || {
                let by_host = [("host", service)];
                ensure_status(&get_once(buyer.socket(15080), "/", &by_host).await?, 200)
            })
            .await;
        }
        Some(Self { mesh, buyer, _servers: (apps, servers) })
    }

    /// The first answer at a local port of the buyer, as soon as something listens there.
    async fn first_answer(&self, port: u16) -> Response {
        let address = self.buyer.socket(port);
        eventually(&format!("port {port} to open"), async || TcpStream::connect(address).await)
            .await;
        get_once(address, "/", &[]).await.unwrap()
    }

    /// Waits until nothing listens at a local port of the buyer.
    async fn closed(&self, port: u16) {
        let address = self.buyer.socket(port);
        eventually(&format!("port {port} to close"), async || {
            match TcpStream::connect(address).await {
                Ok(_) => Err("open"),
                Err(_) => Ok(()),
            }
        })
        .await;
    }

    async fn status(&self) -> String {
        let status = self.mesh.run(&["status"]).await;
        String::from_utf8_lossy(&status.stdout).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_upstream_in_policy_opens_and_closes_only_its_port() {
    assert_change_of_policy_concerns_one_port(|options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_upstream_in_policy_opens_and_closes_only_its_port() {
    assert_change_of_policy_concerns_one_port(ProxyOptions::sotw).await;
}

async fn assert_change_of_policy_concerns_one_port(adapt: fn(ProxyOptions) -> ProxyOptions) {
    let steady = r#"{ service = "safe", port = "web", local_port = 9002 }"#;
    let Some(shop) = Shop::open(steady, "default/store:80=14001", adapt).await else { return };
    let of_flag = Load::start(shop.buyer.socket(14001), "store", "/");
    let of_policy = Load::start(shop.buyer.socket(9002), "safe", "/");
    of_flag.wait_for_requests(50).await;
    of_policy.wait_for_requests(50).await;

    let added = format!("{steady}, {{ service = \"default/store\", local_port = 9001 }}");
    shop.mesh.write_policy(BUYER, &buyer(&added));
    let answer = shop.first_answer(9001).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-app")), (200, Some("store")));

    of_flag.wait_for_requests(50).await;
    of_policy.wait_for_requests(50).await;
    shop.mesh.write_policy(BUYER, &buyer(steady));
    shop.closed(9001).await;
    of_flag.finish().await.assert_undisturbed();
    of_policy.finish().await.assert_undisturbed();
    assert_eq!(shop.buyer.stat("listener_manager.listener_modified").await, 0);
    assert_eq!(shop.buyer.stat("listener_manager.listener_in_place_updated").await, 0);
    shop.buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_local_port_leads_where_policy_states_or_else_the_flag() {
    assert_policy_overrides_the_flag(|options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_local_port_leads_where_policy_states_or_else_the_flag() {
    assert_policy_overrides_the_flag(ProxyOptions::sotw).await;
}

async fn assert_policy_overrides_the_flag(adapt: fn(ProxyOptions) -> ProxyOptions) {
    let of_policy = r#"{ service = "safe", port = 80, local_port = 9001 }"#;
    let Some(shop) = Shop::open(of_policy, "default/store=9001", adapt).await else { return };
    let answer = shop.first_answer(9001).await;
    assert_eq!(answer.header("x-app"), Some("safe"));
    eventually("the finding", async || {
        let proxies = shop.mesh.proxies().await.to_string();
        let parts = ["IM0410", "local port 9001", "`default/safe:80=9001`", "buyer.toml"];
        if parts.iter().all(|part| proxies.contains(part)) { Ok(()) } else { Err(proxies) }
    })
    .await;

    let shown = shop.mesh.run(&["proxy", "show", "buyer-1"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let upstream = "9001 leads to default/safe:80, by policy of default/buyer (buyer.toml:3:";
    assert!(shown.contains(upstream), "{shown}");

    // The same port leads elsewhere, without a restart.
    for (upstreams, app) in [("", "store"), (of_policy, "safe")] {
        shop.mesh.write_policy(BUYER, &buyer(upstreams));
        eventually(&format!("port 9001 to lead to the {app}"), async || {
            let answer = get_once(shop.buyer.socket(9001), "/", &[]).await?;
            ensure_status(&answer, 200)?;
            anyhow::ensure!(answer.header("x-app") == Some(app), "{answer:?}");
            Ok(())
        })
        .await;
    }
    shop.buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_that_an_application_holds_is_explained_and_opens_when_free() {
    let Some(shop) = Shop::open("", "default/store=14001", |options| options).await else {
        return;
    };
    let holder = TcpListener::bind(shop.buyer.socket(9001)).unwrap();
    let load = Load::start(shop.buyer.socket(14001), "store", "/");
    load.wait_for_requests(50).await;
    shop.mesh.write_policy(
        BUYER,
        &buyer(
            r#"
  { service = "store", local_port = 9001 },
  { service = "safe", port = "web", local_port = 9002 },
"#,
        ),
    );
    assert_eq!(shop.first_answer(9002).await.header("x-app"), Some("safe"));
    eventually("the finding", async || {
        let status = shop.status().await;
        let port = shop.buyer.socket(9001).to_string();
        let parts = ["error[IM0413]", &port, "Address already in use", "buyer.toml:4", "ss -ltnp"];
        if parts.iter().all(|part| status.contains(part)) { Ok(()) } else { Err(status) }
    })
    .await;
    let report = load.finish().await;
    report.assert_undisturbed();

    drop(holder);
    eventually("the port to open", async || {
        let answer = get_once(shop.buyer.socket(9001), "/", &[]).await?;
        ensure_status(&answer, 200)
    })
    .await;
    eventually("the finding to end", async || {
        let status = shop.status().await;
        if status.contains("IM0413") { Err(status) } else { Ok(()) }
    })
    .await;
}
