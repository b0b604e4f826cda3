//! `[service]` in place of `[[service]]`. The parser merges all tables of that name into one, and reports
//! each further header and each repeated key as a duplicate. So this module reports the mistake once, instead
//! of key by key.

use std::ops::Range;

use ironmesh_catalog::{Finding, Spot};
use toml::de::{DeTable, Error};

use crate::codes;
use crate::table::Reader;

/// The parser's message about a duplicate header or key.
const DUPLICATE: &str = "duplicate key";

/// The tables of one kind that are written with single brackets.
pub(super) struct SingleTables {
    kind: &'static str,
    /// The first of their headers.
    first: Range<usize>,
    others: Vec<Range<usize>>,
}

/// The kinds whose tables have single brackets in `text`, by the parser's result.
pub(super) fn find(
    text: &str,
    root: &DeTable<'_>,
    errors: &[Error],
    kinds: impl IntoIterator<Item = &'static str>,
) -> Vec<SingleTables> {
    let duplicates = errors.iter().filter(|error| is_duplicate(error));
    let duplicates: Vec<_> = duplicates.filter_map(Error::span).collect();
    let of_kind = |kind: &'static str| {
        let is_table = root.get(kind).is_some_and(|value| value.get_ref().is_table());
        // For several headers the parser names the last. A line in a text that looks like a header adds one
        // needless spot at worst.
        let headers: Vec<_> = headers(text, kind).collect();
        let is_reported =
            |header: &Range<usize>| duplicates.contains(&(header.start + 1..header.end - 1));
        let is_single = is_table || headers.iter().any(is_reported);
        let (first, others) = headers.split_first().filter(|_| is_single)?;
        Some(SingleTables { kind, first: first.clone(), others: others.to_vec() })
    };
    kinds.into_iter().filter_map(of_kind).collect()
}

/// The headers with single brackets around the name of a kind, each at the beginning of a line.
fn headers(text: &str, kind: &str) -> impl Iterator<Item = Range<usize>> {
    let header = format!("[{kind}]");
    let lines = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at + line.len() - line.trim_start().len();
        *at += line.len();
        Some((start, line.trim_start()))
    });
    let length = header.len();
    let lines = lines.filter(move |(_, line)| line.starts_with(&header));
    lines.map(move |(start, _)| start..start + length)
}

impl SingleTables {
    /// The one finding about these tables.
    pub(super) fn finding(&self, reader: &Reader<'_>) -> Finding {
        finding(self.kind, reader.spot(self.first.clone()), self.others.len())
    }

    /// Whether `other` is about these tables, too.
    pub(super) fn is_in(&self, other: &Finding) -> bool {
        let is_at = |spot: &Spot, header: &Range<usize>| spot.bytes == (header.start, header.end);
        let mut headers = std::iter::once(&self.first).chain(&self.others);
        other.code == codes::WRONG_TYPE
            && other.spot.as_ref().is_some_and(|spot| headers.any(|header| is_at(spot, header)))
    }

    /// Whether these tables cause the parser's `error`.
    pub(super) fn explains(&self, error: &Error, text: &str) -> bool {
        let Some(Range { start, .. }) = error.span().filter(|_| is_duplicate(error)) else {
            return false;
        };
        let line_end = text.get(start..).and_then(|rest| rest.find('\n'));
        let until = line_end.map_or(text.len(), |end| start + end);
        let lines = text.get(..until).unwrap_or("").lines();
        let section = lines.rev().find_map(kind_of_header);
        start >= self.first.start && section == Some(self.kind)
    }
}

/// The finding about a kind with single brackets at `spot`, and at so many `more` spots.
pub(super) fn finding(kind: &str, spot: Spot, more: usize) -> Finding {
    let message = format!("`{kind}` must be an array of tables, not a table");
    let places = match more {
        0 => String::new(),
        1 => ", here and in 1 more place".to_owned(),
        more => format!(", here and in {more} more places"),
    };
    let finding = Finding::error(codes::WRONG_TYPE, Some(spot), message).label("one table");
    finding.help(format!("write `[[{kind}]]`{places}"))
}

fn is_duplicate(error: &Error) -> bool {
    error.message() == DUPLICATE
}

/// The kind that a line names, if it is the header of a table of the kind, or of a table in it.
fn kind_of_header(line: &str) -> Option<&str> {
    let inside = line.trim_start().strip_prefix('[')?;
    let inside = inside.strip_prefix('[').unwrap_or(inside).trim_start();
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (kind, rest) = inside.split_at(inside.find(|c| !is_of_key(c))?);
    rest.trim_start().starts_with(['.', ']']).then_some(kind)
}
