//! TOML syntax: reads whole documents, and turns syntax errors into findings. Where the parser names only
//! what it expected, the finding advises what to write.

use std::ops::Range;

use ironmesh_catalog::Finding;
use toml::de::{DeTable, Error};

use crate::codes;
use crate::document::Document;
use crate::table::{FindingReported, Reader, Table};

/// The parser's message about a string without quotes.
const UNQUOTED: &str = "string values must be quoted";

/// The longest value that is repeated in a suggestion, in bytes.
const LONGEST: usize = 80;

/// Reads the top table of a TOML document; `what` names the document in findings. Returns the value, or all
/// findings in order: a document with any finding has no value.
pub fn read_whole<T>(
    document: &Document,
    what: &'static str,
    read: impl FnOnce(&mut Table<'_>) -> Result<T, FindingReported>,
) -> Result<T, Vec<Finding>> {
    let (root, errors) = DeTable::parse_recoverable(&document.text);
    let reader = Reader::new(document);
    if !errors.is_empty() {
        // The text recovered around a syntax error is a guess.
        for error in errors {
            reader.report(finding(&reader, &error));
        }
        return Err(reader.take_findings().in_order());
    }
    let mut table = Table::new(&reader, root.get_ref(), 0..0, what);
    let value = read(&mut table);
    table.finish();
    let findings = reader.take_findings().in_order();
    match value {
        Ok(value) if findings.is_empty() => Ok(value),
        _ => Err(findings),
    }
}

/// The bytes of a syntax error.
pub(crate) fn span(text: &str, error: &Error) -> Range<usize> {
    error.span().unwrap_or(text.len()..text.len())
}

/// The finding of a syntax error in the text of `reader`.
pub(crate) fn finding(reader: &Reader<'_>, error: &Error) -> Finding {
    let text = reader.text();
    let span = span(text, error);
    let spot = Some(reader.spot(span.clone()));
    if error.message().starts_with(UNQUOTED)
        && let Some(value) = value_at(text, span.clone())
    {
        let message = format!("`{value}` is a string without quotes");
        let assignment = key_before(text, span.start).map_or_else(String::new, |key| key + " = ");
        let help = format!("strings are quoted: write `{assignment}\"{value}\"`");
        return Finding::error(codes::SYNTAX, spot, message).label("not quoted").help(help);
    }
    Finding::error(codes::SYNTAX, spot, error.message()).label("here")
}

/// The value at `span`, unless quotes would have to escape something in it.
fn value_at(text: &str, span: Range<usize>) -> Option<&str> {
    let value = text.get(span)?.trim();
    let is_plain = !value.is_empty()
        && value.len() <= LONGEST
        && !value.contains(['"', '\'', '\\', '`'])
        && !value.contains(char::is_control);
    is_plain.then_some(value)
}

/// The key whose value begins at `at`; `None` in an array.
fn key_before(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?.trim_end_matches([' ', '\t']).strip_suffix('=')?.trim_end();
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let start = before.trim_end_matches(is_of_key).len();
    before.get(start..).filter(|key| !key.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let document = Document::new("p.toml", text);
        let reader = Reader::new(&document);
        let (_, errors) = DeTable::parse_recoverable(&document.text);
        let in_line = |error: &Error| {
            let finding = finding(&reader, error);
            let spot = finding.spot.as_ref().unwrap();
            let help = finding.help.clone().unwrap_or_default();
            format!("{}:{}: {} / {help}", spot.line, spot.column, finding.message)
        };
        errors.iter().map(in_line).collect()
    }

    #[test]
    fn unquoted_string_is_reported_with_the_quoted_one() {
        for (text, expected) in [
            (
                "name = store\n",
                "1:8: `store` is a string without quotes / strings are quoted: write `name = \"store\"`",
            ),
            (
                "a = 1\nports = [{ port = 80, protocol = http }]\n",
                "2:34: `http` is a string without quotes / strings are quoted: write `protocol = \"http\"`",
            ),
            (
                "sources = [a-b]\n",
                "1:12: `a-b` is a string without quotes / strings are quoted: write `\"a-b\"`",
            ),
            (
                "\"a b\" = 30s # comment\n",
                "1:9: `30s` is a string without quotes / strings are quoted: write `\"30s\"`",
            ),
        ] {
            assert_eq!(findings(text), [expected], "{text}");
        }
    }

    #[test]
    fn other_syntax_error_keeps_the_parser_message() {
        let found = findings("name = a\"b\nport = 1.2.3\n");
        assert!(found.iter().all(|line| !line.contains("without quotes")), "{found:#?}");
        assert!(!found.is_empty());
    }
}
