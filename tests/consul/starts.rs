//! Starts of a control plane while Consul is unavailable.

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{App, Consul, Envoy, Mesh, Programs, ProxyOptions, eventually, get_once};
use serde_json::{Value, json};

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
endpoints = { consul = {} }

[[service]]
name = "own"
service_account = "web"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "web" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

async fn prepare() -> Option<(Consul, Mesh, Programs)> {
    let consul = Consul::dev().await?;
    let programs = Programs::find()?;
    let settings =
        format!("consul.agents = [\"{}\"]\nendpoints.sync_timeout = \"1s\"", consul.url(0));
    let mesh = Mesh::prepare(&settings, &programs, &[("policy.toml", POLICY)]);
    Some((consul, mesh, programs))
}

/// Waits until calls of a service get this status.
async fn wait_for_status(buyer: &Envoy, service: &str, status: u16) {
    eventually(&format!("{status} of {service}"), async || {
        let answer = get_once(buyer.socket(15080), "/", &[("host", service)]).await?;
        anyhow::ensure!(answer.status == status, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_without_consul_or_saved_state_waits_and_reports_why() {
    let Some((mut consul, mut mesh, _)) = prepare().await else { return };
    consul.kill(0).await;
    mesh.launch_control_plane(&[]);
    let why = eventually("the reason", async || {
        let answer =
            get_once(mesh.admin(), "/readyz", &[]).await.map_err(|error| error.to_string())?;
        let waiting_for = answer.json()["waiting_for"].to_string();
        let matches = answer.status == 503 && waiting_for.contains("no Consul agent can be used");
        if matches { Ok(waiting_for) } else { Err(answer.text()) }
    })
    .await;
    for part in ["the endpoints of default/web from consul", &consul.url(0), "--without consul"] {
        assert!(why.contains(part), "{why}");
    }
    let log = mesh.log();
    for part in ["no consul agent is usable", "no Consul agent can be used"] {
        assert!(log.contains(part), "{log}");
    }
    let status = mesh.run(&["status"]).await;
    let reported = String::from_utf8(status.stdout).unwrap();
    assert!(reported.contains("\n       the endpoints of default/web"), "{reported}");
    assert_eq!(status.status.code(), Some(1), "{reported}");
    // A proxy that connects meanwhile gets no answer until the endpoints are known.
    let folder = mesh.bootstrap(&ProxyOptions::new("default/buyer", 11)).await;
    let address = mesh.xds();
    let client = tokio::spawn(async move { ProxyClient::connect(&folder, address).await });
    let list = mesh.run(&["proxy", "list"]).await;
    assert!(list.status.success(), "{list:?}");
    assert!(!client.is_finished(), "xDS was answered: {:?}", client.await);
    assert!(!mesh.log().contains("xDS is served"), "{}", mesh.log());

    // The control plane waits for Consul, without giving up.
    consul.start(0);
    consul.ready().await;
    mesh.ready().await;
    client.await.unwrap().unwrap();
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_consul_option_serves_other_services_at_once() {
    let Some((mut consul, mut mesh, _)) = prepare().await else { return };
    consul.kill(0).await;
    mesh.launch_control_plane(&["--without", "consul"]);
    mesh.ready().await;
    let _app = App::http1("web", mesh.loopback().socket(21, 8080)).await;
    let server = ProxyOptions::new("default/web", 21).with_service("default/own");
    let _server = mesh.envoy(&server).await;
    let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;
    wait_for_status(&buyer, "own", 200).await;
    wait_for_status(&buyer, "web", 503).await;
    consul.start(0);
    consul.ready().await;
    consul.register("web", "a", &mesh.loopback().host(21).to_string()).await;
    wait_for_status(&buyer, "web", 200).await;
    buyer.assert_no_update_errors().await;
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_start_without_consul_serves_the_last_known_state() {
    let Some((mut consul, mut mesh, programs)) = prepare().await else { return };
    consul.register("web", "a", &mesh.loopback().host(21).to_string()).await;
    mesh.restart_control_plane().await;
    let _app = App::http1("web", mesh.loopback().socket(21, 8080)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/web", 21)).await;
    let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;
    wait_for_status(&buyer, "web", 200).await;
    // All processes end: only the disk remembers the endpoints.
    consul.kill(0).await;
    mesh.kill_control_plane().await;
    server.stop().await;
    buyer.stop().await;

    mesh.restart_control_plane().await;
    let again = async |service: &str, host| {
        let folder = mesh.folder().join("proxies").join(format!("default-{service}-{host}"));
        let address = mesh.loopback().host(host);
        Envoy::start(&programs.envoy, service, &folder, address, 30).await
    };
    let (server, buyer) = (again("web", 21).await, again("buyer", 11).await);
    wait_for_status(&buyer, "web", 200).await;
    let findings = mesh.readyz().await["findings"].clone();
    let matches = |finding: &Value| finding["code"] == json!("IM0501");
    assert!(findings.as_array().unwrap().iter().any(matches), "{findings:#}");

    // The current state arrives once Consul is back.
    consul.start(0);
    consul.ready().await;
    consul.register("web", "a", &mesh.loopback().host(21).to_string()).await;
    let line = format!("{}:15003::health_flags::healthy", mesh.loopback().host(21));
    eventually("Consul to be authoritative", async || {
        // Another finding reports that no endpoint of `own` is usable.
        let findings = mesh.readyz().await["findings"].clone();
        let mut others = findings.as_array().unwrap().iter().filter(|one| one["code"] != "IM0732");
        if others.next().is_none() { Ok(()) } else { Err(findings.to_string()) }
    })
    .await;
    assert!(buyer.admin_get("/clusters").await.text().contains(&line));
    wait_for_status(&buyer, "web", 200).await;
    buyer.assert_no_update_errors().await;
    server.assert_no_update_errors().await;
    mesh.stop().await;
}
