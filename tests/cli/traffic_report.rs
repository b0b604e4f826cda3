//! Reports traffic as the agent of a proxy does, and what `/metrics` has of it.

use fs_err as fs;
use ironmesh_catalog::{Secret, TrafficCounts};
use ironmesh_enrollment::{
    EnrollmentClient, HealthReport, MachineIdentity, ReportedFlow, ReportedTraffic, ServerTrust,
    TrafficReport,
};
use ironmesh_tests::{eventually, get_once};
use uuid::Uuid;

use crate::server::Server;

/// Reports requests to `service` that the proxy in the folder `proxy` made: so many that succeeded, and that failed.
pub(crate) async fn report_requests(
    server: &Server,
    proxy: &str,
    (service, port): (&str, u16),
    (succeeded, failed): (u64, u64),
) {
    let folder = server.workspace.path().join(proxy);
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let identity =
        MachineIdentity { certificate: read("proxy.crt"), key: Secret::new(read("proxy.key")) };
    let created = server.json(&["proxy", "token", "--service", service]);
    let hash = created["ca_hashes"][0].as_str().unwrap().parse().unwrap();
    let address = server.loopback.socket(1, 15129).to_string().parse().unwrap();
    let client = EnrollmentClient::new(vec![address], ServerTrust::Hashes(vec![hash])).unwrap();
    let counts = TrafficCounts {
        requests: succeeded + failed,
        responses_2xx: succeeded,
        responses_5xx: failed,
        ..TrafficCounts::default()
    };
    let traffic = ReportedTraffic { in_flight: 0, counts };
    let flow = ReportedFlow { service: service.parse().unwrap(), port, traffic };
    // JSON of other languages has no larger exact number.
    let batch = Uuid::new_v4().as_u64_pair().0 >> 12;
    let report =
        TrafficReport { batch, seconds: 10, outbound: vec![flow], ..TrafficReport::default() };
    let report = HealthReport { traffic: Some(report), ..HealthReport::default() };
    client.report_health(&identity, &report).await.unwrap();
}

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]
"#;

const GRANT: &str = r#"
[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// Waits until exactly these pairs of labels have requests: caller, service, class and their number.
async fn wait_for_requests(server: &Server, wanted: &[(&str, &str, &str, u64)]) {
    let label = |(caller, service, class, count): &(&str, &str, &str, u64)| {
        let labels = format!("caller=\"{caller}\",service=\"{service}\",class=\"{class}\"");
        format!("ironmesh_mesh_requests_total{{{labels}}} {count}")
    };
    let wanted: Vec<_> = wanted.iter().map(label).collect();
    eventually("the counted requests", async || {
        let admin = server.loopback.socket(1, 15014);
        let text = get_once(admin, "/metrics", &[]).await.map_err(|e| e.to_string())?.text();
        let samples = text.lines().filter(|line| line.starts_with("ironmesh_mesh_requests_total"));
        let samples: Vec<_> = samples.filter(|line| !line.ends_with(" 0")).collect();
        if samples == wanted { Ok(()) } else { Err(format!("{samples:#?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_pairs_without_a_grant_count_as_other() {
    let Some(server) = Server::open("") else { return };
    let policy = |grant: &str| server.workspace.write("policy/a.toml", &format!("{POLICY}{grant}"));
    policy(GRANT);
    let _child = server.start().await;
    server.ready().await;
    let granting = server.readyz().await.json()["policy"]["revision"].clone();
    let enroll = ["proxy", "bootstrap", "--service", "buyer", "--address", "127.1.0.1"];
    let run = server.run(&[&enroll[..], &["--out", "buyer-1"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    report_requests(&server, "buyer-1", ("default/store", 80), (3, 1)).await;
    report_requests(&server, "buyer-1", ("default/till", 81), (5, 0)).await;
    let pair = ("default/buyer", "default/store|80");
    let [granted, failed] = [("2xx", 3), ("5xx", 1)].map(|(class, n)| (pair.0, pair.1, class, n));
    wait_for_requests(&server, &[granted, failed, ("other", "other", "2xx", 5)]).await;
    // The pair loses its labels, and no request is lost.
    policy("");
    let other = |class, count| ("other", "other", class, count);
    wait_for_requests(&server, &[other("2xx", 8), other("5xx", 1)]).await;
    policy(GRANT);
    server.wait_for_policy("the grant", |policy| policy["revision"] == granting).await;
    report_requests(&server, "buyer-1", ("default/store", 80), (1, 0)).await;
    let granted = (pair.0, pair.1, "2xx", 1);
    wait_for_requests(&server, &[granted, other("2xx", 8), other("5xx", 1)]).await;
}
