//! Regular expressions. Envoy reads them with RE2; they are parsed here with Rust's parser, and what
//! RE2 refuses or reads otherwise is refused, so that no expression means two things.
//!
//! What is accepted here is a subset of both languages. RE2's limit on the size of a compiled
//! expression is not checked.

mod dialect;
mod start;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use ironmesh_catalog::Finding;
use regex_syntax::ast::{Ast, ErrorKind, parse::Parser};

use crate::codes;
use crate::table::{Told, Value};

/// Reads an expression.
pub(super) fn read(value: Value<'_>) -> Result<Arc<str>, Told> {
    let text = value.string()?;
    parse(value, text).map(|_| text.into())
}

/// Reads an expression on paths; warns of one that no path can match.
pub(super) fn read_path(value: Value<'_>) -> Result<Arc<str>, Told> {
    let text = value.string()?;
    let ast = parse(value, text)?;
    if !start::may_match_a_path(&ast) {
        let message = format!("no path matches `{text}`: paths begin with `/`");
        let finding = Finding::warning(codes::REGEX, Some(value.part(0..text.len())), message);
        value.tell(finding.label("matches nothing").help(format!("write `/{text}`")));
    }
    Ok(text.into())
}

/// What is wrong with an expression, and at which bytes of it.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    at: Range<usize>,
    message: String,
    help: Option<&'static str>,
}

fn parse(value: Value<'_>, text: &str) -> Result<Ast, Told> {
    let (ast, problems) = match Parser::new().parse(text) {
        Ok(ast) => {
            let problems = dialect::problems(&ast, text);
            (Some(ast), problems)
        }
        Err(error) => (None, vec![syntax_problem(&error)]),
    };
    let mut result = ast.ok_or(Told);
    for Problem { at, message, help } in problems {
        let finding = Finding::error(codes::REGEX, Some(value.part(at)), message).label("here");
        result = Err(value.tell(Finding { help: help.map(str::to_owned), ..finding }));
    }
    result
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
