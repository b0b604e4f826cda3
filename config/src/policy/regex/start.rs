//! How an expression on paths begins. In doubt it may match: this is for a warning only.

use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange};

/// Whether anything that begins with `/` can match.
pub(super) fn may_match_a_path(ast: &Ast) -> bool {
    match ast {
        Ast::Literal(literal) => literal.c == '/',
        Ast::Group(group) => may_match_a_path(&group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter().any(may_match_a_path),
        Ast::Concat(concat) => {
            // Flags, anchors and nothing at all take no character.
            let first = concat
                .asts
                .iter()
                .find(|ast| !matches!(ast, Ast::Flags(_) | Ast::Assertion(_) | Ast::Empty(_)));
            first.is_none_or(may_match_a_path)
        }
        Ast::Repetition(repetition) => match &repetition.op.kind {
            RepetitionKind::OneOrMore
            | RepetitionKind::Range(
                RepetitionRange::Exactly(1..)
                | RepetitionRange::AtLeast(1..)
                | RepetitionRange::Bounded(1.., _),
            ) => may_match_a_path(&repetition.ast),
            RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::Range(_) => {
                true
            }
        },
        Ast::Empty(_)
        | Ast::Flags(_)
        | Ast::Dot(_)
        | Ast::Assertion(_)
        | Ast::ClassUnicode(_)
        | Ast::ClassPerl(_)
        | Ast::ClassBracketed(_) => true,
    }
}
