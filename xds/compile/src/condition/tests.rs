//! Route matches of conditions: paths, methods and headers that must all hold.

use ironmesh_catalog::{Name, Spot};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::*;

fn of(path: Option<(&str, Option<&str>)>, methods: &[&str], headers: &[(&str, &str)]) -> HttpMatch {
    HttpMatch {
        name: Name::new("m").unwrap(),
        path: path.map(|(text, before_query)| PathRegex {
            text: text.into(),
            before_query: before_query.map(Into::into),
        }),
        methods: methods.iter().map(|method| Method((*method).into())).collect(),
        headers: headers.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect(),
        spot: Spot::new(&"policy.toml".into(), "", 0..0),
    }
}

/// Renders a route match: the path's expression or prefix, and the headers as `name=exact`,
/// `name~expression` and `name!~expression`.
fn written(conditions: &[HttpMatch]) -> (String, Vec<String>) {
    let RouteMatch { path_specifier, headers, .. } =
        route_match(&conditions.iter().collect::<Vec<_>>());
    let path = match path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => prefix,
        Some(PathSpecifier::SafeRegex(expression)) => expression.regex,
        other => panic!("{other:?}"),
    };
    let header = |header: &HeaderMatcher| {
        let Some(HeaderMatchSpecifier::StringMatch(value)) = &header.header_match_specifier else {
            panic!("{header:?}")
        };
        let not = if header.invert_match { "!" } else { "" };
        match value.match_pattern.as_ref() {
            Some(MatchPattern::Exact(text)) => format!("{}{not}={text}", header.name),
            Some(MatchPattern::SafeRegex(own)) => format!("{}{not}~{}", header.name, own.regex),
            other => panic!("{other:?}"),
        }
    };
    (path, headers.iter().map(header).collect())
}

#[test]
fn match_without_conditions_matches_every_request() {
    assert_eq!(written(&[]), ("/".to_owned(), Vec::new()));
}

#[test]
fn route_match_contains_every_condition() {
    let one = of(
        Some(("/books", Some("/books"))),
        &["GET", "M-SEARCH"],
        &[("host", "store"), ("x-tier", "gold")],
    );
    let disguised = format!(":path!~{}", PathRegex::DISGUISED_BEFORE_QUERY);
    let headers = [
        r":method~GET|M\-SEARCH",
        ":authority~(?i:store)(?::[0-9]+)?",
        "x-tier~gold",
        disguised.as_str(),
    ];
    let (path, matched) = written(&[one]);
    assert_eq!(
        (path.as_str(), matched),
        ("(?:/books)(?s:.*)", headers.map(str::to_owned).to_vec())
    );
}

#[test]
fn second_path_is_matched_without_the_query() {
    let small = of(Some(("/a.", Some("/a[^?]"))), &["GET"], &[]);
    let large = of(Some(("/b", None)), &["GET", "PUT"], &[]);
    let disguised = format!(":path!~{}", PathRegex::DISGUISED_BEFORE_QUERY);
    let expected_headers =
        [":method=GET", ":method~GET|PUT", &disguised, ":path~(?:/a[^?])(?s:.*)"];
    // The path without a `before_query` form becomes the path match, whatever its position. Other
    // paths become conditions on the `:path` header, each once.
    let (path, headers) = written(&[small.clone(), large, small]);
    assert_eq!(path, "(?:/b)(?s:.*)");
    assert_eq!(headers.len(), 5);
    assert_eq!(headers.iter().filter(|one| **one == ":method=GET").count(), 2);
    for one in expected_headers {
        assert!(headers.contains(&one.to_owned()), "{one}: {headers:?}");
    }
}
