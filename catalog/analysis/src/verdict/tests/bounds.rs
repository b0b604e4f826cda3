//! Limits of questions: the cost of a verdict, and the size and form of the request.

use super::*;
use crate::verdict::matching::COMPILED;

#[test]
fn each_regex_is_compiled_once_per_verdict() {
    let mut mesh = mesh();
    let one = |n: usize| HttpMatch {
        name: name(&format!("m{n}")),
        path: Some(PathRegex { text: "/books/.*".into(), before_query: None }),
        methods: Vec::new(),
        headers: [("x-tier".into(), "lead".into())].into(),
        spot: spot(),
    };
    let group = HttpRouteGroup {
        namespace: name("shop"),
        name: name("books"),
        matches: (0..50).map(one).collect(),
        spot: spot(),
    };
    mesh.http_route_groups.insert(key("books"), Arc::new(group));
    let headers = (0..90).map(|n| ("x-tier".to_owned(), format!("gold{n}"))).collect();
    let request = Request { headers, ..get("/books/1", "gold") };
    COMPILED.set(0);
    let verdict =
        verdict(&snapshot(mesh), &question("buyer", "v1", Some(request)), VerdictBasis::Mesh)
            .unwrap();
    assert_eq!(
        (verdict.answer, verdict.destinations[0].port_verdict.further),
        (Answer::Denied, 45)
    );
    // The expressions of the path, of disguised paths and of the header.
    assert_eq!(COMPILED.get(), 3);
}

#[test]
fn oversized_request_has_no_verdict() {
    let snapshot = snapshot(mesh());
    let ask =
        |request| verdict(&snapshot, &question("buyer", "v1", Some(request)), VerdictBasis::Mesh);
    let with = |headers: Vec<(String, String)>| Request { headers, ..get("/books/1", "gold") };
    let header = |value: String| ("x-tier".to_owned(), value);
    let most = |n| with(vec![header("gold".to_owned()); n]);
    // The joined value of 100 headers is no allowed tier.
    assert_eq!(ask(most(100)).unwrap().answer, Answer::Denied);
    let error = ask(most(101)).unwrap_err().to_string();
    assert!(error.contains("has 101 headers") && error.contains("takes 100 headers"), "{error}");
    let long = |bytes: usize| with(vec![header("x".repeat(bytes - "GET/books/1x-tier".len()))]);
    assert_eq!(ask(long(60 << 10)).unwrap().answer, Answer::Denied);
    let error = ask(long((60 << 10) + 1)).unwrap_err().to_string();
    assert!(error.contains("61441 bytes") && error.contains("61440 bytes"), "{error}");
    let path = "/a".repeat(40 << 10);
    assert!(ask(get(&path, "")).is_err());
}

#[test]
fn malformed_request_has_no_verdict() {
    let snapshot = snapshot(mesh());
    let ask = |method: &str, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let request =
            Request { method: method.to_owned(), headers: headers.collect(), ..get("/", "") };
        verdict(&snapshot, &question("buyer", "v1", Some(request)), VerdictBasis::Mesh)
    };
    assert!(ask("PROPFIND", &[("x-tier_!", "g\told"), ("x", "")]).is_ok());
    for (words, method, headers) in [
        ("`G T` is no method", "G T", [].as_slice()),
        ("`` is no method", "", &[]),
        ("`X Tier` is no name", "GET", &[("X Tier", "gold")]),
        ("`:authority` is no name", "GET", &[(":authority", "v1")]),
        ("not one line", "GET", &[("x-tier", "gold\r\nx: y")]),
        ("two hosts", "GET", &[("Host", "v1"), ("host", "v1")]),
        ("set by the server's sidecar", "GET", &[("X-Forwarded-Client-Cert", "By=x")]),
    ] {
        let error = ask(method, headers).unwrap_err();
        assert!(matches!(error, QuestionError::Request(_)), "{error}");
        assert!(error.to_string().contains(words), "no {words:?} in {error}");
    }
}
