//! Reads the tables of a page.

use crate::workspace::root;

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

/// The tests that a cell names.
pub(crate) fn tests_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}
