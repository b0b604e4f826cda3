//! The tables of docs/conformance.md: every rule has a test that exists, or a reason; and the
//! mutations show that these tests can fail.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::workspace::root;

/// The heading of the tables of rules.
const HEADING: [&str; 4] = ["rule", "both", "delta", "state of the world"];

/// The folders of the tests that a column names without a prefix.
const COLUMNS: [&str; 3] = [SCENARIOS, "xds/server/src/delta/tests", "xds/server/src/sotw/tests"];

/// The folder of the tests of both variants.
const SCENARIOS: &str = "xds/server/src/scenarios";

/// The folders of the tests with a prefix.
const PREFIXES: &[(&str, &str)] = &[
    ("scenarios", SCENARIOS),
    ("server", "xds/server/src"),
    ("wire", "xds/wire/src"),
    ("it", "tests/it"),
    ("envoy", "tests/envoy"),
    ("sim", "tests/sim"),
    ("cert", "cert/src/tests"),
    ("cli", "tests/cli"),
    ("config", "config/language/src/policy/tests"),
    ("catalog", "catalog/src"),
    ("snapshot", "catalog/src/snapshot/tests"),
    ("tests", "xds/compile/src/tests"),
];

/// The prefixes of a reason instead of a test.
const REASONS: [&str; 2] = ["does not apply: ", "not served: "];

#[test]
fn every_rule_of_xds_has_a_test_or_a_reason_in_both_variants() {
    let mut problems = Vec::new();
    let tables = tables("docs/conformance.md");
    let page: Vec<_> =
        tables.iter().filter(|table| table[0] == HEADING).flat_map(|table| &table[1..]).collect();
    let rules = rows("docs/reference/xds-rules.md");
    let wanted = (1..=10).map(|n| format!("rule {n}")).chain((1..=64).map(|n| format!("R{n}")));
    for rule in wanted {
        if !rules.iter().any(|row| row[0] == rule) {
            problems.push(format!("{rule}: xds-rules.md does not define it"));
        }
        match &page.iter().filter(|row| row[0] == rule).collect::<Vec<_>>()[..] {
            [row] if row.len() == HEADING.len() => {
                let cells = row[1..].iter().zip(COLUMNS);
                problems.extend(cells.filter_map(|(cell, folder)| {
                    let test = tests_in(cell).find(|test| !exists(test, folder))?;
                    Some(format!("{rule}: no test `{test}` (in {folder}, if no folder is named)"))
                }));
                problems.extend(coverage_problem(row).map(|why| format!("{rule}: {why}")));
            }
            found => problems.push(format!("{rule}: {} rows, and not one of four", found.len())),
        }
    }
    assert!(problems.is_empty(), "docs/conformance.md\n{}", problems.join("\n"));
}

/// Like [`exists`], where no column selects the variant; the name may.
pub(crate) fn exists_by_variant(test: &str) -> bool {
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
        // Tests of one variant are in their own files, those of `separate` are not. A scenario is
        // one function for both variants.
        let mut test = field("test").replace("::tests::", "::");
        if test.starts_with("scenarios::") {
            test = test.replace("::delta::", "::").replace("::sotw::", "::");
        }
        if !exists_by_variant(&test) {
            problems.push(format!("no test `{}`", field("test")));
        }
    }
    assert!(problems.is_empty(), "xtask/mutations.toml\n{}", problems.join("\n"));
}

/// The problem of a row, if any: each variant needs a test or a reason, and a rule that does not
/// apply to one has no test of both.
fn coverage_problem(row: &[String]) -> Option<String> {
    let is_reason = |cell: &&String| {
        let why = |reason: &str| cell.strip_prefix(reason).is_some_and(|why| !why.is_empty());
        REASONS.into_iter().any(why)
    };
    let [_, both, each @ ..] = row else { return Some("no cells".to_owned()) };
    let has_both = tests_in(both).next().is_some();
    if has_both && let Some(reason) = each.iter().find(is_reason) {
        return Some(format!("there is a test of both, and a reason not to have one: {reason:?}"));
    }
    let lacks = |cell: &&String| !has_both && !is_reason(cell) && tests_in(cell).next().is_none();
    each.iter().find(lacks).map(|cell| format!("neither a test nor a reason: {cell:?}"))
}

/// The tests that a cell names.
pub(crate) fn tests_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn exists(test: &str, folder: &str) -> bool {
    let Some((file, function)) = test.rsplit_once("::") else { return false };
    let path = match file.split_once("::") {
        Some((prefix, file)) => PREFIXES
            .iter()
            .find(|(name, _)| *name == prefix)
            .map(|(_, folder)| PathBuf::from(folder).join(file.replace("::", "/"))),
        None => Some(PathBuf::from(folder).join(file.replace("::", "/"))),
    };
    let Some(path) = path else { return false };
    let Ok(text) = fs_err::read_to_string(root().join(path).with_extension("rs")) else {
        return false;
    };
    tests_of(&text).contains(function)
}

/// The names of a file's test functions, and of the scenarios that tests are made of.
fn tests_of(text: &str) -> BTreeSet<&str> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_mark = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let functions = lines.windows(2).filter_map(|pair| {
        let [mark, line] = pair else { return None };
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        function.split('(').next().filter(|_| is_mark(mark))
    });
    let list = text.split_once("in_both_variants! {").and_then(|(_, rest)| rest.split_once('}'));
    let scenarios = list.into_iter().flat_map(|(list, _)| list.split(',').map(str::trim));
    functions.chain(scenarios).collect()
}

/// The rows of all tables of a page, as cells.
fn rows(page: &str) -> Vec<Vec<String>> {
    tables(page).into_iter().flatten().collect()
}

/// The tables of a page: headings, then rows.
pub(crate) fn tables(page: &str) -> Vec<Vec<Vec<String>>> {
    let text = fs_err::read_to_string(root().join(page)).unwrap();
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(line.split('|').map(|cell| cell.trim().to_owned()).collect())
    };
    let lines: Vec<_> = text.lines().map(cells).collect();
    let tables = lines.split(Option::is_none).filter(|rows| !rows.is_empty());
    tables.map(|rows| rows.iter().flatten().cloned().collect()).collect()
}
