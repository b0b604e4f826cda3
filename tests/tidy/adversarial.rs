//! The tables of docs/adversarial.md: each case occurs once, and has tests or belongs elsewhere.
//! `cargo xtask docs` writes the names of the tests.

use crate::tables::{tables, tests_in};
use crate::workspace::root;

const PAGE: &str = "docs/adversarial.md";

/// The headings of the two tables.
const MEASURED_COLUMNS: [&str; 5] =
    ["case", "what comes", "what happens", "tests", "others are measured in"];
const OTHER_COLUMNS: [&str; 3] = ["cases", "what comes", "where it belongs"];

/// The number of cases.
const CASES: u32 = 85;

/// The prefix of a reason why other clients are not measured.
const NOT_MEASURED: &str = "not measured: ";

#[test]
fn every_adversarial_case_is_tested_or_belongs_elsewhere() {
    let tables = tables(PAGE);
    let of = |heading: &[&str]| {
        let table = tables.iter().find(|table| table[0] == heading);
        table.unwrap_or_else(|| panic!("{PAGE} has no table of {heading:?}"))
    };
    // After the heading and its separator line.
    let (here, elsewhere) = (&of(&MEASURED_COLUMNS)[2..], &of(&OTHER_COLUMNS)[2..]);
    let mut problems = Vec::new();
    for case in 1..=CASES {
        let rows = here.iter().filter(|row| row[0] == format!("A{case}")).count()
            + elsewhere.iter().filter(|row| is_within(case, &row[0])).count();
        if rows != 1 {
            problems.push(format!("A{case}: {rows} rows, and not one"));
        }
    }
    for row in here {
        let [case, _, happens, tests, others] = &row[..] else {
            problems.push(format!("not a row of five: {row:?}"));
            continue;
        };
        if happens.is_empty() || tests_in(tests).next().is_none() {
            problems.push(format!("{case}: nothing happens, or no test shows it"));
        }
        let is_told_why = others.strip_prefix(NOT_MEASURED).is_some_and(|why| !why.is_empty());
        if !is_told_why && tests_in(others).next().is_none() {
            problems
                .push(format!("{case}: other clients are not measured, and no reason is given"));
        }
        let alone =
            tests_in(others).filter(|test| test.starts_with("it::") && !has_bystander(test));
        problems.extend(alone.map(|test| format!("{case}: no bystander in `{test}`")));
    }
    assert!(problems.is_empty(), "{PAGE}\n{}", problems.join("\n"));
}

/// Whether a case is in `A7` or `A7 to A9`.
fn is_within(case: u32, cases: &str) -> bool {
    let number = |text: &str| text.trim().strip_prefix('A')?.parse::<u32>().ok();
    match cases.split_once(" to ") {
        Some((first, last)) => number(first) <= Some(case) && Some(case) <= number(last),
        None => number(cases) == Some(case),
    }
}

/// Whether a test of `tests/it` checks that another client is served meanwhile.
fn has_bystander(test: &str) -> bool {
    let Some([_, file, name]) = test.split("::").collect::<Vec<_>>().first_chunk::<3>().copied()
    else {
        return false;
    };
    let path = root().join("tests/it").join(file).with_extension("rs");
    let text = fs_err::read_to_string(path).unwrap();
    let body = text.split_once(&format!("fn {name}(")).map(|(_, rest)| rest);
    body.and_then(|body| body.split("\n}").next())
        .is_some_and(|body| body.contains("assert_served("))
}
