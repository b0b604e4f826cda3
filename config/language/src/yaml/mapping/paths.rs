//! Expressions on paths: Open Service Mesh compared whole paths, but the SMI specification anchors only the
//! beginning.

use regex_syntax::ast::{AssertionKind, Ast, RepetitionKind, RepetitionOp, parse::Parser};

/// The expression on the beginning of a path that matches the paths that `regex` matches as a whole; `None`
/// if `regex` itself does. An empty expression matched everything.
pub(super) fn whole(regex: &str) -> Option<String> {
    if regex.is_empty() {
        return Some(String::new());
    }
    match Parser::new().parse(regex) {
        Ok(ast) if reaches_the_end(&ast) => None,
        Ok(Ast::Alternation(_)) | Err(_) => Some(format!("(?:{regex})$")),
        Ok(_) => Some(format!("{regex}$")),
    }
}

/// Whether a match of `ast` from the beginning always ends with the path, or allows any continuation.
fn reaches_the_end(ast: &Ast) -> bool {
    match ast {
        Ast::Assertion(assertion) => {
            matches!(assertion.kind, AssertionKind::EndLine | AssertionKind::EndText)
        }
        Ast::Repetition(repetition) => {
            let any = RepetitionOp { kind: RepetitionKind::ZeroOrMore, ..repetition.op.clone() };
            repetition.op == any && matches!(*repetition.ast, Ast::Dot(_))
        }
        Ast::Group(group) => reaches_the_end(&group.ast),
        Ast::Concat(concat) => concat.asts.last().is_some_and(reaches_the_end),
        Ast::Alternation(alternation) => alternation.asts.iter().all(reaches_the_end),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_regex_is_anchored_unless_it_reaches_the_end() {
        for (regex, expected) in [
            ("/books", Some("/books$")),
            ("/books/[0-9]+", Some("/books/[0-9]+$")),
            (r"/a\.*", Some(r"/a\.*$")),
            (r"/price\$", Some(r"/price\$$")),
            ("/a|/b", Some("(?:/a|/b)$")),
            ("/a|/b.*", Some("(?:/a|/b.*)$")),
            ("/(a|b)", Some("/(a|b)$")),
            ("/a.+", Some("/a.+$")),
            ("*", Some("(?:*)$")),
            ("", Some("")),
            (".*", None),
            ("/books/.*", None),
            ("/books.*?", None),
            ("/books$", None),
            ("/(a|b$)$", None),
            ("/a.*|/b$", None),
            ("/(?:a|b.*)", Some("/(?:a|b.*)$")),
        ] {
            assert_eq!(whole(regex).as_deref(), expected, "{regex}");
        }
    }
}
