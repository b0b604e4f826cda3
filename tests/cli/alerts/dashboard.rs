//! The dashboard: its queries have data in a running Prometheus.

use ironmesh_tests::eventually;
use serde_json::Value;

use super::{Alarms, shipped};
use crate::server::Server;
use crate::traffic_report::report_requests;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The metrics that have no sample here: no alert is pending, and no service is in audit mode.
const WITHOUT_SAMPLES: [&str; 2] = ["ALERTS", "ironmesh_audit_would_deny_total"];

/// The panels that are no headings, each with its title and its queries.
fn panels(dashboard: &Value) -> Vec<(&str, Vec<&str>)> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|panel| panel["type"] != "row");
    panels
        .map(|panel| {
            let targets = panel["targets"].as_array().unwrap().iter();
            let queries = targets.map(|target| target["expr"].as_str().unwrap());
            (panel["title"].as_str().unwrap(), queries.collect())
        })
        .collect()
}

#[test]
fn dashboard_can_be_imported_with_any_data_source() {
    let dashboard: Value = serde_json::from_str(&shipped("dashboard.json")).unwrap();
    // Grafana looks for a dashboard with the number, and overwrites it.
    assert_eq!(dashboard["id"], Value::Null);
    assert_eq!(dashboard["uid"], "ironmesh");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance"]);
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap().iter();
        for one in targets.chain([panel]) {
            assert_eq!(one["datasource"]["uid"], "${datasource}", "{panel:#}");
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 10), "{panel:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_returns_data() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let enroll = ["proxy", "bootstrap", "--service", "buyer", "--address", "127.1.0.1"];
    let run = server.run(&[&enroll[..], &["--out", "buyer-1"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let Some(alarms) = Alarms::start_with(&server, &shipped("alerts.yml")).await else { return };
    report_requests(&server, "buyer-1", ("default/store", 80), (3, 1)).await;
    let dashboard: Value = serde_json::from_str(&shipped("dashboard.json")).unwrap();
    let panels = panels(&dashboard);
    assert!(panels.len() > 25, "{panels:#?}");
    for (title, queries) in panels {
        for query in queries {
            // What Grafana inserts for all control planes, and for a short time.
            let expression = query.replace("$instance", ".*").replace("$__rate_interval", "1m");
            eventually(&format!("data of panel `{title}`: {expression}"), async || {
                let samples = alarms.prometheus.query(&expression).await;
                let samples = samples.map_err(|error| format!("{error:#}"))?;
                let may_be_empty = WITHOUT_SAMPLES.iter().any(|name| query.contains(name));
                if samples.is_empty() && !may_be_empty { Err("no sample") } else { Ok(()) }
                    .map_err(str::to_owned)
            })
            .await;
        }
    }
}
