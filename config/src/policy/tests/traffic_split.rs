use super::*;

/// A split of `a` with these backends, and services `a`, `b` and `c`.
fn split(backends: &str) -> String {
    let text =
        format!("[[traffic_split]]\nname = \"s\"\nservice = \"a\"\nbackends = [{backends}]\n");
    ["a", "b", "c"].iter().fold(text, |text, name| with_service(name, &text))
}

#[test]
fn the_apex_itself_may_be_a_backend_and_a_weight_may_be_0() {
    let text = split("{ service = \"a\", weight = 0 }, { service = \"b\", weight = 0x10 }");
    let specification = specification(&text);
    let split = specification.traffic_splits.values().next().unwrap();
    assert_eq!(split.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [0, 16]);
}

#[test]
fn what_is_wrong_with_backends_is_told() {
    for (backends, expected) in [
        ("", "error[IM0304]: `backends` is empty"),
        ("{ service = \"b\" }", "error[IM0103]: a backend needs `weight`"),
        ("{ service = \"b\", weight = 0 }", "error[IM0301]: the weights of the backends sum to 0"),
        (
            "{ service = \"b\", weight = -1 }",
            "error[IM0301]: `weight` must be from 0 to 4294967295: `-1`",
        ),
        (
            "{ service = \"b\", weight = 1.5 }",
            "error[IM0104]: `weight` must be an integer, not a float",
        ),
        (
            "{ service = \"b\", weight = 4294967295 }, { service = \"c\", weight = 1 }",
            "error[IM0301]: the weights of the backends sum to more than 4294967295",
        ),
        (
            "{ service = \"b\", weight = 1 }, { service = \"b\", weight = 1 }",
            "error[IM0303]: backend `b` is given twice",
        ),
    ] {
        let told = finding(&split(backends));
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn a_split_with_matches_is_not_served_yet() {
    let text = split("{ service = \"b\", weight = 1 }").replace(
        "service = \"a\"\nbackends",
        "service = \"a\"\nmatches = [{ kind = \"HTTPRouteGroup\", name = \"g\" }]\nbackends",
    );
    assert!(finding(&text).starts_with("error[IM0108]: `matches` is not served"));
}

#[test]
fn a_second_split_of_a_service_is_told_with_the_first() {
    let text = split("{ service = \"b\", weight = 1 }")
        + "[[traffic_split]]\nname = \"t\"\nservice = \"a\"\nbackends = [{ service = \"c\", weight = 1 }]\n";
    let loaded = load_one(&text);
    assert_eq!(loaded.findings.len(), 1);
    assert_eq!(loaded.findings[0].message, "service `a` has a second traffic split");
    assert_eq!(loaded.findings[0].related[0].0.line, 2);
}

/// Splits from and to the named services.
fn chain(edges: &[(&str, &str)]) -> Vec<String> {
    let text = ["a", "b", "c"].iter().fold(String::new(), |text, name| with_service(name, &text));
    findings(&edges.iter().fold(text, |text, (from, to)| {
        format!(
            "{text}[[traffic_split]]\nname = \"{from}\"\nservice = \"{from}\"\n\
             backends = [{{ service = \"{to}\", weight = 1 }}]\n"
        )
    }))
}

#[test]
fn a_circle_of_splits_is_told_once() {
    let told = chain(&[("a", "b"), ("b", "c"), ("c", "a")]);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].starts_with("error[IM0303]: traffic splits lead round in a circle: a → b → c → a")
    );
}

#[test]
fn a_split_behind_a_split_is_not_served_yet() {
    let told = chain(&[("a", "b"), ("b", "c")]);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].starts_with("error[IM0108]: backend `b` has a traffic split of its own"));
}

#[test]
fn a_backend_that_lacks_a_port_of_the_apex_is_a_warning() {
    let loaded =
        load_one(&split("{ service = \"b\", weight = 1 }").replacen("port = 80", "port = 81", 2));
    // Both the apex and the backend now have 81.
    assert!(loaded.findings.is_empty());
    let loaded =
        load_one(&split("{ service = \"b\", weight = 1 }").replacen("port = 80", "port = 81", 1));
    let told = lines(&loaded);
    assert!(
        told[0].starts_with("warning[IM0303]: backend `b` lacks port `81` of service `a`"),
        "{told:#?}"
    );
    assert!(loaded.specification.is_some());
}
