use regex_syntax::ast::parse::Parser;

use super::dialect::problems;
use super::start::may_match_a_path;

/// The parts of `text` that RE2 refuses or reads otherwise.
fn refused(text: &str) -> Vec<&str> {
    let ast = Parser::new().parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    problems(&ast, text).into_iter().map(|problem| &text[problem.at]).collect()
}

#[test]
fn what_both_languages_read_alike_is_accepted() {
    for text in [
        "",
        "/books/.*",
        "/books/[^/]{1,64}$",
        r"^/v[0-9]+(?:/|$)",
        r"(?i)/books|/BOOKS",
        r"(?P<id>\d+)\b\w\s\B\A\z",
        r"[[:alpha:]\-\]a-z]",
        r"[]a][^]a]",
        r"\x41\x{1F600}\pL\p{Lu}\P{Nd}",
        r"(?:a*)*",
        r"a*?b+?c??",
        r"(?:a{10}){100}",
        r"\.\*\/\#\ü".trim_end_matches("\\ü"),
    ] {
        assert!(refused(text).is_empty(), "{text}: {:?}", refused(text));
    }
}

#[test]
fn what_re2_refuses_or_reads_otherwise_is_refused() {
    for (text, part) in [
        ("(?x)a b", "x"),
        ("(?R:a$)", "R"),
        ("(?-u)a", "u"),
        ("[a-z&&b]", "[a-z&&b]"),
        ("[a-z--b]", "[a-z--b]"),
        ("[a~~b]", "[a~~b]"),
        ("[--a]", "[--a]"),
        ("[a[b]]", "[b]"),
        (r"\b{start}a", r"\b{start}"),
        (r"a\b{end-half}", r"\b{end-half}"),
        (r"\<a", r"\<"),
        (r"a\>", r"\>"),
        (r"\u{41}", r"\u{41}"),
        (r"[\u0041-z]", r"\u0041"),
        (r"\p{Greek}", r"\p{Greek}"),
        (r"[\p{Letter}]", r"\p{Letter}"),
        (r"\p{sc=Greek}", r"\p{sc=Greek}"),
        ("a**", "*"),
        ("a{2}{3}", "{3}"),
        ("a{1001}", "{1001}"),
        ("(?:a{100}){11}", "{100}"),
        ("a{ 2}", "{ 2}"),
        ("a{02}", "{02}"),
        ("(?P<a.b>x)", "a.b"),
    ] {
        assert_eq!(refused(text), [part], "{text}");
    }
}

#[test]
fn only_an_expression_that_surely_matches_no_path_is_warned_of() {
    let may = |text: &str| may_match_a_path(&Parser::new().parse(text).unwrap());
    for text in ["", "/", "^/a", ".*", "(/a|b)", "[/]", r"\/", "(?i)/a", "a?/b", "a|/b", "a{0,3}/"]
    {
        assert!(may(text), "{text}");
    }
    for text in ["a", "^a", "(a|b)", "a+/", "a{1,2}/", "(?i)a", r"\.a"] {
        assert!(!may(text), "{text}");
    }
}
