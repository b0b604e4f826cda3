//! A restarted proxy that cannot bind its mesh port is withdrawn and reported, and recovers by
//! itself.

use std::net::TcpListener;

use ironmesh_tests::{App, Envoy, Load, Mesh, Programs, ProxyOptions, eventually, get_once};

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
async fn delta_proxy_without_its_mesh_port_is_excluded_until_it_binds() {
    assert_proxy_recovers_from_port_conflict(|options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sotw_proxy_without_its_mesh_port_is_excluded_until_it_binds() {
    assert_proxy_recovers_from_port_conflict(ProxyOptions::sotw).await;
}

async fn assert_proxy_recovers_from_port_conflict(adapt: fn(ProxyOptions) -> ProxyOptions) {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let first = App::http1("first", mesh.loopback().socket(21, 8080)).await;
    let _second = App::http1("second", mesh.loopback().socket(22, 8080)).await;
    let folder = mesh.bootstrap(&adapt(ProxyOptions::new("default/store", 21))).await;
    let address = mesh.loopback().host(21);
    let envoy = Envoy::start(&programs.envoy, "first", &folder, address, 1).await;
    let _other = mesh.envoy(&adapt(ProxyOptions::new("default/store", 22))).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = mesh.envoy(&adapt(buyer)).await;
    let members = "cluster.default/store|14001.membership_total";
    eventually("both endpoints", async || match buyer.stat(members).await {
        2 => Ok(()),
        few => Err(few),
    })
    .await;
    eventually("the buyer to be served", async || {
        ensure_status(&get_once(buyer.socket(14001), "/", &[]).await?, 200)
    })
    .await;

    let mesh_port = envoy.socket(15003);
    envoy.stop().await;
    let holder = TcpListener::bind(mesh_port).unwrap();
    let envoy = Envoy::start(&programs.envoy, "first", &folder, address, 1).await;
    eventually("its endpoint to be withdrawn", async || match buyer.stat(members).await {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
    let before = first.requests();
    let load = Load::start(buyer.socket(14001), "store", "/");
    let status = mesh.run(&["status"]).await;
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}");
    for part in ["error[IM0731]", &mesh_port.to_string(), "Address already in use", "policy.toml:3"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    load.wait_for_status(http::StatusCode::OK).await;
    let report = load.finish().await;
    assert_eq!((report.failed, first.requests()), (0, before), "{:#?}", report.failures);

    // The operator only frees the port.
    drop(holder);
    eventually("its endpoint to be back", async || match buyer.stat(members).await {
        2 => Ok(()),
        other => Err(other),
    })
    .await;
    eventually("it to be called", async || {
        ensure_status(&get_once(buyer.socket(14001), "/", &[]).await?, 200)?;
        anyhow::ensure!(first.requests() > before, "{}", first.requests());
        Ok(())
    })
    .await;
    let status = mesh.run(&["status"]).await;
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!text.contains("IM0731"), "{text}");
    drop(envoy);
}
