//! The revocation of a called proxy disturbs no other proxy.

use ironmesh_tests::{
    App, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually, get_once,
};
use serde_json::Value;

use crate::bookstore::ensure_status;
use crate::restart::{envoy_states, wait_for_streams};

const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "customer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "till"
destination = { name = "till" }
sources = [{ name = "customer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

const CLUSTER: &str = "cluster.default/till|80";

/// The proxy at this address, as the control plane lists it.
async fn proxy_at(mesh: &Mesh, address: &str) -> Value {
    let proxies = mesh.proxies().await;
    let at = format!("{address}:15003");
    let found = proxies.as_array().unwrap().iter().find(|one| one["mesh_address"] == at);
    assert!(found.is_some(), "none at {at} in {proxies:#}");
    found.unwrap().clone()
}

/// Runs `ironmesh` successfully and returns its output.
async fn run(mesh: &Mesh, arguments: &[&str]) -> String {
    let output = mesh.run(arguments).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A12.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_proxy_is_disconnected_and_callers_use_the_other() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let one_app = App::http1("one", mesh.loopback().socket(21, 8080)).await;
    let other_app = App::http1("other", mesh.loopback().socket(22, 8080)).await;
    let one = mesh.envoy(&ProxyOptions::new("default/till", 21)).await;
    let other = mesh.envoy(&ProxyOptions::new("default/till", 22)).await;
    let customer = ProxyOptions::new("default/customer", 11).upstream("default/till=14001");
    let customer = mesh.envoy(&customer).await;
    let members = |count: u64| {
        let customer = &customer;
        async move {
            eventually(&format!("{count} endpoints"), async || {
                let stats = customer.stats(r"\.membership_total$").await;
                let now = stats.get(&format!("{CLUSTER}.membership_total")).copied();
                if now == Some(count) { Ok(()) } else { Err(format!("{stats:?}")) }
            })
            .await;
        }
    };
    members(2).await;
    eventually("the till to answer", async || {
        ensure_status(&get_once(customer.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    let load = Load::start(customer.socket(14001), "till", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert!(one_app.requests() > 0 && other_app.requests() > 0);

    let mut before = envoy_states(&[&customer, &other]).await;
    let id = proxy_at(&mesh, &one.address().to_string()).await["id"].as_str().unwrap().to_owned();
    let reported = run(&mesh, &["proxy", "revoke", &id, "--reason", "its disk was sold"]).await;
    assert!(reported.starts_with("proxy till-1 ("), "{reported}");
    assert!(reported.contains(&format!("({id}) was revoked on ")), "{reported}");
    members(1).await;
    wait_for_streams(&one, 0).await;
    let log = mesh.folder().join("proxies/default-till-21/envoy.log");
    let words = format!("proxy {id} was revoked on ");
    eventually("the reason in Envoy's words", async || {
        let log = fs_err::read_to_string(&log)?;
        let is_told = |line: &str| line.contains(&words) && line.contains(": its disk was sold");
        anyhow::ensure!(log.lines().any(is_told), "{log}");
        Ok(())
    })
    .await;
    let seen = one_app.requests();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(one_app.requests(), seen, "it is called still");

    // Callers were sent only the endpoints. The other proxy of the account gets a new certificate, since it shared the old
    // one, and refuses that: no cluster and no listener of it changes.
    let mut after = envoy_states(&[&customer, &other]).await;
    let updates = format!("{CLUSTER}.update_success");
    let reported = [&before, &after].map(|held| held[0].stats[&updates]);
    assert_eq!(reported[1], reported[0] + 1, "the endpoints were sent once");
    after[0].stats.insert(updates, reported[0]);
    assert_eq!(after[0], before[0]);
    for states in [&mut after, &mut before] {
        states[1]
            .stats
            .retain(|name, _| !name.contains("sds.service-cert") && !name.contains(".rds."));
    }
    assert_eq!(after[1].stats, before[1].stats);

    // The revocation survives a restart, and each attempt is rejected.
    mesh.restart_control_plane().await;
    for envoy in [&customer, &other] {
        wait_for_streams(envoy, 1).await;
    }
    eventually("the stream to be rejected", async || {
        let metrics = get_once(mesh.admin(), "/metrics", &[]).await?.text();
        let rejected = "ironmesh_xds_streams_closed_total{reason=\"rejected\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(rejected));
        anyhow::ensure!(count.is_some_and(|count| count != "0"), "{metrics}");
        Ok(())
    })
    .await;
    wait_for_streams(&one, 0).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    members(1).await;
    let report = load.finish().await;
    report.assert_undisturbed();
    eprintln!("{} requests, none failed", report.requests);
    assert_eq!(customer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);

    let shown = proxy_at(&mesh, &one.address().to_string()).await;
    assert_eq!(shown["state"], "revoked", "{shown:#}");
    assert_eq!(shown["revoked"]["reason"], "its disk was sold", "{shown:#}");
    let reported = run(&mesh, &["proxy", "revoke", &id]).await;
    assert!(reported.contains("was already revoked on "), "{reported}");
    for shown in [&["proxy", "list"][..], &["proxy", "show", &id[..8]]] {
        let reported = run(&mesh, shown).await;
        assert!(reported.contains(": its disk was sold"), "{reported}");
    }
    for envoy in [&customer, &other] {
        envoy.assert_no_update_errors().await;
    }
}
