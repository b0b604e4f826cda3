//! The tables of docs/conformance.md: every rule is held by a test that exists, or has a reason; and the
//! mutations that show that these tests can fail.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::workspace::root;

/// Where the tests are that a column names without a prefix.
const COLUMNS: [&str; 2] = ["xds/server/src/delta/tests", "xds/server/src/sotw/tests"];

/// Where those with a prefix are.
const PREFIXES: &[(&str, &str)] = &[
    ("server", "xds/server/src"),
    ("wire", "xds/wire/src"),
    ("it", "tests/it"),
    ("envoy", "tests/envoy"),
    ("sim", "tests/sim"),
];

/// How a reason begins that stands in the place of a test.
const REASONS: [&str; 2] = ["does not apply: ", "not served: "];

/// The cases of bad input that are promised.
const BAD_INPUT: [u32; 17] = [8, 9, 10, 11, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 35];

#[test]
fn every_rule_of_xds_has_a_test_or_a_reason_in_both_variants() {
    let mut problems = Vec::new();
    let page = rows("docs/conformance.md");
    let rules = rows("docs/reference/xds-rules.md");
    let wanted = (1..=10).map(|n| format!("rule {n}")).chain((1..=64).map(|n| format!("R{n}")));
    for rule in wanted {
        if !rules.iter().any(|row| row[0] == rule) {
            problems.push(format!("{rule}: xds-rules.md does not say what it is"));
        }
        match &page.iter().filter(|row| row[0] == rule && row.len() == 3).collect::<Vec<_>>()[..] {
            [row] => {
                for (cell, folder) in row[1..].iter().zip(COLUMNS) {
                    problems.extend(problem(cell, folder).map(|problem| {
                        format!("{rule}: {problem} (in {folder}, where nothing else is said)")
                    }));
                }
            }
            found => problems.push(format!("{rule}: {} rows, and not one", found.len())),
        }
    }
    assert!(problems.is_empty(), "docs/conformance.md\n{}", problems.join("\n"));
}

#[test]
fn every_case_of_bad_input_has_a_test() {
    let page = rows("docs/conformance.md");
    let mut problems = Vec::new();
    for case in BAD_INPUT.map(|number| format!("A{number}")) {
        match &page.iter().filter(|row| row[0] == case).collect::<Vec<_>>()[..] {
            [row] if row.len() == 4 => {
                let tests: Vec<_> = row[3].split('`').skip(1).step_by(2).collect();
                let missing = tests.iter().filter(|test| !exists_by_variant(test));
                problems.extend(missing.map(|test| format!("{case}: no test `{test}`")));
                if tests.is_empty() {
                    problems.push(format!("{case}: no test"));
                }
            }
            found => problems.push(format!("{case}: {} rows, and not one of four", found.len())),
        }
    }
    assert!(problems.is_empty(), "docs/conformance.md\n{}", problems.join("\n"));
}

/// The same as [`exists`] where no column says which variant is meant, and the name does.
fn exists_by_variant(test: &str) -> bool {
    match test.split_once("::") {
        Some((variant @ ("delta" | "sotw"), test)) => {
            exists(test, &format!("xds/server/src/{variant}/tests"))
        }
        _ => exists(test, "xds/server/src"),
    }
}

#[test]
fn every_mutation_still_applies() {
    let text = fs_err::read_to_string(root().join("xtask/mutations.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let mut problems = Vec::new();
    for mutation in table["mutation"].as_array().unwrap() {
        let field = |name: &str| mutation[name].as_str().unwrap();
        let source = fs_err::read_to_string(root().join(field("file"))).unwrap();
        if source.matches(field("from")).count() != 1 {
            problems.push(format!("not once in {}: {}", field("file"), field("from")));
        }
        // The tests of a variant are in files of their own, those of `separate` are not.
        if !exists_by_variant(&field("test").replace("::tests::", "::")) {
            problems.push(format!("no test `{}`", field("test")));
        }
    }
    assert!(problems.is_empty(), "xtask/mutations.toml\n{}", problems.join("\n"));
}

/// What is wrong with a cell of the table, if anything.
fn problem(cell: &str, folder: &str) -> Option<String> {
    let tests: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
    let is_reason = |reason: &str| cell.strip_prefix(reason).is_some_and(|why| !why.is_empty());
    if tests.is_empty() && !REASONS.into_iter().any(is_reason) {
        return Some(format!("neither a test nor a reason: {cell:?}"));
    }
    tests.into_iter().find(|test| !exists(test, folder)).map(|test| format!("no test `{test}`"))
}

fn exists(test: &str, folder: &str) -> bool {
    let Some((file, function)) = test.rsplit_once("::") else { return false };
    let path = match file.split_once("::") {
        Some((prefix, file)) => PREFIXES
            .iter()
            .find(|(name, _)| *name == prefix)
            .map(|(_, folder)| PathBuf::from(folder).join(file)),
        None => Some(PathBuf::from(folder).join(file)),
    };
    let Some(path) = path else { return false };
    let Ok(text) = fs_err::read_to_string(root().join(path).with_extension("rs")) else {
        return false;
    };
    tests_of(&text).contains(function)
}

/// The names of the test functions of a file.
fn tests_of(text: &str) -> BTreeSet<&str> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_mark = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let functions = lines.windows(2).filter_map(|pair| {
        let [mark, line] = pair else { return None };
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        function.split('(').next().filter(|_| is_mark(mark))
    });
    functions.collect()
}

/// The rows of all tables of a page, as their cells.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = fs_err::read_to_string(root().join(page)).unwrap();
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(line.split('|').map(|cell| cell.trim().to_owned()).collect())
    };
    text.lines().filter_map(cells).collect()
}
