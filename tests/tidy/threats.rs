//! The tables of docs/concepts/threats.md: each row has tests that exist, or a reason why it has none.

use crate::tables::tables;
use crate::workspace::root;

const PAGE: &str = "docs/concepts/threats.md";

/// The heading of each table.
const HEADING: [&str; 4] = ["An attacker with", "Gets", "Does not get", "Tests"];

/// The prefix of a reason why a part of a row has no test.
const NOT_TESTED: &str = "not tested";

#[test]
fn every_threat_has_tests_that_exist_or_a_reason() {
    let (mut problems, mut count) = (Vec::new(), 0);
    for table in tables(PAGE) {
        assert_eq!(table[0], HEADING, "{PAGE}");
        // After the heading and its separator line.
        for row in &table[2..] {
            let [attacker, gets, lacks, tests] = &row[..] else {
                problems.push(format!("not a row of four: {row:?}"));
                continue;
            };
            if [attacker, gets, lacks].into_iter().any(String::is_empty) {
                problems.push(format!("{attacker}: an empty cell"));
            }
            let named: Vec<_> = linked_tests(tests).collect();
            if named.is_empty() && !tests.starts_with(NOT_TESTED) {
                problems.push(format!("{attacker}: neither a test nor a reason"));
            }
            count += named.len();
            let missing = named.into_iter().filter(|(name, file)| !has_test(file, name));
            problems
                .extend(missing.map(|(name, file)| format!("{attacker}: no `{name}` in {file}")));
        }
    }
    assert!(count > 50, "only {count} tests found");
    assert!(problems.is_empty(), "{PAGE}\n{}", problems.join("\n"));
}

/// The tests that a cell links, each as its name and its file.
fn linked_tests(cell: &str) -> impl Iterator<Item = (&str, &str)> {
    cell.split("[`").skip(1).filter_map(|link| {
        let (name, rest) = link.split_once("`](../../")?;
        Some((name, rest.split_once(')')?.0))
    })
}

/// Whether a file has a test of this name: a function after an attribute that ends with `test`, and perhaps arguments.
fn has_test(file: &str, name: &str) -> bool {
    let Ok(text) = fs_err::read_to_string(root().join(file)) else { return false };
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let before = before.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let above = before.lines().rev().map(str::trim_start);
    let is_attribute = |line: &&str| line.starts_with("#[") || line.starts_with("//");
    let is_test = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
    above.take_while(is_attribute).any(is_test)
}

#[test]
fn only_functions_with_a_test_attribute_are_tests() {
    assert!(has_test("tests/tidy/threats.rs", "only_functions_with_a_test_attribute_are_tests"));
    assert!(!has_test("tests/tidy/threats.rs", "has_test"));
    assert!(!has_test("tests/tidy/no.rs", "has_test"));
}
