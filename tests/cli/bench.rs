//! The load generator against a real control plane: all proxies converge, and counts are exact.
//! Times are not checked.

use std::process::Command;

use ironmesh_tests::{Programs, require_bench, require_consul, require_etcd, require_ironmesh};
use serde_json::Value;

use crate::command::succeeds;

/// The rows of a run of these parts with twenty proxies.
fn run(variant: &str, parts: &[&str]) -> Option<Vec<Value>> {
    let mut command = Command::new(require_bench()?);
    command.arg("run").args(parts.iter().flat_map(|part| ["--part", part]));
    command.args(["--shape", "20x10", "--variant", variant]);
    command.args(["--events", "4", "--fault-runs", "1", "--storms", "1", "--steady", "1"]);
    Some(rows(command.arg("--ironmesh").arg(require_ironmesh()?)))
}

fn rows(run: &mut Command) -> Vec<Value> {
    let output = run.args(["--patience", "300", "--output", "json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report.get("rows").unwrap().as_array().unwrap().clone()
}

/// The only row about this work.
fn row<'a>(rows: &'a [Value], work: &str) -> &'a Value {
    let found: Vec<_> =
        rows.iter().filter(|row| row.get("work").unwrap().as_str() == Some(work)).collect();
    assert_eq!(found.len(), 1, "{work}: {found:?}");
    found.first().unwrap()
}

/// The control plane's figure as text.
fn ours(rows: &[Value], work: &str) -> String {
    row(rows, work).get("ours").unwrap().to_string()
}

/// Checks what every run must reach, however long it takes.
fn assert_converged(rows: &[Value]) {
    assert_eq!(ours(rows, "proxies with exactly the server's set at the end"), "20.0");
    // A change is one response to each allowed caller, and none to others.
    assert_eq!(ours(rows, "one change: responses per proxy"), "1.0");
    assert_eq!(ours(rows, "a change for few proxies: responses to others"), "0.0");
}

#[test]
fn simulated_delta_envoys_converge_without_resends() {
    let Some(rows) = run("delta", &["fleets", "policy", "grants"]) else { return };
    assert_converged(&rows);
    assert_eq!(ours(&rows, "SIGKILL, restart: resources sent again"), "0.0");
    let events = row(&rows, "one service's endpoints change: to the last ACK, median");
    assert!(events.get("floor").unwrap().as_f64().unwrap() > 0.0, "{events}");
}

#[test]
fn simulated_sotw_envoys_converge() {
    let Some(rows) = run("sotw", &["fleets"]) else { return };
    assert_converged(&rows);
}

#[test]
fn growth_churn_and_renewals_are_measured() {
    let (Some(bench), Some(ironmesh)) = (require_bench(), require_ironmesh()) else { return };
    let mut command = Command::new(bench);
    command.args(["run", "--part", "scale", "--part", "churn", "--part", "renewals"]);
    command.args(["--shape", "20x10", "--events", "2", "--scale", "160", "--churn-seconds", "5"]);
    command.args(["--renewal-seconds", "10", "--patience", "300", "--output", "json"]);
    let output = command.arg("--ironmesh").arg(ironmesh).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let growth = report.get("growth").unwrap().as_array().unwrap();
    assert!(!growth.is_empty());
    let rows = report.get("rows").unwrap().as_array().unwrap();
    for work in ["churn: responses per change and proxy", "renewals: server's CPU each"] {
        assert!(row(rows, work).get("ours").unwrap().as_f64().unwrap() > 0.0, "{work}");
    }
}

#[test]
fn proxies_of_a_killed_replica_move_without_updates() {
    let (Some(bench), Some(etcd)) = (require_bench(), require_etcd()) else { return };
    let Some(ironmesh) = require_ironmesh() else { return };
    let mut command = Command::new(bench);
    command.args(["run", "--part", "replicas", "--shape", "20x10", "--events", "4"]);
    command.args(["--storms", "1", "--steady", "1"]);
    let rows = rows(command.arg("--ironmesh").arg(ironmesh).arg("--etcd").arg(etcd));
    for work in [
        "SIGKILL of one, no change: resources that proxies receive",
        "it starts again, all connect again: resources",
        "SIGKILL of one: resources beyond that change",
    ] {
        assert_eq!(ours(&rows, work), "0.0", "{work}");
    }
    assert_eq!(ours(&rows, "proxies with exactly the second one's set at the end"), "40.0");
    let change = row(&rows, "one change: server's CPU per proxy");
    assert!(change.get("floor").unwrap().as_f64().unwrap() > 0.0, "{change}");
}

#[test]
fn consul_endpoints_reach_simulated_and_real_envoys() {
    let (Some(bench), Some(consul)) = (require_bench(), require_consul()) else { return };
    let Some(programs) = Programs::find() else { return };
    let mut command = Command::new(bench);
    command.args(["run", "--part", "consul", "--catalog", "5x4", "--steady", "1", "--events", "2"]);
    command.arg("--ironmesh").arg(programs.ironmesh);
    command.arg("--envoy").arg(programs.envoy).arg("--consul").arg(consul);
    let rows = rows(&mut command);
    assert_eq!(ours(&rows, "endpoints of Consul that each of them received"), "20.0");
    for change in ["a check passes", "a check fails"] {
        let matches = |row: &&Value| row.get("work").unwrap().as_str().unwrap().starts_with(change);
        let row = rows.iter().find(matches).unwrap();
        assert!(row.get("floor").unwrap().as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn bench_rejects_an_invalid_fleet_shape() {
    let Some(bench) = require_bench() else { return };
    for shape in ["20", "25x10", "100000x10"] {
        assert!(!succeeds(Command::new(&bench).args(["run", "--shape", shape])), "{shape}");
    }
}
