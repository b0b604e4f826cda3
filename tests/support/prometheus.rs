//! A real Prometheus that scrapes control planes and evaluates alert rules, on an address of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fs_err as fs;
use jiff::Timestamp;
use regex::{Captures, Regex};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Child;
use crate::programs::{require_prometheus, require_promtool};
use crate::tls::plain_http_client;
use crate::{Loopback, eventually};

/// The interval of scrapes and evaluations.
const INTERVAL: &str = "500ms";

/// The shortest duration in scaled rules, in seconds: a range has several scrapes, also on a busy machine.
const LEAST_SECONDS: u64 = 3;

/// A running Prometheus. Dropping this value stops it.
#[derive(Debug)]
pub struct Prometheus {
    /// Before the folder, so that it ends before that is removed.
    _process: Child,
    address: SocketAddr,
    http: reqwest::Client,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts it with the rules of this text, and waits until it answers. It scrapes these control planes as the job
    /// `ironmesh`. `None` skips the test because Prometheus is missing.
    pub async fn start(control_planes: &[SocketAddr], rules: &str) -> Option<Self> {
        let program = require_prometheus()?;
        let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
        let loopback = Loopback::claim();
        let address = loopback.socket(1, 9090);
        let file = |name: &str| folder.path().join(name);
        let targets: Vec<_> = control_planes.iter().map(|one| format!("'{one}'")).collect();
        let config = format!(
            "global: {{ scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}, evaluation_interval: {INTERVAL} }}\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: ironmesh\n    static_configs:\n      - targets: [{}]\n",
            targets.join(", ")
        );
        fs::write(file("prometheus.yml"), config).unwrap();
        fs::write(file("rules.yml"), rules).unwrap();
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", file("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .current_dir(folder.path());
        let mut process = Child::start("prometheus", &mut command, &file("prometheus.log"));
        let http = plain_http_client();
        eventually("Prometheus", async || {
            process.assert_running();
            let answer = http.get(format!("http://{address}/-/ready")).send().await;
            let status = answer.map(|answer| answer.status()).map_err(|error| error.to_string())?;
            if status.is_success() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        let prometheus = Self { _process: process, address, http, _folder: folder };
        // Prometheus begins to scrape some seconds after its start.
        prometheus.wait_for_sample("up").await;
        Some(prometheus)
    }

    /// The names of the alerts that fire.
    pub async fn firing(&self) -> anyhow::Result<BTreeSet<String>> {
        let data = self.get("alerts", &[]).await?;
        let alerts = data.get("alerts").and_then(Value::as_array).context("no alerts")?.iter();
        let firing = alerts.filter(|alert| alert.get("state").is_some_and(|is| is == "firing"));
        let names = firing.filter_map(|alert| alert.pointer("/labels/alertname")?.as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// The samples that an expression has now, each with its labels and its value.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<Value>> {
        let data = self.get("query", &[("query", expression)]).await?;
        let samples = data.get("result").and_then(Value::as_array);
        Ok(samples.with_context(|| data.to_string())?.clone())
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let url = reqwest::Url::parse_with_params(&url, parameters)?;
        let text = self.http.get(url).send().await?.text().await?;
        let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(answer.get("status").is_some_and(|status| status == "success"), "{text}");
        Ok(answer.get("data").context("no data")?.clone())
    }

    /// Waits until an expression has a sample.
    pub async fn wait_for_sample(&self, expression: &str) {
        eventually(&format!("a sample of {expression}"), async || {
            let samples = self.query(expression).await.map_err(|error| format!("{error:#}"))?;
            if samples.is_empty() { Err("none") } else { Ok(()) }.map_err(str::to_owned)
        })
        .await;
    }

    /// Waits until all that has happened is in the samples.
    pub async fn wait_for_scrape(&self) {
        let now = Timestamp::now().as_millisecond();
        self.wait_for_sample(&format!("timestamp(up) * 1000 > {now}")).await;
    }

    /// Calls `cause` again and again until the alert fires, once between two scrapes at most.
    pub async fn wait_until_firing(&self, alert: &str, mut cause: impl AsyncFnMut()) {
        eventually(&format!("alert {alert} to fire"), async || {
            cause().await;
            self.wait_for_scrape().await;
            let firing = self.firing().await.map_err(|error| format!("{error:#}"))?;
            if firing.contains(alert) { Ok(()) } else { Err(format!("firing: {firing:?}")) }
        })
        .await;
    }

    /// Waits until the alert does not fire any more.
    pub async fn wait_until_cleared(&self, alert: &str) {
        eventually(&format!("alert {alert} to clear"), async || {
            let firing = self.firing().await.map_err(|error| format!("{error:#}"))?;
            if firing.contains(alert) { Err(format!("firing: {firing:?}")) } else { Ok(()) }
        })
        .await;
    }
}

/// The rules with each duration in `for` and in ranges divided by `factor`, but never below a few seconds. Expressions are
/// otherwise unchanged.
pub fn with_shorter_times(rules: &str, factor: u64) -> String {
    let shorter = |captures: &Captures<'_>| {
        let number: u64 = captures[2].parse().unwrap();
        let seconds = match &captures[3] {
            "s" => number,
            "m" => number * 60,
            "h" => number * 3600,
            unit => panic!("the unit {unit} is unknown"),
        };
        let seconds = if seconds == 0 { 0 } else { (seconds / factor).max(LEAST_SECONDS) };
        format!("{}{seconds}s{}", &captures[1], &captures[4])
    };
    let of_rules = Regex::new(r"(?m)^( *for: )(\d+)(\w)()$").unwrap();
    let ranges = Regex::new(r"(\[)(\d+)(\w)(\])").unwrap();
    let rules = of_rules.replace_all(rules, &shorter);
    ranges.replace_all(&rules, &shorter).into_owned()
}

/// Runs promtool in the folder of the rules, which must succeed. Returns its output; `None` skips the test because promtool
/// is missing.
pub async fn promtool(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(require_promtool()?);
    let output = command.args(arguments).current_dir(folder).kill_on_drop(true).output().await;
    let output = output.unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rules_are_shorter_and_expressions_the_same() {
        let rules = "expr: rate(a_total[5m]) > 0 and b > 900\n        for: 30m\n        for: 0m\n";
        let shorter = "expr: rate(a_total[3s]) > 0 and b > 900\n        for: 6s\n        for: 0s\n";
        assert_eq!(with_shorter_times(rules, 300), shorter);
    }
}
