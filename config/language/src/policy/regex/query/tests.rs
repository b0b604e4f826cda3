use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    Ast, ClassPerlKind, ClassSet, ClassSetItem, Flag, GroupKind, RepetitionKind, RepetitionRange,
};

use super::*;

fn parse(text: &str) -> Ast {
    Parser::new().parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn rewritten(text: &str) -> Option<String> {
    before(&parse(text), text)
}

#[test]
fn regex_that_could_match_the_query_is_rewritten() {
    for (text, expected) in [
        ("/books/[0-9]+", "/books/[0-9]+"),
        ("/books/.*", "/books/[^?]*"),
        (r"/\d\D", r"/\d[^\d?]"),
        ("/[^/]+", r"/[^\x2f\x3f]+"),
        (r"/[a?]\?|/[?]", r"/[\x61]\n|/\n"),
        ("/[]^?-]", r"/[\x2d\x5d-\x5e]"),
        ("/a$", r"/a(?:(?:\?(?s:.*))?$)"),
        (r"/a\z", r"/a(?:(?:\?(?s:.*))?\z)"),
        (r"(?i:/B\b.)", r"(?i:/B\b[^?])"),
    ] {
        assert_eq!(rewritten(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn rewrite_that_envoy_rejects_or_reads_differently_is_omitted() {
    assert_eq!(rewritten(r"/a$\b"), None);
    let large = "/[^/]{1,300}";
    assert!(size::estimate(&parse(large), RegexContext::Path) <= size::MOST);
    assert_eq!(rewritten(large), None);
}

/// Where in `text` a match of `ast` may end that begins at `from`: by plain search.
fn ends(ast: &Ast, text: &[u8], from: usize, folds: &mut bool) -> BTreeSet<usize> {
    let one = |is_member: bool| is_member.then_some(from + 1).into_iter().collect();
    let here = |holds: bool| holds.then_some(from).into_iter().collect();
    let byte = text.get(from).copied();
    let is_word = |at: Option<&u8>| at.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let boundary =
        is_word(text.get(from)) != is_word(from.checked_sub(1).and_then(|n| text.get(n)));
    match ast {
        Ast::Empty(_) => here(true),
        Ast::Flags(flags) => {
            *folds = flags.flags.flag_state(Flag::CaseInsensitive).unwrap_or(*folds);
            here(true)
        }
        Ast::Literal(literal) => one(byte.is_some_and(|byte| {
            let (own, found) = (literal.c, char::from(byte));
            own == found || (*folds && own.eq_ignore_ascii_case(&found))
        })),
        Ast::Dot(_) => one(byte.is_some()),
        Ast::Assertion(assertion) => here(match assertion.kind {
            AssertionKind::StartLine | AssertionKind::StartText => from == 0,
            AssertionKind::EndLine | AssertionKind::EndText => from == text.len(),
            AssertionKind::WordBoundary => boundary,
            _ => !boundary,
        }),
        Ast::ClassPerl(class) => {
            one(byte.is_some_and(|byte| in_perl(&class.kind, byte) != class.negated))
        }
        Ast::ClassBracketed(class) => one(byte.is_some_and(|byte| {
            let cases = [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
            let cases = if *folds { &cases[..] } else { &[byte][..] };
            let ClassSet::Item(item) = &class.kind else { panic!("{class:?}") };
            cases.iter().any(|byte| in_class(item, *byte)) != class.negated
        })),
        Ast::ClassUnicode(class) => panic!("{class:?}"),
        Ast::Repetition(repetition) => {
            let (least, most) = match repetition.op.kind {
                RepetitionKind::ZeroOrOne => (0, 1),
                RepetitionKind::ZeroOrMore => (0, u32::MAX),
                RepetitionKind::OneOrMore => (1, u32::MAX),
                RepetitionKind::Range(RepetitionRange::Exactly(n)) => (n, n),
                RepetitionKind::Range(RepetitionRange::AtLeast(n)) => (n, u32::MAX),
                RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (least, most),
            };
            let mut all = BTreeSet::new();
            let mut last = BTreeSet::from([from]);
            for count in 0..=most.min(least.saturating_add(u32::try_from(text.len()).unwrap() + 1))
            {
                if count >= least {
                    all.extend(&last);
                }
                last = last.iter().flat_map(|at| ends(&repetition.ast, text, *at, folds)).collect();
            }
            all
        }
        Ast::Group(group) => {
            let mut inside = *folds;
            if let GroupKind::NonCapturing(flags) = &group.kind {
                inside = flags.flag_state(Flag::CaseInsensitive).unwrap_or(inside);
            }
            ends(&group.ast, text, from, &mut inside)
        }
        Ast::Alternation(all) => {
            all.asts.iter().flat_map(|ast| ends(ast, text, from, &mut folds.clone())).collect()
        }
        Ast::Concat(all) => all.asts.iter().fold(BTreeSet::from([from]), |last, ast| {
            last.into_iter().flat_map(|at| ends(ast, text, at, folds)).collect()
        }),
    }
}

fn in_class(item: &ClassSetItem, byte: u8) -> bool {
    match item {
        ClassSetItem::Literal(literal) => literal.c == char::from(byte),
        ClassSetItem::Range(range) => (range.start.c..=range.end.c).contains(&char::from(byte)),
        ClassSetItem::Perl(class) => in_perl(&class.kind, byte) != class.negated,
        ClassSetItem::Union(union) => union.items.iter().any(|item| in_class(item, byte)),
        other => panic!("{other:?}"),
    }
}

fn in_perl(kind: &ClassPerlKind, byte: u8) -> bool {
    match kind {
        ClassPerlKind::Digit => byte.is_ascii_digit(),
        ClassPerlKind::Space => b"\t\n\x0c\r ".contains(&byte),
        ClassPerlKind::Word => byte.is_ascii_alphanumeric() || byte == b'_',
    }
}

fn begins(ast: &Ast, text: &str) -> bool {
    !ends(ast, text.as_bytes(), 0, &mut false).is_empty()
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = select(vec![
        "/", "a", "B", "7", ".", "[^/]", "[^ab]", "[a?]", "[?]", r"\?", "[^?]", r"\d", r"\D",
        r"\w", r"\W", r"[\S]", r"[^\w]", r"[\W7]", "$", r"\z", "^", "(?i)", r"\b", "[!-~]",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            4 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            1 => (inner.clone(), select(vec!["*", "+", "?", "{2}", "{1,3}", "*?"]))
                .prop_map(|(a, op)| format!("(?:{a}){op}")),
            1 => inner.prop_map(|a| format!("(?i:{a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rewritten_regex_matches_with_query_iff_the_path_matches(
        text in expression(),
        path in "/[aAbB7_./-]{0,5}",
        query in "(\\?[aAbB7_?/-]{0,5})?",
    ) {
        let ast = parse(&text);
        if let Some(rewritten) = before(&ast, &text) {
            let own = begins(&parse(&rewritten), &format!("{path}{query}"));
            prop_assert_eq!(own, begins(&ast, &path), "{} {}{}", rewritten, path, query);
        }
    }
}
