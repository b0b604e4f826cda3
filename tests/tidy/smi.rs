//! The tables of docs/smi.md: every row has a test or a reason. `cargo xtask docs` writes the names
//! of the tests.

use crate::tables::{tables, tests_in};

const PAGE: &str = "docs/smi.md";

/// The prefix of a reason instead of a test.
const REASON: &str = "not served: ";

#[test]
fn every_smi_rule_and_scenario_has_a_test_or_a_reason() {
    let tables = tables(PAGE);
    assert_eq!(tables.len(), 2, "{PAGE}");
    let mut problems = Vec::new();
    // After the heading and its separator line.
    for row in tables.iter().flat_map(|table| &table[2..]) {
        let Some((tests, what)) = row.split_last() else { continue };
        let has_reason = what.last().is_some_and(|words| words.starts_with(REASON));
        if tests_in(tests).next().is_none() && !has_reason {
            problems.push(format!("neither a test nor a reason: {what:?}"));
        }
    }
    assert!(problems.is_empty(), "{PAGE}\n{}", problems.join("\n"));
}
