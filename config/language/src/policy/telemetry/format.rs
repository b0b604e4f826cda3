//! The format of an access log: texts with Envoy's command operators, or JSON of such texts.
//!
//! Envoy rejects a whole listener because of one invalid format. So this module reports what Envoy would
//! reject.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ironmesh_catalog::{LogFormat, LogValue};

use super::operators::{self, OperatorProblem};
use crate::codes;
use crate::table::{FindingReported, Value};

/// The most characters of a format.
const LONGEST: usize = 4096;

/// The most depth of a JSON object.
const DEEPEST: usize = 8;

/// Reads a format. One that begins with `{` is JSON.
pub(super) fn read(value: Value<'_>) -> Result<LogFormat, FindingReported> {
    let text = check_length(value)?;
    if !text.trim_start().starts_with('{') {
        return Ok(LogFormat::Text(read_text(value)?));
    }
    let json = serde_json::from_str(text).map_err(|error| {
        let message = format!("`{}` begins with `{{` and is no JSON: {error}", value.key());
        let spot = value.part(place(text, error.line(), error.column()));
        let finding = value.error(codes::LOG_FORMAT, message).label("no JSON");
        let finding = ironmesh_catalog::Finding { spot: Some(spot), ..finding };
        value.report(finding.help("fix the JSON, or begin the text with something else"))
    })?;
    match read_value(value, text, &json, 0)? {
        LogValue::Object(fields) if !fields.is_empty() => Ok(LogFormat::Json(fields)),
        _ => {
            let message = format!("`{}` has no fields", value.key());
            let finding = value.error(codes::LOG_FORMAT, message).label("no fields");
            Err(value.report(finding.help("leave it out for the fields that are usual")))
        }
    }
}

/// Checks the format of a log in a file: an entry is one line. Otherwise an entry could pass as several, in
/// a file that other programs read.
pub(super) fn check_lines(value: Value<'_>, format: &LogFormat) -> Result<(), FindingReported> {
    let LogFormat::Text(text) = format else { return Ok(()) };
    let entry = text.strip_suffix('\n').unwrap_or(text);
    let Some(at) = entry.find(|c: char| c.is_control() && c != '\t') else { return Ok(()) };
    let message = "an entry of a log in a file is one line, and this format has several";
    let finding = value.error(codes::LOG_LINES, message).label("a line ends before the entry does");
    let spot = Some(value.part(at..at + 1));
    let finding = ironmesh_catalog::Finding { spot, ..finding };
    Err(value.report(finding.help("end only the whole format with `\\n`, or write it as JSON")))
}

/// Reads a text with command operators.
pub(super) fn read_text(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = check_length(value)?;
    check_operators(value, text, 0)?;
    Ok(text.into())
}

fn check_length(value: Value<'_>) -> Result<&str, FindingReported> {
    let text = value.string()?;
    let is_short = !text.is_empty() && text.chars().take(LONGEST + 1).count() <= LONGEST;
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if is_short && text.chars().all(is_plain) {
        return Ok(text);
    }
    let message = format!(
        "`{}` must be 1 to {LONGEST} characters without control characters but for ends of lines",
        value.key()
    );
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("invalid text")))
}

/// Reads a value of the JSON `text`.
fn read_value(
    value: Value<'_>,
    text: &str,
    json: &serde_json::Value,
    depth: usize,
) -> Result<LogValue, FindingReported> {
    let wrong = |what: &str, quoted: &str, help: &str| {
        let at = text.find(quoted).map_or(0..text.len(), |at| at..at + quoted.len());
        let finding = value.error(codes::LOG_FORMAT, what).label("not supported").help(help);
        let spot = Some(value.part(at));
        value.report(ironmesh_catalog::Finding { spot, ..finding })
    };
    match json {
        serde_json::Value::String(inner) => {
            // If JSON escapes a character in it, the spot is that of the whole text.
            let at = text.find(inner.as_str());
            check_operators_at(value, inner, at)?;
            Ok(LogValue::Text(inner.as_str().into()))
        }
        serde_json::Value::Object(_) if depth == DEEPEST => {
            let message = format!("the JSON of a format is at most {DEEPEST} objects deep");
            Err(wrong(&message, "{", "write fewer objects into each other"))
        }
        serde_json::Value::Object(fields) => {
            let read = fields.iter().map(|(name, inner)| {
                Ok((Arc::from(name.as_str()), read_value(value, text, inner, depth + 1)?))
            });
            let read: Vec<Result<_, FindingReported>> = read.collect();
            Ok(LogValue::Object(
                read.into_iter().collect::<Result<BTreeMap<_, _>, FindingReported>>()?,
            ))
        }
        other => {
            let quoted = other.to_string();
            let message = format!("a format takes texts and objects, not `{quoted}`");
            Err(wrong(&message, &quoted, "write it as a text, in quotes"))
        }
    }
}

fn check_operators(value: Value<'_>, text: &str, at: usize) -> Result<(), FindingReported> {
    check_operators_at(value, text, Some(at))
}

/// Reports the invalid operators of `text`, which stands at the byte `at` of the value if that is known.
fn check_operators_at(
    value: Value<'_>,
    text: &str,
    at: Option<usize>,
) -> Result<(), FindingReported> {
    let mut result = Ok(());
    for OperatorProblem { part, message, help } in operators::check(text) {
        let finding = value.error(codes::LOG_FORMAT, message).label("Envoy would reject it");
        let spot = at.map(|at| value.part(shifted(part, at)));
        let finding = ironmesh_catalog::Finding { spot: spot.or(finding.spot), ..finding };
        result = Err(value.report(finding.help(help)));
    }
    result
}

fn shifted(part: Range<usize>, by: usize) -> Range<usize> {
    part.start + by..part.end + by
}

/// The bytes of the character at a line and a column of `text`, both from 1.
fn place(text: &str, line: usize, column: usize) -> Range<usize> {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let at = (before + column.saturating_sub(1)).min(text.len());
    let mut at = at;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let end = text.get(at..).and_then(|rest| rest.chars().next()).map_or(at, |c| at + c.len_utf8());
    at..end
}
