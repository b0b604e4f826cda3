//! The differences of RE2 and Rust: <https://github.com/google/re2/wiki/Syntax>.
//!
//! In Envoy, RE2 reads expressions and texts as Latin-1, which is byte by byte. It would read characters
//! beyond ASCII differently or not at all, so they are rejected.

use std::ops::Range;

use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassSetItem, Flag, FlagsItemKind, GroupKind, HexLiteralKind,
    Literal, LiteralKind, RepetitionKind, RepetitionRange, Span, Visitor,
};

use super::Problem;

/// The parts of `ast` that RE2 rejects or reads differently.
pub(super) fn problems(ast: &Ast, text: &str) -> Vec<Problem> {
    let mut dialect = Dialect { text, problems: Vec::new(), repetitions: Vec::new() };
    // The visitor cannot fail; it collects.
    let _ = ast::visit(ast, &mut dialect);
    dialect.problems
}

struct Dialect<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    /// For each enclosing repetition, how often its content may still be repeated.
    repetitions: Vec<u32>,
}

/// RE2 rejects counts above this, and nested counts whose product is above it.
const MOST_REPETITIONS: u32 = 1000;

impl Visitor for &mut Dialect<'_> {
    type Output = ();
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Flags(flags) => self.flags(&flags.flags),
            Ast::Literal(literal) => self.literal(literal),
            Ast::Assertion(assertion) => self.assertion(&assertion.span, &assertion.kind),
            Ast::ClassUnicode(class) => self.unicode_class(&class.span),
            Ast::ClassBracketed(class) => {
                for operator in ["&&", "--", "~~"] {
                    if self.written(&class.span).contains(operator) {
                        let what = format!("`{operator}` in a class has no such meaning for RE2");
                        let help = "escape the characters, as in `[a\\-z]`, or list what is meant";
                        self.problem(&class.span, what, Some(help));
                    }
                }
            }
            Ast::Repetition(repetition) => self.repetition(repetition),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(flags) => self.flags(flags),
                GroupKind::CaptureName { name, .. } => {
                    if !name.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                        let what = "RE2 rejects this group name".to_owned();
                        self.problem(&name.span, what, Some("use `a-z`, `0-9` and `_`"));
                    }
                }
                GroupKind::CaptureIndex(_) => {}
            },
            Ast::Empty(_)
            | Ast::Dot(_)
            | Ast::ClassPerl(_)
            | Ast::Alternation(_)
            | Ast::Concat(_) => {}
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if let Ast::Repetition(_) = ast {
            self.repetitions.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Bracketed(class) => {
                let what = "a class within a class: RE2 reads `[` as a character here".to_owned();
                self.problem(&class.span, what, Some("write `\\[` for the character"));
            }
            ClassSetItem::Literal(literal) => self.literal(literal),
            ClassSetItem::Range(range) => {
                self.literal(&range.start);
                self.literal(&range.end);
            }
            ClassSetItem::Unicode(class) => self.unicode_class(&class.span),
            ClassSetItem::Empty(_)
            | ClassSetItem::Ascii(_)
            | ClassSetItem::Perl(_)
            | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }
}

impl Dialect<'_> {
    fn problem(&mut self, span: &Span, message: String, help: Option<&'static str>) {
        let at: Range<usize> = span.start.offset..span.end.offset;
        self.problems.push(Problem { at, message, help });
    }

    fn written(&self, span: &Span) -> &str {
        self.text.get(span.start.offset..span.end.offset).unwrap_or("")
    }

    fn flags(&mut self, flags: &ast::Flags) {
        for item in &flags.items {
            let letter = match item.kind {
                FlagsItemKind::Flag(Flag::IgnoreWhitespace) => 'x',
                FlagsItemKind::Flag(Flag::CRLF) => 'R',
                FlagsItemKind::Flag(Flag::Unicode) => 'u',
                _ => continue,
            };
            self.problem(&item.span, format!("RE2 has no flag `{letter}`"), Some("leave it out"));
        }
    }

    fn literal(&mut self, literal: &Literal) {
        use HexLiteralKind::{UnicodeLong, UnicodeShort};
        if let LiteralKind::HexFixed(UnicodeShort | UnicodeLong)
        | LiteralKind::HexBrace(UnicodeShort | UnicodeLong) = literal.kind
        {
            let what = "RE2 has no escapes `\\u` and `\\U`".to_owned();
            self.problem(&literal.span, what, Some("write `\\x{…}` with the same digits"));
        } else if !literal.c.is_ascii() {
            let what = "Envoy compares bytes, and this character is several".to_owned();
            let help = "in a path it is escaped, as in `%C3%A9`; `.` matches one of its bytes";
            self.problem(&literal.span, what, Some(help));
        }
    }

    fn assertion(&mut self, span: &Span, kind: &AssertionKind) {
        let (message, help) = match kind {
            AssertionKind::WordBoundaryStartAngle | AssertionKind::WordBoundaryEndAngle => {
                ("RE2 reads `\\<` and `\\>` as characters", "write `\\b`, or `<` and `>`")
            }
            AssertionKind::WordBoundaryStart
            | AssertionKind::WordBoundaryEnd
            | AssertionKind::WordBoundaryStartHalf
            | AssertionKind::WordBoundaryEndHalf => {
                ("RE2 has no such word boundary", "write `\\b`")
            }
            AssertionKind::StartLine
            | AssertionKind::EndLine
            | AssertionKind::StartText
            | AssertionKind::EndText
            | AssertionKind::WordBoundary
            | AssertionKind::NotWordBoundary => return,
        };
        self.problem(span, message.to_owned(), Some(help));
    }

    /// RE2 reads Latin-1, so half of this character.
    fn unicode_class(&mut self, span: &Span) {
        let what =
            "Envoy compares bytes, and knows no classes of characters beyond ASCII".to_owned();
        self.problem(span, what, Some("list what is meant, as in `[A-Za-z]`, or use `[^/]`"));
    }

    fn repetition(&mut self, repetition: &ast::Repetition) {
        let operator = &repetition.op;
        let written = self.written(&operator.span);
        if written.contains(char::is_whitespace) || has_leading_zero(written) {
            let what = "RE2 reads this as characters, not as a count".to_owned();
            self.problem(&operator.span, what, Some("write a count as in `{2,5}`"));
        }
        if let Ast::Repetition(_) = &*repetition.ast {
            let what = "RE2 rejects a repetition of a repetition".to_owned();
            self.problem(&operator.span, what, Some("put the inner one into `(?:…)`"));
        }
        let count = match &operator.kind {
            RepetitionKind::Range(
                RepetitionRange::Exactly(count)
                | RepetitionRange::AtLeast(count)
                | RepetitionRange::Bounded(_, count),
            ) => *count,
            RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
        };
        let allowed = self.repetitions.last().copied().unwrap_or(MOST_REPETITIONS);
        let left = allowed / count.max(1);
        if left == 0 && allowed > 0 {
            let what = format!("RE2 rejects more than {MOST_REPETITIONS} repetitions in all");
            self.problem(&operator.span, what, Some("repeat less, or use `*` or `+`"));
        }
        self.repetitions.push(left);
    }
}

fn has_leading_zero(operator: &str) -> bool {
    let mut counts = operator.split(|c: char| !c.is_ascii_digit());
    counts.any(|count| count.len() > 1 && count.starts_with('0'))
}
