//! A registrant of Consul cannot grant itself a call, or choose a port of a machine.

use ironmesh_tests::{
    App, Consul, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually,
};
use serde_json::json;

const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
endpoints = { consul = {} }

[[service]]
name = "reports"
endpoints = { registered = true, consul = {} }

[[service]]
name = "customer"

[[identity_binding]]
name = "batch"
endpoint_labels = { role = "batch" }

[[http_route_group]]
name = "till"
[[http_route_group.matches]]
name = "all"

[[traffic_target]]
name = "batch"
destination = { name = "till" }
sources = [{ name = "customer" }, { kind = "IdentityBinding", name = "batch" }]
rules = [{ kind = "HTTPRouteGroup", name = "till" }]
"#;

async fn register(consul: &Consul, service: &str, address: String, port: u16, tags: &[&str]) {
    let instance = json!({
        "Node": format!("node-{service}"), "Address": address,
        "Service": { "ID": service, "Service": service, "Address": address, "Port": port, "Tags": tags }
    });
    consul.register_as(instance).await;
}

async fn wait_for_finding(mesh: &Mesh, code: &str) {
    eventually(code, async || {
        let findings = mesh.readyz().await["findings"].to_string();
        if findings.contains(code) { Ok(()) } else { Err(findings) }
    })
    .await;
}

async fn wait_for_status(caller: &Envoy, status: u16) {
    eventually(&format!("the answer {status}"), async || {
        let connection = Http1Connection::connect(caller.socket(8000)).await;
        let mut connection = connection.map_err(|error| error.to_string())?;
        let answer = connection.get("/", "till").await.map_err(|error| error.to_string())?;
        let body = answer.text();
        assert!(!body.contains("secret"), "the registrant reached another port: {body}");
        if answer.status.as_u16() == status { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registrant_gains_neither_a_grant_nor_a_port() {
    let Some(consul) = Consul::dev().await else { return };
    let Some(programs) = Programs::find() else { return };
    let settings = format!("consul = {{ agents = [\"{}\"] }}", consul.url(0));
    let mesh = Mesh::start_with(&settings, &programs, &[("policy.toml", POLICY)]).await;
    let at = |host| mesh.loopback().host(host).to_string();
    let _app = App::http1("till", mesh.loopback().socket(21, 8080)).await;
    let _secret = App::http1("secret", mesh.loopback().socket(21, 8500)).await;
    register(&consul, "till", at(21), 8080, &[]).await;
    let _till = mesh.envoy(&ProxyOptions::new("default/till", 21)).await;
    let calls =
        |service: &str, host| ProxyOptions::new(service, host).upstream("default/till=8000");
    let reports = mesh.envoy(&calls("default/reports", 12)).await;
    let customer = mesh.envoy(&calls("default/customer", 13)).await;
    wait_for_status(&customer, 200).await;
    wait_for_status(&reports, 403).await;

    register(&consul, "reports", at(12), 9000, &["role=batch"]).await;
    wait_for_finding(&mesh, "IM0509").await;
    wait_for_status(&reports, 403).await;

    register(&consul, "till", at(21), 8500, &[]).await;
    wait_for_finding(&mesh, "IM0510").await;
    wait_for_status(&customer, 503).await;
    register(&consul, "till", at(21), 8080, &[]).await;
    wait_for_status(&customer, 200).await;
    wait_for_status(&reports, 403).await;
}
