//! The report of the check: a line for each step, or one JSON document.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::Problem;
use crate::program::DemoEnvoyVersion;

/// The result of a passed step.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    line: String,
    figures: Value,
}

impl Seen {
    pub(super) fn new(line: String, figures: Value) -> Self {
        Self { line, figures }
    }
}

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// `None` if the check ended before Envoy was found.
    envoy: Option<DemoEnvoyVersion>,
    policy_folder: Option<String>,
    steps: Vec<Value>,
    passed: usize,
}

impl Report {
    pub(super) fn new(envoy: DemoEnvoyVersion, policy_folder: &Path) -> Self {
        let policy_folder = Some(policy_folder.display().to_string());
        Self { envoy: Some(envoy), policy_folder, ..Self::default() }
    }

    /// The number of reported steps.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Adds a finished step, and returns its line.
    pub(super) fn add(
        &mut self,
        name: &str,
        duration_ms: u64,
        result: &Result<Seen, Problem>,
    ) -> String {
        let (word, text, figures, problem) = match result {
            Ok(seen) => ("ok", &seen.line, seen.figures.clone(), Value::Null),
            Err(Problem(problem)) => ("FAILED", problem, json!({}), json!(problem)),
        };
        self.passed += usize::from(result.is_ok());
        self.steps.push(json!({
            "name": name,
            "passed": result.is_ok(),
            "duration_ms": duration_ms,
            "figures": figures,
            "problem": problem,
        }));
        format!("{word:<7} {name}: {text}\n")
    }

    /// Adds a step that is not run because an earlier one failed or did not finish.
    pub(super) fn skip(&mut self, name: &str) {
        self.steps.push(json!({
            "name": name,
            "passed": false,
            "duration_ms": 0,
            "figures": {},
            "problem": "not run",
        }));
    }

    /// The last line.
    pub(super) fn summary(&self, duration_ms: u64) -> String {
        let (passed, all) = (self.passed, self.steps.len());
        let (seconds, tenths) = (duration_ms / 1000, duration_ms % 1000 / 100);
        let verdict = if passed == all { "all is well" } else { "the check did not pass" };
        let envoy = self.envoy.map(|version| format!(", with Envoy {version}")).unwrap_or_default();
        format!("{verdict}: {passed} of {all} steps passed in {seconds}.{tenths} s{envoy}\n")
    }

    /// The whole report as JSON, with the problem, if any.
    pub(super) fn document(&self, problem: Option<&str>) -> String {
        let document = json!({
            "passed": problem.is_none() && self.passed == self.steps.len(),
            "problem": problem,
            "envoy": self.envoy.map(|version| version.to_string()),
            "policy_folder": self.policy_folder,
            "steps": self.steps,
        });
        format!("{document:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let envoy = DemoEnvoyVersion { major: 1, minor: 40, patch: 0 };
        Report::new(envoy, Path::new("/tmp/demo/policy"))
    }

    #[test]
    fn report_passes_if_every_step_passed() {
        let mut report = report();
        let seen = Seen::new("10.4 %".to_owned(), json!({ "requests": 500 }));
        assert_eq!(report.add("split", 7, &Ok(seen)), "ok      split: 10.4 %\n");
        assert_eq!(
            report.summary(12_345),
            "all is well: 1 of 1 steps passed in 12.3 s, with Envoy 1.40.0\n"
        );
        let document: Value = serde_json::from_str(&report.document(None)).unwrap();
        assert_eq!(document["passed"], true);
        assert_eq!(document["problem"], Value::Null);
        assert_eq!(document["envoy"], "1.40.0");
        assert_eq!(document["steps"][0]["figures"]["requests"], 500);
        assert_eq!(document["steps"][0]["problem"], Value::Null);
    }

    #[test]
    fn step_after_a_failure_is_listed_as_not_run() {
        let mut report = report();
        let line = report.add("split", 7, &Err(Problem("seen last: 503".to_owned())));
        assert_eq!(line, "FAILED  split: seen last: 503\n");
        report.skip("thief");
        assert!(report.summary(0).starts_with("the check did not pass: 0 of 2"));
        let document = report.document(Some("split: seen last: 503"));
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["passed"], false);
        assert_eq!(document["problem"], "split: seen last: 503");
        assert_eq!(document["steps"][1]["problem"], "not run");
    }
}
