//! Events and summaries as plain lines.

use std::fmt::Write as _;

use jiff::Zoned;

use super::events::{Event, EventKind};
use super::facts::{DemoSetup, Facts, percent, shares, silence};
use super::hints::{hints, line};
use crate::tally::Count;

/// The introduction: what runs, where, and commands to try.
pub(super) fn begin(setup: &DemoSetup) -> String {
    let mut text = format!(
        "the bookstore runs: five services, each with its own Envoy {}\n\
         policy folder: {}\n\
         control plane: http://{}/readyz\n\
         try it, in another terminal:\n",
        setup.envoy,
        setup.policy_folder.display(),
        setup.admin
    );
    for hint in hints(&setup.policy_folder) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line(&hint, usize::MAX));
    }
    text
}

/// An event; a rejection includes its rendered findings.
pub(super) fn event(event: &Event) -> String {
    let mut text = format!("{} {}\n", time(&event.at), event.what.line());
    if let EventKind::PolicyRejected { rendered, .. } = &event.what {
        for line in rendered.lines() {
            let _ = writeln!(text, "         {line}");
        }
    }
    text
}

/// All counts as one line.
pub(super) fn summary(facts: &Facts, now: &Zoned) -> String {
    let sum =
        |part: fn(&Count) -> u64| facts.rows.iter().map(|(_, count)| part(count)).sum::<u64>();
    let [(first, first_share), (second, second_share)] = shares(facts);
    let silent = facts.silent.map(|seconds| format!("; {}", silence(seconds))).unwrap_or_default();
    format!(
        "{} {} ok, {} denied, {} failed; {first} {}, {second} {}{silent}\n",
        time(now),
        sum(|count| count.ok),
        sum(|count| count.denied),
        sum(|count| count.failed),
        percent(first_share),
        percent(second_share),
    )
}

/// The time of day.
pub(super) fn time(at: &Zoned) -> String {
    at.strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{facts, finding, noon, setup};
    use super::*;

    #[test]
    fn first_lines_name_the_policy_folder() {
        let text = begin(&setup());
        assert!(text.contains("policy folder: /tmp/ironmesh-demo-abcdef/policy\n"), "{text}");
        assert!(text.contains("cd /tmp/ironmesh-demo-abcdef/policy\n"), "{text}");
    }

    #[test]
    fn summary_shows_totals_split_and_silence() {
        let silent = Facts { silent: Some(7), ..facts() };
        let end = "10 %; the control plane has not answered for 7 s\n";
        assert!(summary(&silent, &noon()).ends_with(end));
        assert_eq!(
            summary(&facts(), &noon()),
            "12:00:00 1050 ok, 59 denied, 0 failed; bookstore-v1 90 %, bookstore-v2 10 %\n"
        );
    }

    #[test]
    fn policy_rejection_is_rendered_indented() {
        let what = EventKind::PolicyRejected {
            findings: vec![finding()],
            rendered: "error\n --> x\n".to_owned(),
        };
        assert_eq!(
            event(&Event { at: noon(), what }),
            "12:00:00 the policy is rejected, the previous policy stays active\n         \
             error\n          --> x\n"
        );
    }
}
