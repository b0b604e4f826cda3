//! `[[http_route_group]]`.

use ironmesh_catalog::HttpMatch;

use super::*;

fn group(matches: &str) -> String {
    format!("[[http_route_group]]\nname = \"g\"\nmatches = [{matches}]\n")
}

fn matches(text: &str) -> Vec<HttpMatch> {
    let specification = specification(&group(text));
    specification.http_route_groups.values().next().unwrap().matches.clone()
}

#[test]
fn match_with_only_a_name_matches_everything() {
    let all = &matches("{ name = \"all\" }")[0];
    assert!(all.path.is_none() && all.methods.is_empty() && all.headers.is_empty());
    assert!(matches("{ name = \"a\", methods = [\"*\"] }")[0].methods.is_empty());
}

#[test]
fn headers_are_read_from_table_or_list_in_lower_case() {
    for headers in
        ["{ Host = 'store', User-Agent = '.*' }", "[{ host = 'store' }, { user-agent = '.*' }]"]
    {
        let one = &matches(&format!("{{ name = \"a\", headers = {headers} }}"))[0];
        let names: Vec<&str> = one.headers.keys().map(|name| &**name).collect();
        assert_eq!(names, ["host", "user-agent"]);
    }
}

#[test]
fn invalid_match_is_reported() {
    for (text, expected) in [
        ("", "error[IM0304]: `matches` is empty"),
        ("{ path_regex = '/' }", "error[IM0103]: a match needs `name`"),
        ("{ name = 'a' }, { name = 'a' }", "error[IM0202]: match `a` is defined twice"),
        ("{ name = 'a', methods = [] }", "error[IM0304]: `methods` is empty"),
        ("{ name = 'a', methods = ['G T'] }", "error[IM0105]: `G T` is not an HTTP method"),
        (
            &format!("{{ name = 'a', methods = ['{}', '{}'] }}", "A".repeat(200), "B".repeat(201)),
            "error[IM0105]: `methods` are more than 400 characters together",
        ),
        ("{ name = 'a', headers = [] }", "error[IM0304]: `headers` is empty"),
        ("{ name = 'a', headers = {} }", "error[IM0304]: `headers` is empty"),
        ("{ name = 'a', headers = [{}] }", "error[IM0304]: `headers` is empty"),
        (
            "{ name = 'a', headers = { A = 'x', a = 'x' } }",
            "error[IM0202]: header `a` is given twice",
        ),
        ("{ name = 'a', headers = { ':path' = 'x' } }", "error[IM0105]: `:path` is not the name"),
        ("{ name = 'a', headers = { x = 1 } }", "error[IM0104]: `x` must be a string"),
        ("{ name = 'a', headers = { x = '(' } }", "error[IM0302]: invalid regular expression"),
        ("{ name = 'a', headers = { x = '' } }", "error[IM0302]: an empty expression"),
        (
            "{ name = 'a', path_regex = '/[a-z]{1,1000}' }",
            "error[IM0302]: Envoy would reject this expression: compiled it has about 2006 \
             instructions, and at most 1000 are allowed",
        ),
    ] {
        let reported = finding(&group(text));
        assert!(reported.starts_with(expected), "{reported}");
    }
}

#[test]
fn lower_case_method_is_reported_with_a_suggestion() {
    assert_eq!(
        finding(&group("{ name = 'a', methods = ['get', 'POST'] }")),
        "error[IM0105]: `get` is not an HTTP method (p.toml:3:37) / did you mean `GET`?"
    );
}

#[test]
fn invalid_regex_is_reported_at_its_column() {
    // The group opens at the 8th character of the expression, which begins at column 40.
    let literal = finding(&group("{ name = 'a', path_regex = '/books/(x' }"));
    assert_eq!(literal, "error[IM0302]: invalid regular expression: unclosed group (p.toml:3:47)");
    // If the string has an escape, the finding points to the whole string.
    let escaped = finding(&group("{ name = 'a', path_regex = \"/b\\u006Fks/(x\" }"));
    assert!(escaped.ends_with("(p.toml:3:39)"), "{escaped}");
}

#[test]
fn regex_that_no_path_matches_is_a_warning() {
    let loaded = load_one(&group("{ name = 'a', path_regex = 'books/.*' }"));
    assert_eq!(
        lines(&loaded),
        ["warning[IM0302]: no path matches `books/.*`: paths begin with `/` (p.toml:3:40) / \
          write `/books/.*`"]
    );
    assert!(loaded.specification.is_some());
}

#[test]
fn oversized_regex_is_rejected_without_parsing() {
    let group = |expression: &str| {
        format!(
            "[[http_route_group]]\nname = \"g\"\nmatches = [{{ name = \"m\", path_regex = '{expression}' }}]\n"
        )
    };
    assert_eq!(
        finding(&group(&"/".repeat(1 << 20))),
        "error[IM0302]: an expression of more than 8192 bytes (p.toml:3:39) / \
         split it into several matches"
    );
    // Shorter expressions are limited by their compiled size in Envoy and by their depth.
    assert!(finding(&group(&"(?:a|b)".repeat(1000))).contains("compiled it has about"));
    assert!(
        finding(&group("((((a{1,1000}){1,1000}){1,1000}){1,1000})")).contains("1000 repetitions")
    );
    assert!(finding(&group(&"(".repeat(8000))).starts_with("error[IM0302]"));
}
