//! Whether one match covers all requests of another.

use std::ops::ControlFlow;

use ironmesh_catalog::HttpMatch;
use regex_syntax::ast::{Ast, RepetitionKind, parse::Parser};

/// A match, parsed for comparisons.
pub(super) struct MatchPattern<'a> {
    one: &'a HttpMatch,
    /// The beginning of its path; `None` without a path.
    beginning: Option<LiteralPrefix>,
}

/// The literal characters at the beginning of an expression, and whether it requires nothing else.
type LiteralPrefix = (String, bool);

impl<'a> MatchPattern<'a> {
    pub(super) fn new(one: &'a HttpMatch) -> Self {
        let beginning = one.path.as_ref().map(|path| {
            // The dialect has rejected expressions that do not parse.
            Parser::new().parse(&path.text).map_or((String::new(), false), |ast| beginning(&ast))
        });
        Self { one, beginning }
    }

    /// Whether every request that matches `narrow` surely matches this.
    pub(super) fn covers(&self, narrow: &Self) -> bool {
        let (wide, one) = (self.one, narrow.one);
        let methods = wide.methods.is_empty()
            || (!one.methods.is_empty()
                && one.methods.iter().all(|method| wide.methods.contains(method)));
        let headers = wide.headers.iter().all(|(name, value)| one.headers.get(name) == Some(value));
        let paths = match (&self.beginning, &narrow.beginning) {
            (None, _) => true,
            // An expression never covers a path that some servers would read as another.
            (Some(_), None) => false,
            // Expressions are anchored at their beginning, and at their end only by `$`.
            (Some((wide, is_all)), Some((narrow, _))) => {
                self.one.path == one.path || (*is_all && narrow.starts_with(wide))
            }
        };
        methods && headers && paths
    }
}

fn beginning(ast: &Ast) -> LiteralPrefix {
    let parts = match ast {
        Ast::Concat(concat) => concat.asts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut text = String::new();
    let rest = parts.iter().enumerate().try_for_each(|(at, part)| match part {
        Ast::Literal(literal) => {
            text.push(literal.c);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(parts.get(at..).unwrap_or_default()),
    });
    let is_all = match rest {
        ControlFlow::Continue(()) => true,
        ControlFlow::Break([only]) => matches_everything(only),
        ControlFlow::Break(_) => false,
    };
    (text, is_all)
}

/// Whether a part at the end of an expression adds nothing: it is empty, or `.*`.
fn matches_everything(ast: &Ast) -> bool {
    match ast {
        Ast::Empty(_) => true,
        Ast::Repetition(repetition) => {
            matches!(repetition.op.kind, RepetitionKind::ZeroOrMore)
                && matches!(*repetition.ast, Ast::Dot(_))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ironmesh_catalog::{Name, PathRegex, Spot};

    use super::*;

    #[test]
    fn path_is_covered_by_itself_and_by_plain_prefixes() {
        let on = |path: &str| HttpMatch {
            name: Name::default_namespace(),
            path: Some(PathRegex { text: path.into(), before_query: None }),
            methods: Vec::new(),
            headers: BTreeMap::new(),
            spot: Spot::new(&"p.toml".into(), "", 0..0),
        };
        let covers = |wide: &str, narrow: &str| {
            MatchPattern::new(&on(wide)).covers(&MatchPattern::new(&on(narrow)))
        };
        for (wide, narrow) in [
            ("/", "/books"),
            ("/books", "/books/[0-9]+$"),
            ("/books.*", "/books$"),
            ("", "/a|/b"),
            ("/a", "/a[.]b"),
            (r"/a\.b", r"/a\.b/c"),
        ] {
            assert!(covers(wide, narrow), "{wide} over {narrow}");
        }
        for (wide, narrow) in [
            ("/books", "/book"),
            ("/books", "/books?"),
            ("/books", "/books|/admin"),
            ("/books", "(?i)/books"),
            ("/books$", "/books"),
            ("/books/.+", "/books/"),
            ("/books", "/(?:books)?"),
            ("/a|/b", "/a"),
            ("/a.b", "/a.b/c"),
            ("/aa", "/a{2}"),
        ] {
            assert!(!covers(wide, narrow), "{wide} over {narrow}");
        }
    }
}
