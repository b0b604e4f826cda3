//! The sources of endpoints, and a listener that one proxy NACKs.

use std::net::TcpListener;

use ironmesh_tests::{App, Mesh, Programs, ProxyOptions, eventually, get_once};

use crate::bookstore::{Bookstore, ensure_status};

fn policy(till: &str, empty: &str) -> String {
    format!(
        r#"
[[service]]
name = "till"
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]
[service.endpoints]
static = [{{ address = "{till}", port = 9090 }}, {{ address = "{empty}", port = 9090 }}]

[[service]]
name = "customer"

[[http_route_group]]
name = "all"
matches = [{{ name = "all" }}]

[[traffic_target]]
name = "customers"
destination = {{ name = "till" }}
sources = [{{ name = "customer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn static_endpoint_is_reached_through_its_proxy_on_its_own_port() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[]).await;
    let empty_revision = mesh.readyz().await["policy"]["revision"].clone();
    let (till, empty) = (mesh.loopback().host(41), mesh.loopback().host(42));
    mesh.write_policy("till.toml", &policy(&till.to_string(), &empty.to_string()));
    // The policy must define the service before its proxy enrolls.
    eventually("the policy", async || {
        let policy = mesh.readyz().await["policy"].clone();
        if policy["revision"] == empty_revision { Err(policy.to_string()) } else { Ok(()) }
    })
    .await;
    // The list's port 9090 overrides the service's target port 8080.
    let app = App::http1("till", mesh.loopback().socket(41, 9090)).await;
    let _till = mesh.envoy(&ProxyOptions::new("default/till", 41)).await;
    let customer = mesh.envoy(&ProxyOptions::new("default/customer", 51)).await;
    let by_host = customer.socket(15080);
    let ask = || get_once(by_host, "/", &[("host", "till")]);
    eventually("the till to answer", async || ensure_status(&ask().await?, 200)).await;
    for _ in 0..20 {
        ensure_status(&ask().await.unwrap(), 200).unwrap();
    }
    assert_eq!(app.requests(), 21);
    // The endpoint without a proxy is excluded, and the log says so.
    let members = customer.stat("cluster.default/till|80.membership_total").await;
    assert_eq!(members, 1);
    let log = fs_err::read_to_string(mesh.folder().join("control-plane.log")).unwrap();
    assert!(
        log.contains(&format!("endpoint {empty} of service `default/till` gets no traffic")),
        "{log}"
    );
    customer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nack_is_kept_with_envoys_message_and_others_are_served() {
    let Some(store) = Bookstore::open().await else { return };
    assert_port_in_use_is_nacked(&store, |options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_nack_is_kept_with_envoys_message_and_others_are_served() {
    let Some(store) = Bookstore::open_sotw().await else { return };
    assert_port_in_use_is_nacked(&store, ProxyOptions::sotw).await;
}

async fn assert_port_in_use_is_nacked(store: &Bookstore, adapt: fn(ProxyOptions) -> ProxyOptions) {
    let occupied = store.mesh.loopback().socket(12, 14009);
    let listener = TcpListener::bind(occupied).unwrap();
    let options = ProxyOptions::new("default/bookthief", 12)
        .upstream("default/bookstore=14009")
        .upstream("default/bookstore=14001");
    let thief = store.mesh.envoy(&adapt(options)).await;
    let nack = eventually("the NACK", async || {
        let proxies = store.mesh.proxies().await;
        let mut nacks = proxies.as_array().into_iter().flatten().filter_map(|p| p["nacks"].get(0));
        nacks.next().cloned().ok_or_else(|| proxies.to_string())
    })
    .await;
    let is = |key: &str, value: &str| nack.get(key).is_some_and(|is| *is == value);
    assert!(is("resource_type", "listener"), "{nack:#}");
    assert!(is("name", "upstream|default/bookstore|14001|14009"), "{nack:#}");
    let message = nack.get("message").unwrap().as_str().unwrap();
    assert!(message.contains("Address already in use"), "{nack:#}");
    let log = fs_err::read_to_string(store.mesh.folder().join("control-plane.log")).unwrap();
    assert!(log.contains("Address already in use"), "{log}");
    // The rest of the same push is active.
    eventually("the other upstream", async || {
        ensure_status(&get_once(thief.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    // Once the port is free, the control plane sends the same version again (docs/decisions/0052).
    drop(listener);
    eventually("the upstream whose port was in use", async || {
        ensure_status(&get_once(thief.socket(14009), "/", &[]).await?, 200)
    })
    .await;
    // No other proxy is affected.
    store.assert_no_update_errors().await;
}
