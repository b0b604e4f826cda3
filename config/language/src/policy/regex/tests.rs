use regex_syntax::ast::parse::Parser;

use super::dialect::problems;
use super::possible::{self, Impossible};
use super::size::{self, RegexContext};

/// The parts of `text` that RE2 rejects or reads differently.
fn rejected(text: &str) -> Vec<&str> {
    let ast = Parser::new().parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    problems(&ast, text).into_iter().map(|problem| &text[problem.at]).collect()
}

#[test]
fn regex_with_equal_meaning_in_re2_is_accepted() {
    for text in [
        "",
        "/books/.*",
        "/books/[^/]{1,64}$",
        r"^/v[0-9]+(?:/|$)",
        r"(?i)/books|/BOOKS",
        r"(?P<id>\d+)\b\w\s\B\A\z",
        r"[[:alpha:]\-\]a-z]",
        r"[]a][^]a]",
        r"\x41\x{7E}[\x00-\x7F]",
        r"(?:a*)*",
        r"a*?b+?c??",
        r"(?:a{10}){100}",
        r"\.\*\/\#\ü".trim_end_matches("\\ü"),
    ] {
        assert!(rejected(text).is_empty(), "{text}: {:?}", rejected(text));
    }
}

#[test]
fn regex_that_re2_rejects_or_reads_differently_is_rejected() {
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
        (r"\pL", r"\pL"),
        ("caf\u{e9}", "\u{e9}"),
        (r"\x{1F600}", r"\x{1F600}"),
        (r"\x80", r"\x80"),
        ("[a-\u{3c9}]", "\u{3c9}"),
        ("a**", "*"),
        ("a{2}{3}", "{3}"),
        ("a{1001}", "{1001}"),
        ("(?:a{100}){11}", "{100}"),
        ("a{ 2}", "{ 2}"),
        ("a{02}", "{02}"),
        ("(?P<a.b>x)", "a.b"),
    ] {
        assert_eq!(rejected(text), [part], "{text}");
    }
}

#[test]
fn only_regexes_that_can_never_match_are_warnings() {
    use Impossible::{Beginning, Character, Contradiction};
    use RegexContext::{Host, Nothing, Path};
    let problem =
        |text: &str, around| possible::problem(&Parser::new().parse(text).unwrap(), text, around);
    for text in [
        "",
        "/",
        "^/a",
        ".*",
        "(/a|b)",
        "[/]",
        r"\/",
        "(?i)/a",
        "a?/b",
        "a|/b",
        "a{0,3}/",
        "(?:a|/)b",
        "(?:/a)?b",
        "[^a]",
        "/a$",
        "/a$|b",
        "/$(?:a)?",
        "a*",
        r"/\??a",
        "/[?a]",
        r"\A/\z",
        r"(?:^|/)a",
        "(?:a?/)*b",
    ] {
        assert_eq!(problem(text, Path), None, "{text}");
    }
    for (text, around, expected) in [
        ("a", Path, Beginning),
        ("^a", Path, Beginning),
        ("(a|b)", Path, Beginning),
        ("a+/", Path, Beginning),
        ("a{1,2}/", Path, Beginning),
        ("(?i)a", Path, Beginning),
        (r"\.a", Path, Beginning),
        ("[a-z]+/", Path, Beginning),
        ("a?b/", Path, Beginning),
        (r"/search\?q=.*", Path, Character),
        (r"/[^\s\S]", Path, Contradiction),
        ("/a$b", Path, Contradiction),
        ("/a^", Path, Contradiction),
        (r"/a\A|/b$c", Path, Contradiction),
        ("https://books[.]shop", Host, Character),
        ("books/.*", Host, Character),
        ("a$b", Host, Contradiction),
        (r"a\nb", Nothing, Character),
        ("[^[:^alpha:][:alpha:]]", Nothing, Contradiction),
    ] {
        assert_eq!(problem(text, around), Some(expected), "{text}");
    }
    for (text, around) in [
        ("books[.]shop", Host),
        (".*", Host),
        (r"\[::1\](?::80)?", Host),
        ("a/b?", Nothing),
        ("(?m)^a$", Nothing),
        ("^$", Nothing),
    ] {
        assert_eq!(problem(text, around), None, "{text}");
    }
}

/// The sizes that Envoy 1.40 reports, and the estimates. A test with a real Envoy compares many more.
#[test]
fn size_estimate_is_never_below_the_size_in_envoy() {
    use RegexContext::{Host, Nothing, Path};
    for (text, around, real, estimated) in [
        ("/books/[a-z0-9-]{1,40}", Nothing, 170, 170),
        ("/books/[a-z0-9-]{1,40}", Path, 172, 172),
        ("/users/[^/]{1,64}/orders", Path, 211, 211),
        ("/books/[a-z]{1,1000}", Path, 2012, 2012),
        ("[0-9a-f]{32}", Nothing, 68, 68),
        ("[A-Za-z]{1,10}", Host, 28, 28),
        ("/books/.*", Path, 16, 16),
        ("(?:(?:a|bc)+d?){1,20}", Path, 164, 203),
        // Letters that RE2 may put into a class with others count in both cases.
        (r"store\.example\.com|shop\.example\.com", Host, 41, 71),
        // RE2 writes the inner loop's class twice.
        (r"(?:(?i:(?:[\-\s0-9a-z]){1,})*?){7}", Nothing, 101, 109),
        (r"(?:(?:[0-9[:^digit:]])*|/)", Nothing, 9, 9),
        (r"(?:c(?:a)+?|c){6}", Nothing, 40, 40),
    ] {
        let size = size::estimate(&Parser::new().parse(text).unwrap(), around);
        assert!(size >= real, "{text}: {size}");
        assert_eq!(size, estimated, "{text}");
    }
}
