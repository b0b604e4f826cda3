//! Headers as a server's sidecar compares them: it joins repeated headers, and drops those whose
//! name has an underscore.

use super::*;

fn with(headers: &[(&str, &str)]) -> Request {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Request { path: "/books/1".to_owned(), headers: headers.collect(), ..Request::default() }
}

#[test]
fn repeated_header_is_compared_as_one_value() {
    for (headers, answer) in [
        (vec![("x-tier", "gold")], Answer::Allowed),
        (vec![("x-tier", "gold"), ("X-Tier", "bronze")], Answer::Denied),
        (vec![("x-tier", "bronze"), ("x-tier", "gold")], Answer::Denied),
        (vec![("x-tier", "gold"), ("x-tier", "gold")], Answer::Denied),
        (vec![("x-other", "a"), ("x-other", "b"), ("x-tier", "gold")], Answer::Allowed),
    ] {
        let verdict = ask("buyer", "v1", Some(with(&headers)));
        assert_eq!(verdict.answer, answer, "{headers:?}");
    }
    let verdict = ask("buyer", "v1", Some(with(&[("x-tier", "gold"), ("x-tier", "bronze")])));
    let reported = format!("{verdict:?}");
    assert!(reported.contains("gold,bronze"), "{reported}");
}

#[test]
fn header_with_an_underscore_is_ignored() {
    let beside = with(&[("x_tier", "bronze"), ("x-tier", "gold")]);
    assert_eq!(ask("buyer", "v1", Some(beside)).answer, Answer::Allowed);
    let instead = with(&[("x_tier", "gold")]);
    assert_eq!(ask("buyer", "v1", Some(instead)).answer, Answer::Denied);
}
