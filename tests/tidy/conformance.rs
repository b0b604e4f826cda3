//! The tables of docs/conformance.md: every rule has a test or a reason. `cargo xtask docs` writes
//! the names of the tests.

use crate::tables::{tables, tests_in};

/// The heading of the tables of rules.
const HEADING: [&str; 4] = ["rule", "both", "delta", "state of the world"];

/// The prefixes of a reason instead of a test.
const REASONS: [&str; 2] = ["does not apply: ", "not served: "];

#[test]
fn every_rule_of_xds_has_a_test_or_a_reason_in_both_variants() {
    let mut problems = Vec::new();
    let of_page = tables("docs/conformance.md");
    let page: Vec<_> = of_page.iter().filter(|table| table[0] == HEADING).flatten().collect();
    let rules = tables("docs/reference/xds-rules.md").concat();
    let wanted = (1..=10).map(|n| format!("rule {n}")).chain((1..=66).map(|n| format!("R{n}")));
    for rule in wanted {
        if !rules.iter().any(|row| row[0] == rule) {
            problems.push(format!("{rule}: xds-rules.md does not define it"));
        }
        match page.iter().find(|row| row[0] == rule).map(|row| &row[1..]) {
            Some([both, each @ ..])
                if is_tested(both) || each.iter().all(|cell| is_tested_or_excused(cell)) => {}
            Some(cells) => problems.push(format!("{rule}: neither a test nor a reason: {cells:?}")),
            None => problems.push(format!("{rule}: no row")),
        }
    }
    assert!(problems.is_empty(), "docs/conformance.md\n{}", problems.join("\n"));
}

fn is_tested(cell: &str) -> bool {
    tests_in(cell).next().is_some()
}

fn is_tested_or_excused(cell: &str) -> bool {
    let has = |reason: &str| cell.strip_prefix(reason).is_some_and(|why| !why.is_empty());
    is_tested(cell) || REASONS.into_iter().any(has)
}
