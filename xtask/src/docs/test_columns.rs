//! The columns of tables that name tests: each row has the tests of the rule in its first cell.
//!
//! The other cells are written by hand. So is a reason in front of the tests of a cell, or in
//! place of them.

use std::collections::BTreeSet;

use anyhow::ensure;

use super::tag::{Note, Rule};
use super::tagged_tests::TaggedTest;

#[cfg(test)]
mod tests;

/// The beginning of the reason of a variant to which a rule does not apply.
const NOT_APPLICABLE: &str = "does not apply: ";

/// A column of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    All,
    /// Tests with a bystander.
    Bystander,
    /// Tests of both variants of the protocol.
    Both,
    /// Tests of one variant.
    Variant(Note),
}

impl Column {
    fn of_heading(heading: &str) -> Option<Self> {
        match heading {
            "tests" => Some(Self::All),
            "others are measured in" => Some(Self::Bystander),
            "both" => Some(Self::Both),
            "delta" => Some(Self::Variant(Note::Delta)),
            "state of the world" => Some(Self::Variant(Note::Sotw)),
            _ => None,
        }
    }

    /// Whether the column names the test. If a rule applies to `only` one variant, this variant
    /// has the tests of both.
    fn has(self, test: &TaggedTest, only: Option<Note>) -> bool {
        let is_of_both = !test.is_only_of(Note::Delta) && !test.is_only_of(Note::Sotw);
        match self {
            Self::All => true,
            Self::Bystander => test.has_bystander(),
            Self::Both => is_of_both && only.is_none(),
            Self::Variant(variant) => {
                test.is_only_of(variant) || (is_of_both && only == Some(variant))
            }
        }
    }
}

/// The page with the names of the tests, and the rules that its tables have.
pub(super) fn fill(page: &str, tests: &[TaggedTest]) -> anyhow::Result<(String, BTreeSet<Rule>)> {
    let (mut filled, mut rules) = (String::new(), BTreeSet::new());
    let mut columns: Option<Vec<Option<Column>>> = None;
    for line in page.split_inclusive('\n') {
        let Some(cells) = cells(line) else {
            columns = None;
            filled.push_str(line);
            continue;
        };
        let columns = columns.get_or_insert_with(|| {
            cells.iter().map(|heading| Column::of_heading(heading)).collect()
        });
        let rule = cells.first().and_then(|cell| Rule::parse(cell));
        match rule.filter(|_| columns.iter().any(Option::is_some)) {
            Some(rule) => {
                ensure!(columns.len() == cells.len(), "not {} cells: {line}", columns.len());
                filled.push_str(&row(&rule, columns, &cells, tests));
                ensure!(rules.insert(rule), "two rows of one rule: {line}");
            }
            None => filled.push_str(line),
        }
    }
    Ok((filled, rules))
}

/// The row of a rule, with the names of its tests.
fn row(rule: &Rule, columns: &[Option<Column>], cells: &[&str], tests: &[TaggedTest]) -> String {
    let applies = |variant| {
        let mut both = columns.iter().zip(cells);
        !both.any(|(column, cell)| {
            *column == Some(Column::Variant(variant)) && cell.starts_with(NOT_APPLICABLE)
        })
    };
    let only = match (applies(Note::Delta), applies(Note::Sotw)) {
        (true, false) => Some(Note::Delta),
        (false, true) => Some(Note::Sotw),
        _ => None,
    };
    let tests: Vec<_> = tests.iter().filter(|test| test.rules().contains(rule)).collect();
    let mut row = "|".to_owned();
    for (column, cell) in columns.iter().zip(cells) {
        let cell = match column {
            None => (*cell).to_owned(),
            Some(column) => {
                let named = tests.iter().filter(|test| column.has(test, only));
                let named: Vec<_> = named.map(|test| format!("`{}`", test.name)).collect();
                let reason = cell.split('`').next().unwrap_or_default().trim_end_matches("; ");
                let parts = [reason.to_owned(), named.join(", ")];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
            }
        };
        if !cell.is_empty() {
            row.extend([" ", &cell]);
        }
        row.push_str(" |");
    }
    row + "\n"
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_end().strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(str::trim).collect())
}
