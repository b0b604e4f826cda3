//! The output of a test binary: libtest's events, one JSON line each.
//!
//! The report has the output of failed tests, and of the others the lines that begin with [`STEP`].

use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;

/// The begin of a line with the duration of a step of a long test.
const STEP: &str = "step ";

/// One event of libtest.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Event {
    Test {
        event: String,
        name: String,
        #[serde(default)]
        exec_time: f64,
        #[serde(default)]
        stdout: String,
    },
    #[serde(other)]
    Other,
}

/// One test that has ended.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) has_failed: bool,
    output: String,
}

/// The outcome of a suite.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) tests: Vec<Test>,
    /// The reason why the suite failed, if none of its tests did.
    pub(super) fault: Option<String>,
    ignored: usize,
    /// Its output besides events.
    stray: String,
    took: Duration,
}

impl Outcome {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tests: Vec::new(),
            fault: None,
            ignored: 0,
            stray: String::new(),
            took: Duration::ZERO,
        }
    }

    /// Adds a line of output.
    pub(super) fn add_line(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str(line) else {
            self.stray.push_str(line);
            self.stray.push('\n');
            return;
        };
        let Event::Test { event, name, exec_time, stdout } = event else { return };
        match event.as_str() {
            "ok" | "failed" => self.tests.push(Test {
                name,
                seconds: exec_time,
                has_failed: event == "failed",
                output: stdout,
            }),
            "ignored" => self.ignored += 1,
            _ => {}
        }
    }

    /// Records the end of the process, and its stderr.
    pub(super) fn end(&mut self, status: ExitStatus, took: Duration, stderr: &str) {
        self.took = took;
        if !status.success() && self.tests.iter().all(|test| !test.has_failed) {
            self.fault = Some(format!("the process ended with {status}"));
            self.stray.push_str(stderr);
        }
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.failed() == 0
    }

    pub(super) fn passed(&self) -> usize {
        self.tests.iter().filter(|test| !test.has_failed).count()
    }

    /// The number of failed tests; 1 more for a suite that aborted.
    pub(super) fn failed(&self) -> usize {
        self.tests.len() - self.passed() + usize::from(self.fault.is_some())
    }

    /// Prints the report, and a line for the suite.
    pub(super) fn print(&self) {
        let (passed, failed, ignored) = (self.passed(), self.failed(), self.ignored);
        let took = self.took.as_secs_f64();
        // One call, since other suites print at the same time.
        println!(
            "{}{:32} {passed:5} passed {failed:3} failed {ignored:3} ignored {took:6.1} s",
            self.report(),
            self.name
        );
    }

    /// The failures with their output, and the steps of the other tests.
    fn report(&self) -> String {
        let mut text = String::new();
        for test in self.tests.iter().filter(|test| test.has_failed) {
            text.extend(["---- ", &self.name, "::", &test.name, "\n", &test.output, "\n"]);
        }
        if self.fault.is_some() {
            text.push_str(&self.stray);
        }
        for test in self.tests.iter().filter(|test| !test.has_failed) {
            for step in test.output.lines().filter_map(|line| line.strip_prefix(STEP)) {
                text.extend([&self.name, "::", &test.name, ": ", step, "\n"]);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn aborted_suite_is_a_failure() {
        let mut outcome = Outcome::new("it");
        outcome.add_line(r#"{ "type": "suite", "event": "started", "test_count": 2 }"#);
        outcome.add_line(r#"{ "type": "test", "event": "started", "name": "a" }"#);
        outcome.add_line(r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.25 }"#);
        outcome.add_line("not an event");
        outcome.end(ExitStatus::from_raw(6), Duration::ZERO, "aborted");
        assert_eq!((outcome.passed(), outcome.failed()), (1, 1));
        assert!(outcome.stray.contains("not an event") && outcome.stray.contains("aborted"));
    }

    #[test]
    fn steps_of_a_passed_test_are_in_the_report() {
        let mut outcome = Outcome::new("it");
        outcome.add_line(
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 1.0, "stdout": "noise\nstep site: 3 s\n" }"#,
        );
        assert_eq!(outcome.report(), "it::a: site: 3 s\n");
    }

    #[test]
    fn failed_test_keeps_its_output() {
        let mut outcome = Outcome::new("it");
        outcome.add_line(
            r#"{ "type": "test", "name": "b", "event": "failed", "exec_time": 1.5, "stdout": "why" }"#,
        );
        outcome.end(ExitStatus::from_raw(256), Duration::ZERO, "");
        assert_eq!((outcome.passed(), outcome.failed(), outcome.fault.is_some()), (0, 1, false));
        assert_eq!((outcome.tests[0].seconds, &*outcome.tests[0].output), (1.5, "why"));
    }
}
