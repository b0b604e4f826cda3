//! The size of an expression as compiled by RE2. Envoy rejects a route configuration with an expression
//! larger than the bootstrap allows, and would reject it forever: so such an expression must not reach Envoy.
//!
//! The estimate is never below the real size, and mostly equal to it; a test with a real Envoy checks both.
//! It is made from the text, not from Rust's simplified form: RE2 simplifies differently, which only makes
//! the result smaller. Only an expression that passed [`super::dialect`] may be estimated.

use regex_syntax::ast::{Ast, Flag, GroupKind, RepetitionKind, RepetitionRange};

use super::class;

/// The largest size that the sidecar's bootstrap allows (`re2.max_program_size.error_level`).
pub(super) const MOST: u64 = 1000;

/// The instructions that surround an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegexContext {
    /// Nothing: a header.
    Nothing,
    /// `(?:r)(?s:.*)`: a path.
    Path,
    /// `(?i:r)(?::[0-9]+)?`: a host.
    Host,
}

/// The number of RE2's instructions for `ast`, as Envoy compiles it.
pub(super) fn estimate(ast: &Ast, around: RegexContext) -> u64 {
    let (added, ignores_case) = match around {
        RegexContext::Nothing => (0, false),
        RegexContext::Path => (2, false),
        RegexContext::Host => (5, true),
    };
    let part = Walk { ignores_case, in_alternation: false }.part(ast);
    EVERY_PROGRAM + added + part.size
}

/// Failure, the search for a beginning (2), success.
const EVERY_PROGRAM: u64 = 4;

/// The size of a part of an expression.
#[derive(Debug, Clone, Copy)]
struct Part {
    size: u64,
    may_be_empty: bool,
    /// The number of instructions with which it may begin.
    first: u64,
    /// The extra instructions of a branch to it. RE2 repeats the beginning of a loop, or adds a jump, if the
    /// loop is entered by a branch.
    entry: u64,
}

impl Part {
    /// A part that consumes text, and begins with any of so many instructions.
    fn takes(size: u64) -> Self {
        Self { size, may_be_empty: false, first: size, entry: 0 }
    }

    /// One instruction that consumes nothing.
    const NOTHING: Self = Self { size: 1, may_be_empty: true, first: 1, entry: 0 };

    /// The size as the target of a branch.
    fn as_branch(self) -> u64 {
        self.size.saturating_add(self.entry)
    }

    fn captured(self) -> Self {
        Self { size: self.size.saturating_add(2), first: 1, entry: 0, ..self }
    }

    fn optional(self) -> Self {
        let first = self.first.saturating_add(1);
        Self { size: self.as_branch().saturating_add(1), may_be_empty: true, first, entry: 0 }
    }

    fn at_least_once(self) -> Self {
        // RE2 makes `(?:x?)+` the same as `x*`, which is larger where `x` may be empty.
        if self.may_be_empty {
            Self { entry: self.first, ..self.any_number() }
        } else {
            self.looped()
        }
    }

    fn any_number(self) -> Self {
        let looped = if self.may_be_empty { self.looped() } else { self };
        Self { entry: 1, ..looped.optional() }
    }

    fn looped(self) -> Self {
        let first = self.first.saturating_add(1);
        Self { size: self.size.saturating_add(2), first, entry: self.first, ..self }
    }

    fn times(self, count: u32) -> Self {
        Self { size: self.size.saturating_mul(count.into()), ..self }
    }

    fn then(self, next: Self) -> Self {
        let (first, entry) = if self.may_be_empty { (next.first, next.entry) } else { (0, 0) };
        Self {
            size: self.size.saturating_add(next.size),
            may_be_empty: self.may_be_empty && next.may_be_empty,
            first: self.first.saturating_add(first),
            entry: self.entry.saturating_add(entry),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            size: self.as_branch().saturating_add(other.as_branch()),
            may_be_empty: self.may_be_empty || other.may_be_empty,
            first: self.first.saturating_add(other.first),
            entry: 0,
        }
    }
}

/// A walk through an expression, in the order in which it is written.
#[derive(Debug, Clone, Copy)]
struct Walk {
    ignores_case: bool,
    in_alternation: bool,
}

impl Walk {
    fn part(&mut self, ast: &Ast) -> Part {
        match ast {
            Ast::Empty(_) | Ast::Assertion(_) => Part::NOTHING,
            Ast::Flags(flags) => {
                self.flags(&flags.flags);
                Part::NOTHING
            }
            // All bytes except for the line break: those below it, and those above.
            Ast::Dot(_) => Part::takes(2),
            Ast::Literal(literal) => Part::takes(self.letter(literal.c)),
            Ast::ClassPerl(_) | Ast::ClassBracketed(_) | Ast::ClassUnicode(_) => {
                Part::takes(class::ranges(ast, self.ignores_case, !self.in_alternation))
            }
            Ast::Repetition(repetition) => {
                let part = self.part(&repetition.ast);
                repeated(part, &repetition.op.kind)
            }
            Ast::Group(group) => {
                let mut inside = *self;
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    inside.flags(flags);
                    return inside.part(&group.ast);
                }
                inside.part(&group.ast).captured()
            }
            Ast::Alternation(alternation) => {
                let was = std::mem::replace(&mut self.in_alternation, true);
                let branches = alternation.asts.iter().map(|ast| self.part(ast));
                let part = branches.reduce(Part::or).unwrap_or(Part::NOTHING);
                self.in_alternation = was;
                part
            }
            Ast::Concat(concat) => {
                let in_alternation = self.in_alternation;
                let parts = concat.asts.iter().map(|ast| self.part(ast));
                // RE2 factors out the common beginning of branches, and branches to the rest.
                let size = |part: Part| if in_alternation { part.as_branch() } else { part.size };
                let parts = parts.map(|part| Part { size: size(part), ..part });
                parts.reduce(Part::then).unwrap_or(Part::NOTHING)
            }
        }
    }

    /// The size of one character. RE2 has an instruction for both cases of it, unless it joins a class with
    /// its neighbours in an alternation.
    fn letter(self, letter: char) -> u64 {
        let both = self.ignores_case && self.in_alternation && letter.is_ascii_alphabetic();
        1 + u64::from(both)
    }

    fn flags(&mut self, flags: &regex_syntax::ast::Flags) {
        if let Some(state) = flags.flag_state(Flag::CaseInsensitive) {
            self.ignores_case = state;
        }
    }
}

/// The size of a counted part, which RE2 repeats as often as it may occur: `x{2,4}` as `xx(?:x(?:x)?)?`.
fn repeated(part: Part, kind: &RepetitionKind) -> Part {
    let (least, most) = match *kind {
        RepetitionKind::ZeroOrOne => (0, Some(1)),
        RepetitionKind::ZeroOrMore => (0, None),
        RepetitionKind::OneOrMore => (1, None),
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (count, Some(count)),
        RepetitionKind::Range(RepetitionRange::AtLeast(count)) => (count, None),
        RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (least, Some(most)),
    };
    match (least, most) {
        (0, Some(0)) => Part::NOTHING,
        (0, Some(most)) => part.optional().times(most),
        (least, Some(most)) if most > least => {
            part.times(least).then(part.optional().times(most - least))
        }
        (least, Some(_)) => part.times(least),
        (0, None) => part.any_number(),
        (1, None) => part.at_least_once(),
        (least, None) => part.times(least - 1).then(part.at_least_once()),
    }
}
