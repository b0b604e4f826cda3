//! `[[traffic_split]]`.

use super::*;

/// A split of `a` with these backends, and services `a`, `b` and `c`.
fn split(backends: &str) -> String {
    let text =
        format!("[[traffic_split]]\nname = \"s\"\nservice = \"a\"\nbackends = [{backends}]\n");
    ["a", "b", "c"].iter().fold(text, |text, name| with_service(name, &text))
}

#[test]
fn backend_may_be_the_apex_and_may_have_zero_weight() {
    let text = split("{ service = \"a\", weight = 0 }, { service = \"b\", weight = 0x10 }");
    let specification = specification(&text);
    let split = specification.traffic_splits.values().next().unwrap();
    assert_eq!(split.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [0, 16]);
}

#[test]
fn invalid_backends_are_reported() {
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
        let reported = finding(&split(backends));
        assert!(reported.starts_with(expected), "{reported}");
    }
}

/// A split named `name` of `a` with these matches.
fn conditional(name: &str, matches: &str) -> String {
    format!(
        "[[traffic_split]]\nname = \"{name}\"\nservice = \"a\"\nmatches = {matches}\n\
         backends = [{{ service = \"c\", weight = 1 }}]\n"
    )
}

const GROUP: &str =
    "[[http_route_group]]\nname = \"g\"\nmatches = [{ name = \"m\" }, { name = \"n\" }]\n";

#[test]
fn split_may_match_selected_requests() {
    let rest = split("{ service = \"b\", weight = 1 }") + GROUP;
    let named = "[{ kind = \"HTTPRouteGroup\", name = \"g\", matches = [\"n\", \"n\"] }]";
    let whole = "[{ kind = \"HTTPRouteGroup\", name = \"g\" }]";
    let specification =
        specification(&(rest + &conditional("t", named) + &conditional("u", whole)));
    let matches: Vec<_> =
        specification.traffic_splits.values().flat_map(|split| &split.matches).collect();
    let names = |n: usize| matches[n].matches.as_ref().map(Vec::len);
    assert_eq!((matches.len(), names(0), names(1)), (2, Some(1), None));
    assert_eq!(matches[0].group.as_str(), "g");
}

#[test]
fn invalid_split_matches_are_reported() {
    for (matches, expected) in [
        ("[]", "error[IM0304]: `matches` is empty"),
        ("[\"g\"]", "error[IM0104]: `matches` must be a table, not a string"),
        ("[{ name = \"g\" }]", "error[IM0103]: a match of a traffic split needs `kind`"),
        (
            "[{ kind = \"HTTPRouteGroup\" }]",
            "error[IM0103]: a match of a traffic split needs `name`",
        ),
        (
            "[{ kind = \"TCPRoute\", name = \"g\" }]",
            "error[IM0105]: there is no kind of match `TCPRoute`",
        ),
        (
            "[{ kind = \"HTTPRouteGroup\", name = \"h\" }]",
            "error[IM0201]: there is no HTTP route group `h`",
        ),
        (
            "[{ kind = \"HTTPRouteGroup\", name = \"g\", matches = [\"o\"] }]",
            "error[IM0201]: HTTP route group `g` has no match `o`",
        ),
        (
            "[{ kind = \"HTTPRouteGroup\", name = \"g\", matches = [] }]",
            "error[IM0304]: `matches` is empty",
        ),
    ] {
        let services = split("{ service = \"b\", weight = 1 }");
        let reported = finding(&(services + GROUP + &conditional("t", matches)));
        assert!(reported.starts_with(expected), "{reported}");
    }
}

#[test]
fn conditional_split_of_a_tcp_service_is_a_warning() {
    let matches = "[{ kind = \"HTTPRouteGroup\", name = \"g\" }]";
    let text = GROUP.to_owned() + &conditional("t", matches);
    let text = ["a", "b", "c"].iter().fold(text, |text, name| with_service(name, &text));
    let reported = finding(&text.replace("\"http\"", "\"tcp\""));
    assert!(
        reported
            .starts_with("warning[IM0303]: this split has no effect: service `a` has no HTTP port"),
        "{reported}"
    );
}

#[test]
fn second_unconditional_split_is_reported_with_the_first() {
    let text = split("{ service = \"b\", weight = 1 }")
        + "[[traffic_split]]\nname = \"t\"\nservice = \"a\"\nbackends = [{ service = \"c\", weight = 1 }]\n";
    let loaded = load_one(&text);
    assert_eq!(loaded.findings.len(), 1);
    assert_eq!(loaded.findings[0].message, "service `a` has a second traffic split of all calls");
    assert_eq!(loaded.findings[0].related[0].0.line, 2);
}

#[test]
fn missing_backend_is_a_warning_and_keeps_its_share() {
    let text = split("{ service = \"b\", weight = 1 }, { service = \"d\", weight = 3 }");
    let loaded = load_one(&text);
    let (near, to_come) = (
        "did you mean `c`? If not, ",
        "it gets its share of the calls as soon as policy defines it",
    );
    let missing =
        "warning[IM0201]: there is no service `d` in namespace `default` (p.toml:4:56) / ";
    assert_eq!(lines(&loaded), [format!("{missing}{near}{to_come}")]);
    let specification = loaded.specification.unwrap();
    assert_eq!(specification.traffic_splits.values().next().unwrap().backends.len(), 2);
    assert_eq!(findings(&with_service("d", &text)), [""; 0]);
    // The help suggests no backend that the split already has.
    let text = split(
        "{ service = \"b\", weight = 1 }, { service = \"c\", weight = 1 }, { service = \"d\", weight = 3 }",
    );
    assert!(finding(&text).ends_with(&format!(" / {to_come}")));
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
fn split_cycle_is_reported_once() {
    let reported = chain(&[("a", "b"), ("b", "c"), ("c", "a")]);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert!(reported[0].starts_with("error[IM0303]: traffic splits form a cycle: a → b → c → a"));
}

#[test]
fn chained_splits_and_a_self_backend_are_accepted() {
    assert_eq!(chain(&[("a", "b"), ("b", "c"), ("c", "c")]), [""; 0]);
}

#[test]
fn conditional_split_cycle_is_reported() {
    let matches = "[{ kind = \"HTTPRouteGroup\", name = \"g\" }]";
    let back = "[[traffic_split]]\nname = \"back\"\nservice = \"c\"\nbackends = [{ service = \"a\", weight = 1 }]\n";
    let text = split("{ service = \"b\", weight = 1 }") + GROUP + &conditional("t", matches) + back;
    let reported = finding(&text);
    assert!(
        reported.starts_with("error[IM0303]: traffic splits form a cycle: a → c → a"),
        "{reported}"
    );
}

#[test]
fn too_many_split_routes_are_reported_at_the_causing_service() {
    let matches: Vec<_> =
        (0..256).map(|n| format!("{{ name = \"m{n}\", path_regex = \"/{n}\" }}")).collect();
    let group = format!("[[http_route_group]]\nname = \"g\"\nmatches = [{}]\n", matches.join(", "));
    let front = "[[traffic_split]]\nname = \"front\"\nservice = \"front\"\n\
                 backends = [{ service = \"a\", weight = 1 }]\n";
    let all = conditional("t", "[{ kind = \"HTTPRouteGroup\", name = \"g\" }]");
    let text = split("{ service = \"b\", weight = 1 }") + &with_service("front", front) + &all;
    let reported = finding(&(text.clone() + &group));
    assert!(
        reported.starts_with("error[IM0303]: the splits of service `a` make more than 256 routes"),
        "{reported}"
    );
    specification(&(text + &group.replace("{ name = \"m0\", path_regex = \"/0\" }, ", "")));
}

#[test]
fn paths_that_envoy_cannot_compare_together_are_an_error() {
    // Each expression is accepted by itself, but not with the part that excludes the query.
    let group = |name: &str, path: &str| {
        format!(
            "[[http_route_group]]\nname = \"{name}\"\nmatches = [{{ name = \"m\", path_regex = '{path}' }}]\n"
        )
    };
    let of = |name: &str, service: &str, to: &str| {
        format!(
            "[[traffic_split]]\nname = \"{name}\"\nservice = \"{service}\"\n\
             matches = [{{ kind = \"HTTPRouteGroup\", name = \"{name}\" }}]\n\
             backends = [{{ service = \"{to}\", weight = 1 }}]\n"
        )
    };
    let text = of("g", "a", "b") + &of("h", "b", "c") + &group("g", "/[^/]{1,300}");
    let text = ["a", "b", "c"].iter().fold(text, |text, name| with_service(name, &text));
    let reported = finding(&(text.clone() + &group("h", "/x[^/]{1,300}")));
    assert!(
        reported.starts_with("error[IM0302]: the `path_regex` of match `m` cannot be combined"),
        "{reported}"
    );
    specification(&(text + &group("h", "/x[^/]{1,100}")));
}

/// The findings of a split of `store` to `v1` and `v2`, of which callers may call only `v1`, with
/// `more` policy.
fn canary(more: &str) -> Vec<String> {
    let services = ["store", "v1", "v2", "v3", "buyer"];
    let text = services.iter().fold(String::new(), |text, name| with_service(name, &text));
    let mut reported = findings(&format!(
        "{text}{GROUP}
[[traffic_split]]
name = \"store\"
service = \"store\"
backends = [{{ service = \"v1\", weight = 9 }}, {{ service = \"v2\", weight = 1 }}]

[[traffic_target]]
name = \"buyers\"
destination = {{ name = \"v1\" }}
sources = [{{ name = \"buyer\" }}]
rules = [{{ kind = \"HTTPRouteGroup\", name = \"g\" }}]
{more}"
    ));
    // Services without callers and without a relation to the split have a finding of their own.
    reported.retain(|finding| !finding.contains("IM0308"));
    reported
}

#[test]
fn uncallable_backend_beside_a_callable_one_is_a_warning() {
    let reported = canary("");
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert!(
        reported[0].starts_with(
            "warning[IM0306]: no caller may call backend `v2`: its share of the calls is denied"
        ) && reported[0].ends_with("or give the service `service_account = \"v1\"`, as `v1` has"),
        "{reported:#?}"
    );
    // The split of the backend leads its calls to another service, which has no caller either.
    let handed_on = |to: &str| {
        format!(
            "[[traffic_split]]\nname = \"v2\"\nservice = \"v2\"\n\
             backends = [{{ service = \"{to}\", weight = 1 }}]\n"
        )
    };
    assert_eq!(canary(&handed_on("v1")), [""; 0]);
    assert_eq!(canary(&handed_on("v2")).len(), 2, "one finding at each split that names it");
    assert!(canary(&handed_on("v3"))[0].contains("no caller may call backend `v3`"));
    // A split without any callable backend is not in use.
    assert_eq!(
        canary(&handed_on("v1").replace("\"v2\"", "\"buyer\"").replace("v1", "v3")).len(),
        1
    );
}

#[test]
fn backend_without_a_port_of_the_apex_is_a_warning() {
    let loaded =
        load_one(&split("{ service = \"b\", weight = 1 }").replacen("port = 80", "port = 81", 2));
    // Both the apex and the backend have port 81 now.
    assert!(loaded.findings.is_empty());
    let loaded =
        load_one(&split("{ service = \"b\", weight = 1 }").replacen("port = 80", "port = 81", 1));
    let reported = lines(&loaded);
    assert!(
        reported[0].starts_with("warning[IM0303]: backend `b` lacks port `81` of service `a`"),
        "{reported:#?}"
    );
    assert!(loaded.specification.is_some());
}

#[test]
fn split_has_at_most_a_thousand_backends() {
    let many = |count: usize| {
        let backend = |n: usize| format!("{{ service = \"b{n}\", weight = 1 }}");
        split(&(0..count).map(backend).collect::<Vec<_>>().join(", "))
    };
    let reported = finding(&many(1001));
    assert!(
        reported.starts_with("error[IM0113]: a traffic split has at most 1000 backends"),
        "{reported}"
    );
    // A thousand backends are accepted, with warnings that they do not exist.
    assert!(findings(&many(1000)).iter().all(|reported| reported.starts_with("warning")));
}

#[test]
fn backend_without_endpoints_is_reported() {
    let drained = split("{ service = \"a\", weight = 3 }, { service = \"b\", weight = 1 }")
        .replace("name = \"b\"\n", "name = \"b\"\nstate = \"drained\"\n");
    assert!(drained.contains("drained"), "{drained}");
    let reported = finding(&drained);
    assert!(
        reported.starts_with("warning[IM0314]: backend `b` has no endpoints, it is drained: 25 %"),
        "{reported}"
    );
    let without_share =
        drained.replace("{ service = \"b\", weight = 1 }", "{ service = \"b\", weight = 0 }");
    specification(&without_share);

    let subset = "subsets = [{ name = \"east\", labels = { zone = \"east\" } }]\n\
                  endpoints = { static = [{ address = \"10.0.0.1\", labels = { zone = \"ZONE\" } }] }\n";
    let split = split("{ service = \"east\", weight = 1 }")
        .replace("name = \"a\"\n", &format!("name = \"a\"\n{subset}"));
    let reported = finding(&split);
    assert!(
        reported.starts_with("warning[IM0314]: backend `east` has no endpoints, none of"),
        "{reported}"
    );
    specification(&split.replace("ZONE", "east"));
}
