//! How much a question may ask.

use super::*;
use crate::verdict::matching::COMPILED;

#[test]
fn each_expression_is_compiled_once_for_all_values_and_all_rules() {
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
        verdict(&snapshot(mesh), &question("buyer", "v1", Some(request)), Sight::Mesh).unwrap();
    assert_eq!((verdict.answer, verdict.destinations[0].judgement.further), (Answer::Denied, 45));
    // The path, what may be disguised, and the header.
    assert_eq!(COMPILED.get(), 3);
}
