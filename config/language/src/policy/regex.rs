//! Regular expressions. Envoy reads them with RE2. This module parses them with Rust's parser, and rejects
//! whatever RE2 rejects or reads differently, so that no expression has two meanings.
//!
//! The accepted language is a subset of both, and its expressions are small enough for Envoy when compiled.

mod class;
mod dialect;
mod groups;
mod possible;
mod query;
mod size;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use ironmesh_catalog::{Finding, PathRegex};
use regex_syntax::ast::{Ast, ErrorKind, parse::Parser};

use self::possible::Impossible;
use self::size::RegexContext;
use crate::codes;
use crate::table::{FindingReported, Value};

/// Reads an expression on values of the header `value.key()`; warns if no value can match.
pub(super) fn read_header(value: Value<'_>) -> Result<Arc<str>, FindingReported> {
    let text = value.string()?;
    if text.is_empty() {
        let finding = value.error(codes::REGEX, "an empty expression: Envoy takes none");
        return Err(value.report(finding.label("empty").help("write `^$` for an empty value")));
    }
    let is_host = value.key().eq_ignore_ascii_case("host");
    read(value, text, if is_host { RegexContext::Host } else { RegexContext::Nothing })?;
    Ok(text.into())
}

/// Reads an expression on paths; warns if no path can match.
pub(super) fn read_path(value: Value<'_>) -> Result<PathRegex, FindingReported> {
    let text = value.string()?;
    let ast = read(value, text, RegexContext::Path)?;
    Ok(PathRegex { text: text.into(), before_query: query::before(&ast, text).map(Arc::from) })
}

/// Reads an expression on the beginning of paths, with its number of groups; warns if no path can match.
pub(super) fn read_replaced(value: Value<'_>) -> Result<(Arc<str>, u32), FindingReported> {
    let text = value.string()?;
    let ast = read(value, text, RegexContext::Path)?;
    Ok((text.into(), groups::count(&ast)))
}

fn read(value: Value<'_>, text: &str, around: RegexContext) -> Result<Ast, FindingReported> {
    let ast = parse(value, text, around)?;
    if let Some(impossible) = possible::problem(&ast, text, around) {
        value.report(matches_nothing(value, text, around, impossible));
    }
    Ok(ast)
}

/// The longest expression that is parsed: a longer one is too large for Envoy, or padded.
const MOST_BYTES: usize = 8192;

fn matches_nothing(
    value: Value<'_>,
    text: &str,
    around: RegexContext,
    impossible: Impossible,
) -> Finding {
    let what = match around {
        RegexContext::Path => "path",
        RegexContext::Host => "host",
        RegexContext::Nothing => "value",
    };
    let (why, help) = match (impossible, around) {
        (Impossible::Beginning, _) => ("paths begin with `/`", format!("write `/{text}`")),
        (Impossible::Character, RegexContext::Path) => (
            "paths are compared without their query",
            "leave out the `\\?` and what is behind it".to_owned(),
        ),
        (Impossible::Character, RegexContext::Host) => (
            "hosts have neither a scheme nor a path",
            "write the name alone, as in `books[.]example[.]com`".to_owned(),
        ),
        (Impossible::Character, RegexContext::Nothing) => (
            "values of headers are one line",
            "leave out what matches the end of a line".to_owned(),
        ),
        (Impossible::Contradiction, _) => (
            "it contradicts itself",
            "a class such as `[^\\s\\S]` has no character, and nothing is before `^` or behind `$`"
                .to_owned(),
        ),
    };
    let spot = Some(value.part(0..text.len()));
    let message = format!("no {what} matches `{text}`: {why}");
    Finding::warning(codes::REGEX, spot, message).label("matches nothing").help(help)
}

/// A problem of an expression, with its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    at: Range<usize>,
    message: String,
    help: Option<&'static str>,
}

fn parse(value: Value<'_>, text: &str, around: RegexContext) -> Result<Ast, FindingReported> {
    if text.len() > MOST_BYTES {
        let message = format!("an expression of more than {MOST_BYTES} bytes");
        let finding = value.error(codes::REGEX, message).label("too long");
        return Err(value.report(finding.help("split it into several matches")));
    }
    let (ast, problems) = match Parser::new().parse(text) {
        Ok(ast) => {
            let mut problems = dialect::problems(&ast, text);
            if problems.is_empty() {
                problems.extend(size_problem(&ast, text, around));
            }
            (Some(ast), problems)
        }
        Err(error) => (None, vec![syntax_problem(&error)]),
    };
    let mut result = ast.ok_or(FindingReported);
    for Problem { at, message, help } in problems {
        let finding = Finding::error(codes::REGEX, Some(value.part(at)), message).label("here");
        result = Err(value.report(Finding { help: help.map(str::to_owned), ..finding }));
    }
    result
}

fn size_problem(ast: &Ast, text: &str, around: RegexContext) -> Option<Problem> {
    let size = size::estimate(ast, around);
    (size > size::MOST).then(|| Problem {
        at: 0..text.len(),
        message: format!(
            "Envoy would reject this expression: compiled it has about {size} instructions, and \
             at most {} are allowed",
            size::MOST
        ),
        help: Some(
            "count less, as each count is written out (`+` and `*` are small), or split the \
             expression into several matches",
        ),
    })
}

fn syntax_problem(error: &regex_syntax::ast::Error) -> Problem {
    let span = error.span();
    let help = match error.kind() {
        ErrorKind::UnsupportedLookAround => Some("RE2 has no look-around: match what is wanted"),
        ErrorKind::UnsupportedBackreference => Some("RE2 has no backreferences"),
        ErrorKind::RepetitionMissing => {
            Some("write `\\*`, `\\+`, `\\?` or `\\{` for the character")
        }
        _ => None,
    };
    Problem {
        at: span.start.offset..span.end.offset,
        message: format!("invalid regular expression: {}", error.kind()),
        help,
    }
}
