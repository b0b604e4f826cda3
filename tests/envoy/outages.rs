//! `ironmesh status` reports failing callers for exactly as long as they fail.

use ironmesh_tests::{App, Mesh, Programs, ProxyOptions, eventually, get_once};

use crate::bookstore::ensure_status;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn status_is_an_error_exactly_while_callers_get_503() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let status = async || {
        let run = mesh.run(&["status"]).await;
        (run.status.code(), String::from_utf8_lossy(&run.stdout).into_owned())
    };
    assert_eq!(status().await.0, Some(0), "no proxy is enrolled");
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = mesh.envoy(&buyer).await;
    eventually("calls to fail", async || {
        ensure_status(&get_once(buyer.socket(14001), "/", &[]).await?, 503)
    })
    .await;
    let text = eventually("the error", async || match status().await {
        (Some(1), text) if text.contains("error[IM0732]") => Ok(text),
        other => Err(format!("{other:?}")),
    })
    .await;
    let caller = format!("`default/buyer` at {}", buyer.address());
    for part in [
        "`default/store`",
        "at policy.toml:3",
        "has no available endpoint",
        "all requests get 503",
        &caller,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let _app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    eventually("calls to be answered", async || {
        ensure_status(&get_once(buyer.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    eventually("status to be clean", async || match status().await {
        (Some(0), text) if !text.contains("IM0732") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // The application has no health probe.
    let endpoints = mesh.run(&["endpoints", "default/store"]).await;
    let text = String::from_utf8_lossy(&endpoints.stdout);
    assert!(text.contains("unknown") && !text.contains("healthy"), "{text}");

    let address = server.address();
    server.stop().await;
    let text = eventually("the lost proxy", async || match status().await {
        (Some(1), text) if text.contains("1 proxy is disconnected") => Ok(text),
        other => Err(format!("{other:?}")),
    })
    .await;
    let host = format!("(default/store) at {address}:15003 since ");
    assert!(text.contains(&host) && text.contains("still receives calls"), "{text}");
}
