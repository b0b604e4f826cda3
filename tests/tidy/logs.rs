//! The reference of the log has each event that the control plane logs as information, a warning or an error, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;

use crate::source::{shipped_sources, string_literals};
use crate::workspace::root;

/// Folders whose code does not run in `ironmesh serve`.
const OTHER_PROGRAMS: [&str; 4] = ["agent", "demo", "cmd/src/agent", "cmd/src/envoy"];

/// The macros of events that operators see by default.
const MACROS: [&str; 3] = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];

#[test]
fn reference_of_the_log_has_exactly_its_events() {
    let sources = shipped_sources();
    let is_other = |path: &Path| OTHER_PROGRAMS.iter().any(|other| path.starts_with(other));
    let mut logged = BTreeSet::new();
    for (_, source) in sources.iter().filter(|(path, _)| !is_other(path)) {
        logged.extend(MACROS.iter().flat_map(|start| events(source, start)));
    }
    assert!(logged.len() > 100, "only {} events found", logged.len());
    let page = fs::read_to_string(root().join("docs/reference/logs.md")).unwrap();
    let documented = documented(&page);
    let missing: Vec<_> = logged.difference(&documented).collect();
    assert!(missing.is_empty(), "events without a row in docs/reference/logs.md: {missing:#?}");
    // A few come from a macro or a constant.
    let literals: BTreeSet<_> =
        sources.iter().flat_map(|(_, source)| string_literals(source)).collect();
    let is_gone = |event: &&String| !logged.contains(*event) && !literals.contains(&***event);
    let gone: Vec<_> = documented.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "rows of docs/reference/logs.md without an event: {gone:#?}");
}

/// The messages of the events that this macro logs: the last text in it. Messages that begin with a value are findings.
fn events(source: &str, start: &str) -> Vec<String> {
    let bodies = source.split(start).skip(1).map(|rest| &rest[..body_length(rest)]);
    let messages = bodies.filter_map(|body| string_literals(body).last().copied());
    messages.filter(|text| !text.starts_with('{')).map(with_ellipses).collect()
}

/// The length up to the parenthesis that closes the macro.
fn body_length(text: &str) -> usize {
    let literals = string_literals(text);
    let (mut depth, mut at, mut literal) = (1, 0, literals.into_iter());
    while let Some(found) = text[at..].find(['(', ')', '"']) {
        at += found;
        match text[at..].chars().next() {
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            _ => at += 1 + literal.next().map_or(0, str::len),
        }
        if depth == 0 {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// A message with `…` for each value in it.
fn with_ellipses(message: &str) -> String {
    let mut parts = message.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "…" + part.split_once('}').map_or("", |(_, rest)| rest))
}

/// The events in the first columns of the tables below `## Events`.
fn documented(page: &str) -> BTreeSet<String> {
    let section = page.split_once("\n## Events\n").unwrap().1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once(" | ").map(|(cell, _)| cell));
    let events = cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `"));
    events.map(str::to_owned).collect()
}

#[test]
fn events_are_found_beside_fields_and_values() {
    let source = "tracing::warn!(a = f(1), reason = \"x (\", \"lost; {}\", g());\n\
                  tracing::warn!(\"{finding}\"); tracing::info!(\"other\");";
    assert_eq!(events(source, "tracing::warn!("), ["lost; …"]);
    assert_eq!(events(source, "tracing::info!("), ["other"]);
}
