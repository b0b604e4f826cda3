//! Whether an expression can match anything at all. If it is uncertain, it may: only a warning depends on
//! this.

use regex_syntax::ast::Ast;
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::size::RegexContext;

/// The reason why nothing matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Impossible {
    /// It requires another first character than `/`, with which every path begins.
    Beginning,
    /// It requires a character that never occurs.
    Character,
    /// It contradicts itself.
    Contradiction,
}

/// The reason why nothing that `around` allows matches `ast`, which is written as `text`; `None` if something
/// may match.
pub(super) fn problem(ast: &Ast, text: &str, around: RegexContext) -> Option<Impossible> {
    // Byte by byte, as in Envoy.
    let mut translator = TranslatorBuilder::new().unicode(false).utf8(false).build();
    let expression = translator.translate(text, ast).ok()?;
    if !may_match(&expression, &|_| true) {
        return Some(Impossible::Contradiction);
    }
    if around == RegexContext::Path && !may_begin_with_a_slash(&expression) {
        return Some(Impossible::Beginning);
    }
    (!may_match(&expression, &|byte| occurs(byte, around))).then_some(Impossible::Character)
}

/// Whether a byte can occur in the compared text.
fn occurs(byte: u8, around: RegexContext) -> bool {
    match around {
        // Envoy compares the path without its query.
        RegexContext::Path => byte != b'?',
        // RFC 3986, section 3.2.2.
        RegexContext::Host => {
            byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(&byte)
        }
        RegexContext::Nothing => !matches!(byte, b'\0' | b'\r' | b'\n'),
    }
}

/// Whether a text of bytes that `occur` may match. It knows only the assertions of beginning and end.
fn may_match(expression: &Hir, occur: &impl Fn(u8) -> bool) -> bool {
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => literal.0.iter().all(|byte| occur(*byte)),
        HirKind::Class(class) => bytes(class).any(occur),
        HirKind::Repetition(repetition) => repetition.min == 0 || may_match(&repetition.sub, occur),
        HirKind::Capture(capture) => may_match(&capture.sub, occur),
        HirKind::Alternation(branches) => branches.iter().any(|branch| may_match(branch, occur)),
        HirKind::Concat(parts) => {
            let is_behind_text = |at: usize| parts.iter().take(at).any(takes_text);
            let is_before_text = |at: usize| parts.iter().skip(at).any(takes_text);
            parts.iter().enumerate().all(|(at, part)| match part.kind() {
                HirKind::Look(Look::Start) => !is_behind_text(at),
                HirKind::Look(Look::End) => !is_before_text(at),
                _ => may_match(part, occur),
            })
        }
    }
}

/// Whether a match has at least one byte.
fn takes_text(expression: &Hir) -> bool {
    expression.properties().minimum_len().is_some_and(|length| length > 0)
}

/// Whether a text that begins with `/` may match, if anything may follow.
fn may_begin_with_a_slash(expression: &Hir) -> bool {
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => literal.0.first().is_none_or(|byte| *byte == b'/'),
        HirKind::Class(class) => bytes(class).any(|byte| byte == b'/'),
        HirKind::Repetition(repetition) => {
            repetition.min == 0 || may_begin_with_a_slash(&repetition.sub)
        }
        HirKind::Capture(capture) => may_begin_with_a_slash(&capture.sub),
        HirKind::Alternation(branches) => branches.iter().any(may_begin_with_a_slash),
        HirKind::Concat(parts) => {
            // The first part that consumes text decides, unless an earlier part may consume the slash.
            let may_be_empty = |part: &Hir| !takes_text(part);
            let decisive = parts.iter().position(|part| !may_be_empty(part));
            let before = parts.iter().take(decisive.unwrap_or(parts.len()));
            before.clone().any(takes_a_slash)
                || decisive.and_then(|at| parts.get(at)).is_none_or(may_begin_with_a_slash)
        }
    }
}

/// Whether a part that may be empty may also consume a slash.
fn takes_a_slash(part: &Hir) -> bool {
    let may_take_text = part.properties().maximum_len().is_none_or(|length| length > 0);
    may_take_text
        && match part.kind() {
            HirKind::Repetition(repetition) => may_begin_with_a_slash(&repetition.sub),
            _ => may_begin_with_a_slash(part),
        }
}

fn bytes(class: &Class) -> impl Iterator<Item = u8> + '_ {
    let (of_bytes, of_characters) = match class {
        Class::Bytes(class) => (class.ranges(), &[][..]),
        Class::Unicode(class) => (&[][..], class.ranges()),
    };
    let of_bytes = of_bytes.iter().flat_map(|range| range.start()..=range.end());
    // Characters beyond bytes are rejected earlier.
    let byte = |character: char| u8::try_from(character).unwrap_or(u8::MAX);
    let of_characters =
        of_characters.iter().flat_map(move |range| byte(range.start())..=byte(range.end()));
    of_bytes.chain(of_characters)
}
