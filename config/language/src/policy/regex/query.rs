//! An expression on paths, for a text that has the query behind the path.
//!
//! Envoy's routes compare one expression with the path. Where two must hold, as for a conditional split
//! behind another, the second is compared with the header `:path`, which is the path with its query. So
//! nothing in it may match the `?` that begins the query, which no path has, and the end of the path is
//! before a query or at the end of the text.

use std::ops::Range;

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{AssertionKind, Ast, ClassBracketed, Span};

use super::class;
use super::size::{self, RegexContext};

/// The expression that matches the beginning of `<path>?<query>`, or of `<path>`, exactly if `ast`, which is
/// written `text`, matches a beginning of the path.
///
/// `None` if Envoy would reject the result, which is possible for an expression of nearly the largest size.
/// `None` also if the expression needs word boundaries and the end of the path: beyond the end, RE2 would see
/// the query's last character.
pub(super) fn before(ast: &Ast, text: &str) -> Option<String> {
    let mut edits = Edits::default();
    edits.walk(ast);
    if edits.has_end && edits.has_boundary {
        return None;
    }
    let (mut rewritten, mut copied) = (String::new(), 0);
    for (at, instead) in edits.list {
        rewritten.push_str(text.get(copied..at.start)?);
        rewritten.push_str(&instead);
        copied = at.end;
    }
    rewritten.push_str(text.get(copied..)?);
    let size = size::estimate(&Parser::new().parse(&rewritten).ok()?, RegexContext::Path);
    (size <= size::MOST).then_some(rewritten)
}

/// The replacements, in the order of the text.
#[derive(Default)]
struct Edits {
    list: Vec<(Range<usize>, String)>,
    has_end: bool,
    has_boundary: bool,
}

impl Edits {
    fn walk(&mut self, ast: &Ast) {
        match ast {
            Ast::Dot(span) => self.edit(span, "[^?]"),
            Ast::Literal(literal) if literal.c == '?' => self.edit(&literal.span, NEVER),
            // All of `\D`, `\S` and `\W` match a `?`.
            Ast::ClassPerl(class) if class.negated => {
                use regex_syntax::ast::ClassPerlKind::{Digit, Space, Word};
                let class_without = match class.kind {
                    Digit => r"[^\d?]",
                    Space => r"[^\s?]",
                    Word => r"[^\w?]",
                };
                self.edit(&class.span, class_without);
            }
            Ast::ClassBracketed(class) => self.class(class),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::EndLine => self.end(&assertion.span, "$"),
                AssertionKind::EndText => self.end(&assertion.span, r"\z"),
                AssertionKind::StartLine | AssertionKind::StartText => {}
                _ => self.has_boundary = true,
            },
            Ast::Repetition(repetition) => self.walk(&repetition.ast),
            Ast::Group(group) => self.walk(&group.ast),
            Ast::Alternation(alternation) => alternation.asts.iter().for_each(|ast| self.walk(ast)),
            Ast::Concat(concat) => concat.asts.iter().for_each(|ast| self.walk(ast)),
            // The dialect knows no classes of Unicode.
            Ast::Empty(_)
            | Ast::Flags(_)
            | Ast::Literal(_)
            | Ast::ClassPerl(_)
            | Ast::ClassUnicode(_) => {}
        }
    }

    fn edit(&mut self, span: &Span, instead: impl Into<String>) {
        self.list.push((span.start.offset..span.end.offset, instead.into()));
    }

    fn end(&mut self, span: &Span, end: &str) {
        self.has_end = true;
        self.edit(span, format!(r"(?:(?:\?(?s:.*))?{end})"));
    }

    fn class(&mut self, class: &ClassBracketed) {
        let mut bytes = class::written(class);
        let Some(question_mark) = bytes.get_mut(usize::from(b'?')) else { return };
        if *question_mark != class.negated {
            *question_mark = class.negated;
            let not = if class.negated { "^" } else { "" };
            let ranges = ranges(&bytes);
            let is_empty = ranges.is_empty();
            self.edit(
                &class.span,
                if is_empty { NEVER.to_owned() } else { format!("[{not}{ranges}]") },
            );
        }
    }
}

/// A class that matches no byte of a path or a query.
const NEVER: &str = r"\n";

/// The same bytes, inside of a class.
fn ranges(bytes: &[bool; 256]) -> String {
    let mut written = String::new();
    let mut known =
        (0..=u8::MAX).zip(bytes).filter(|(_, own)| **own).map(|(byte, _)| byte).peekable();
    while let Some(first) = known.next() {
        let mut last = first;
        while let Some(next) = known.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        written.push_str(&escaped(first));
        if last > first {
            written.push('-');
            written.push_str(&escaped(last));
        }
    }
    written
}

fn escaped(byte: u8) -> String {
    format!(r"\x{byte:02x}")
}

#[cfg(test)]
mod tests;
