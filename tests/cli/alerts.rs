//! The shipped alert rules and the dashboard, with a real Prometheus that scrapes a real control plane.
//!
//! Each alert fires by a real cause, and clears when the cause ends. Durations of the rules are divided by [`FACTOR`];
//! expressions are as shipped.

mod certificates;
mod control_plane;
mod dashboard;
mod enrollment;
mod fleet;
mod operators;
mod providers;
mod proxies;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::clock::SkewedClock;
use ironmesh_tests::process::Child;
use ironmesh_tests::prometheus::{Prometheus, promtool, with_shorter_times};
use ironmesh_tests::{eventually, get_once};
use tokio::process::Command;

use crate::server::Server;

/// By how much alerts wait less here.
const FACTOR: u64 = 300;

/// The alerts of all tests here.
const ALERTS: [&[&str]; 9] = [
    &control_plane::ALERTS,
    &control_plane::RESTARTS,
    &control_plane::FILES,
    &proxies::ALERTS,
    &providers::ALERTS,
    &enrollment::ALERTS,
    &certificates::ALERTS,
    &fleet::ALERTS,
    &operators::ALERTS,
];

/// The folder of the shipped files.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations")
}

fn shipped(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// The names of the alerts in the shipped rules.
fn names(rules: &str) -> BTreeSet<String> {
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// A Prometheus with the shipped rules, and the alerts that have fired and cleared.
struct Alarms {
    prometheus: Prometheus,
    observed: BTreeSet<String>,
}

impl Alarms {
    /// Starts it for the control plane of `server`. `None` skips the test because Prometheus is missing.
    async fn start(server: &Server) -> Option<Self> {
        Self::start_with(server, &with_shorter_times(&shipped("alerts.yml"), FACTOR)).await
    }

    async fn start_with(server: &Server, rules: &str) -> Option<Self> {
        let admin = server.loopback.socket(1, 15014);
        let prometheus = Prometheus::start(&[admin], rules).await?;
        Some(Self { prometheus, observed: BTreeSet::new() })
    }

    /// Waits until the alert fires; something causes it already.
    async fn fires(&self, alert: &str) {
        self.fires_by(alert, async || ()).await;
    }

    /// Repeats the cause until the alert fires.
    async fn fires_by(&self, alert: &str, cause: impl AsyncFnMut()) {
        self.prometheus.wait_until_firing(&format!("Ironmesh{alert}"), cause).await;
    }

    /// Waits until the alert, which has fired, does not any more.
    async fn clears(&mut self, alert: &str) {
        self.prometheus.wait_until_cleared(&format!("Ironmesh{alert}")).await;
        self.observed.insert(alert.to_owned());
    }

    /// Fails unless exactly these alerts have fired and cleared.
    fn assert_observed(&self, alerts: &[&str]) {
        let alerts: BTreeSet<_> = alerts.iter().map(|alert| (*alert).to_owned()).collect();
        assert_eq!(self.observed, alerts);
    }
}

/// Starts `serve` with a wall clock that the test sets, and waits until it answers.
async fn start_with_clock(server: &Server, clock: &SkewedClock) -> Child {
    let command = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    let mut command = Command::from(command);
    clock.give_to(&mut command);
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut command, &log);
    eventually("the admin API", async || {
        child.assert_running();
        get_once(server.loopback.socket(1, 15014), "/readyz", &[]).await
    })
    .await;
    child
}

#[test]
fn every_shipped_alert_has_a_test_of_its_cause() {
    let alerts = ALERTS.into_iter().flatten();
    let tested: Vec<_> = alerts.map(|alert| format!("Ironmesh{alert}")).collect();
    let of_tests: BTreeSet<_> = tested.iter().cloned().collect();
    assert_eq!(of_tests.len(), tested.len(), "an alert is listed twice");
    assert_eq!(of_tests, names(&shipped("alerts.yml")));
}

#[tokio::test]
async fn promtool_accepts_the_shipped_rules_and_their_unit_tests() {
    let Some(text) = promtool(&folder(), &["check", "rules", "alerts.yml"]).await else { return };
    let count = names(&shipped("alerts.yml")).len();
    assert!(text.contains(&format!("SUCCESS: {count} rules found")), "{text}");
    promtool(&folder(), &["test", "rules", "alerts_test.yml"]).await;
    // Each alert waits, fires and ends in these tests.
    let tests = shipped("alerts_test.yml");
    for alert in names(&shipped("alerts.yml")) {
        let silent = format!("alertname: {alert}, exp_alerts: [] }}");
        assert_eq!(tests.matches(&silent).count(), 2, "{alert}");
        assert_eq!(tests.matches(&format!("alertname: {alert}\n")).count(), 1, "{alert}");
    }
}
