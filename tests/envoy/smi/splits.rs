//! SMI's conformance suite on traffic splits: a service `app-a` calls `app`, whose backends are
//! `app-b` and `app-c`.

use std::collections::BTreeMap;

use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually, get_once,
};

use serde_json::Value;

use crate::bookstore::ensure_status;
use crate::split_mesh::Shares;

/// The name of the upstream's route configuration.
const UPSTREAM: &str = "upstream|default/app|9091";

const SERVICES: &str = r#"
[[service]]
name = "app-a"

[[service]]
name = "app"
ports = [{ port = 9091, protocol = "http" }]

[[service]]
name = "app-b"
service_account = "app"
ports = [{ port = 9091, protocol = "http" }]

[[service]]
name = "app-c"
service_account = "app"
ports = [{ port = 9091, protocol = "http" }]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "app"
destination = { name = "app" }
sources = [{ name = "app-a" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

fn split(b: u32, c: u32) -> String {
    format!(
        "[[traffic_split]]\nname = \"app\"\nservice = \"app\"\n\
         backends = [{{ service = \"app-b\", weight = {b} }}, {{ service = \"app-c\", weight = {c} }}]\n"
    )
}

/// The number of calls of `app-a` that each backend answers.
async fn calls(app_a: &Envoy, count: u32) -> Shares {
    let mut connection = Http1Connection::connect(app_a.socket(9091)).await.unwrap();
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let response = connection.get("/echo", "app").await.unwrap();
        ensure_status(&response, 200).unwrap();
        *shares.entry(response.header("x-app").unwrap().to_owned()).or_default() += 1;
    }
    Shares(shares)
}

/// The routes of the upstream in Envoy.
async fn upstream_routes(app_a: &Envoy) -> String {
    let dump = app_a.admin_get("/config_dump?resource=dynamic_route_configs").await.json();
    let all = dump.get("configs").and_then(Value::as_array).into_iter().flatten();
    let name = |one: &Value| one.pointer("/route_config/name").cloned();
    let own = all.into_iter().find(|one| name(one).is_some_and(|name| name == UPSTREAM));
    own.map(ToString::to_string).unwrap_or_default()
}

/// SMI 10, OSM 8.
#[tokio::test(flavor = "multi_thread")]
async fn smi_conformance_traffic_split() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
    let socket = |host| mesh.loopback().socket(host, 9091);
    let _apps = [App::http1("b", socket(22)).await, App::http1("c", socket(23)).await];
    // Both serve the root as well, as a selector does in Kubernetes.
    let of = |service, host| ProxyOptions::new(service, host).with_service("default/app");
    let servers =
        [mesh.envoy(&of("default/app-b", 22)).await, mesh.envoy(&of("default/app-c", 23)).await];
    let app_a = ProxyOptions::new("default/app-a", 11).upstream("default/app=9091");
    let app_a = mesh.envoy(&app_a).await;

    // 03: without a split, both answer about equally often.
    eventually("both to answer", async || {
        ensure_status(&get_once(app_a.socket(9091), "/echo", &[]).await?, 200)?;
        let seen = calls(&app_a, 20).await;
        anyhow::ensure!(seen.0.len() == 2, "{seen:?}");
        Ok(())
    })
    .await;
    calls(&app_a, 1000).await.assert_about(&[("b", 0.5), ("c", 0.5)]);

    // 04 and 06: all and nothing. 08 and 10: more to the one, more to the other.
    for (b, c) in [(100, 0), (0, 100), (75, 25), (25, 75)] {
        mesh.write_policy("split.toml", &split(b, c));
        let parts = [("b", f64::from(b) / 100.0), ("c", f64::from(c) / 100.0)];
        let parts: Vec<_> = parts.into_iter().filter(|(_, part)| *part > 0.0).collect();
        eventually(&format!("a split {b}/{c}"), async || {
            let seen = calls(&app_a, 50).await;
            anyhow::ensure!(seen.0.keys().eq(parts.iter().map(|(name, _)| name)), "{seen:?}");
            // Fifty calls cannot tell which of two has the larger share.
            let routes = upstream_routes(&app_a).await;
            let weights = [("b", b), ("c", c)].map(|(name, weight)| {
                format!(r#"{{"name":"default/app-{name}|9091","weight":{weight}}}"#)
            });
            let is_there = parts.len() < 2 || weights.iter().all(|one| routes.contains(one));
            anyhow::ensure!(is_there, "{routes}");
            Ok(())
        })
        .await;
        let answers = calls(&app_a, 2000).await;
        answers.assert_about(&parts);
    }
    for envoy in servers.iter().chain([&app_a]) {
        envoy.assert_no_update_errors().await;
    }
}
