//! One policy edit moves a proxy from one service to another, and its caller follows.

use ironmesh_tests::{
    App, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually, get_once,
};

use crate::bookstore::{ensure_status, wait_for_endpoint};

/// A store whose calls go to these backends.
fn policy(backends: &[&str]) -> String {
    let service = |name: &&str| {
        format!(
            "[[service]]\nname = \"{name}\"\nservice_account = \"store\"\n\
             ports = [{{ name = \"web\", port = 14001, protocol = \"http\", target_port = 8080 }}]\n"
        )
    };
    let services: String = backends.iter().map(service).collect();
    let backend = |name: &&str| format!("{{ service = \"{name}\", weight = 1 }}");
    let backends: Vec<_> = backends.iter().map(backend).collect();
    let backends = backends.join(", ");
    format!(
        r#"{services}
[[service]]
name = "store"
ports = [{{ name = "web", port = 14001, protocol = "http" }}]

[[service]]
name = "buyer"

[[traffic_split]]
name = "store"
service = "store"
backends = [{backends}]

[[http_route_group]]
name = "all"
matches = [{{ name = "all" }}]

[[traffic_target]]
name = "store"
destination = {{ name = "store" }}
sources = [{{ name = "buyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]
"#
    )
}

// The buyer calls the old service until the new one is served, and the proxy serves the old one
// until no caller is left. Neither waits for a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_switching_its_service_fails_no_request() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", &policy(&["stall", "shop"]))]).await;
    let _app = App::http1("app", mesh.loopback().socket(21, 8080)).await;
    let server = ProxyOptions::new("default/stall", 21).with_service("default/shop");
    let server = mesh.envoy(&server).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = mesh.envoy(&buyer).await;
    eventually("the buyer to be served", async || {
        ensure_status(&get_once(buyer.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    let load = Load::start(buyer.socket(14001), "store", "/");
    for (from, to) in [("stall", "shop"), ("shop", "stall"), ("stall", "shop")] {
        mesh.write_policy("policy.toml", &policy(&[to]));
        wait_for_endpoint(&buyer, &format!("default/{to}|14001")).await;
        let gone = format!(r"^cluster\.default/{from}\|14001.*\.membership_healthy$");
        for envoy in [&buyer, &server] {
            eventually(&format!("{from} to be removed"), async || {
                let left = envoy.stats(&gone).await;
                if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
            })
            .await;
        }
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }
    let report = load.finish().await;
    assert_eq!(report.failed, 0, "{:#?}", report.failures);
    // The log has these words for a change that only a timeout has ended.
    assert!(!mesh.log().contains("all the same"), "{}", mesh.log());
    for envoy in [&buyer, &server] {
        envoy.assert_no_update_errors().await;
    }
}
