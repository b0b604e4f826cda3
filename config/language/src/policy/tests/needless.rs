//! Warnings about valid policy that has no effect: IM0307, IM0308 and IM0309.

use super::*;
use crate::codes;

/// Services, identity bindings and route groups for the targets below.
const SERVICES: &str = "\
    [[service]]\nname = \"store\"\nports = [{ name = \"a\", port = 80, protocol = \"http\" }, { name = \"b\", port = 81, protocol = \"tcp\" }]\n\
    [[service]]\nname = \"buyer\"\n\
    [[service]]\nname = \"auditor\"\n\
    [[identity_binding]]\nname = \"buyers\"\nservice_account = \"buyer\"\n\
    [[identity_binding]]\nname = \"strangers\"\nspiffe_identities = [\"elsewhere.example/ns/default/sa/buyer\"]\n\
    [[http_route_group]]\nname = \"books\"\nmatches = [\n\
      { name = \"all\" },\n\
      { name = \"get\", methods = [\"GET\"] },\n\
      { name = \"books\", path_regex = \"/books\" },\n\
      { name = \"book\", path_regex = \"/books/[0-9]+$\", methods = [\"GET\"] },\n\
      { name = \"gold\", path_regex = \"/books\", headers = { x-tier = \"gold\" } },\n\
    ]\n\
    [[tcp_route]]\nname = \"any\"\n\
    [[tcp_route]]\nname = \"one\"\nmatches = { ports = [81] }\n";

/// The findings of a policy with these targets of `store`, each given by its sources and rules.
fn of(targets: &[(&str, &str)]) -> Vec<String> {
    let target = |(number, (sources, rules)): (usize, &(&str, &str))| {
        let names = |names: &str| {
            let subject = |name: &str| match name.strip_prefix('@') {
                Some(name) => format!("{{ kind = \"IdentityBinding\", name = \"{name}\" }}"),
                None => format!("{{ name = \"{name}\" }}"),
            };
            names.split(' ').map(subject).collect::<Vec<_>>().join(", ")
        };
        let rule = |rule: &str| match rule {
            "any" | "one" => format!("{{ kind = \"TCPRoute\", name = \"{rule}\" }}"),
            "*" => "{ kind = \"HTTPRouteGroup\", name = \"books\" }".to_owned(),
            _ => {
                let matches = rule.split('+').map(|one| format!("\"{one}\"")).collect::<Vec<_>>();
                let matches = matches.join(", ");
                format!("{{ kind = \"HTTPRouteGroup\", name = \"books\", matches = [{matches}] }}")
            }
        };
        let rules: Vec<_> = rules.split(' ').map(rule).collect();
        format!(
            "[[traffic_target]]\nname = \"t{number}\"\ndestination = {{ name = \"store\" }}\n\
             sources = [{}]\nrules = [{}]\n",
            names(sources),
            rules.join(", ")
        )
    };
    let targets: String = targets.iter().enumerate().map(target).collect();
    findings(&format!("{SERVICES}{targets}"))
}

#[test]
fn rule_covered_by_another_rule_is_a_warning() {
    for (needless, targets) in [
        // Two rules of one target: the second if they are equal, and else the narrower one.
        ("another rule of this target", vec![("buyer", "get get")]),
        ("another rule of this target", vec![("buyer", "book *")]),
        ("another rule of this target", vec![("buyer", "books gold")]),
        ("another rule of this target", vec![("buyer", "books+get book+gold")]),
        ("another rule of this target", vec![("buyer", "get any one")]),
        // Rules of several targets.
        ("traffic target `t0`", vec![("buyer", "get"), ("buyer", "get")]),
        ("traffic target `t1`", vec![("buyer", "book"), ("buyer", "books")]),
        ("traffic target `t0`", vec![("buyer auditor", "*"), ("auditor", "get")]),
        ("traffic target `t0`", vec![("buyer", "any"), ("buyer", "one")]),
        // The same source by another name.
        ("traffic target `t0`", vec![("buyer", "get"), ("@buyers", "get")]),
        ("traffic target `t0`", vec![("@strangers", "*"), ("@strangers", "get")]),
    ] {
        let reported = of(&targets);
        assert_eq!(reported.len(), 1, "{targets:?}: {reported:#?}");
        let message =
            format!("warning[IM0307]: this rule grants nothing that {needless} does not grant");
        assert!(reported[0].starts_with(&message), "{targets:?}: {reported:#?}");
    }
}

#[test]
fn rule_that_grants_more_is_not_reported() {
    for targets in [
        vec![("buyer", "get books")],
        vec![("buyer", "gold get")],
        vec![("buyer", "books"), ("auditor", "book")],
        vec![("buyer", "books"), ("buyer auditor", "book")],
        // The members of a binding are unknown when policy is loaded, or differ.
        vec![("@strangers", "*"), ("buyer", "get")],
        vec![("buyer", "*"), ("@strangers", "get")],
        // The HTTP rule is needed: without it, the TCP rule would allow all requests.
        vec![("buyer", "get any"), ("buyer", "*")],
        // Only the second target allows requests on HTTP ports.
        vec![("buyer", "get any"), ("buyer", "one")],
        vec![("buyer", "*"), ("buyer", "one")],
    ] {
        assert_eq!(of(&targets), [""; 0], "{targets:?}");
    }
}

/// A service with a port and `keys`.
fn service(name: &str, keys: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nports = [{{ port = 80, protocol = \"http\" }}]\n{keys}\n"
    )
}

/// A traffic target that allows `b` to call `a`.
const TARGET: &str = "\
    [[service]]\nname = \"b\"\n\
    [[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]\n\
    [[traffic_target]]\nname = \"t\"\ndestination = { name = \"a\" }\nsources = [{ name = \"b\" }]\n\
    rules = [{ kind = \"HTTPRouteGroup\", name = \"all\" }]\n";

#[test]
fn uncallable_services_are_one_finding() {
    let many: String = (0..7).map(|n| service(&format!("s{n}"), "")).collect();
    let loaded = load_one(&(service("a", "") + &many + TARGET));
    let [finding] = &loaded.findings[..] else { panic!("{:#?}", loaded.findings) };
    let names = "`default/s0`, `default/s1`, `default/s2`, `default/s3`, `default/s4`";
    assert_eq!(
        finding.message,
        format!("no caller may call services {names} and 2 more"),
        "the finding names the first of many services"
    );
    assert_eq!((finding.is_error(), finding.related.len()), (false, 4));
    // Without any grant there is no warning, since every mesh begins so.
    assert_eq!(findings(&many), [""; 0]);
}

#[test]
fn service_callable_by_split_or_mode_is_not_reported() {
    let split = "[[traffic_split]]\nname = \"s\"\nservice = \"apex\"\nbackends = [{ service = \"a\", weight = 1 }]\n";
    let with = |more: &str| findings(&(service("a", "") + TARGET + more));
    assert_eq!(with(&(service("apex", "") + split)), [""; 0]);
    assert_eq!(with(&service("c", "service_account = \"a\"")), [""; 0]);
    assert_eq!(with(&service("c", "mode = \"permissive\"")), [""; 0]);
    assert_eq!(with(&service("c", "")).len(), 1);
    // A policy that marks one service as strict is for a mesh that is not strict by default.
    let reported = with(&(service("c", "") + &service("d", "mode = \"strict\"")));
    assert_eq!(reported.len(), 1);
    assert!(
        reported[0].starts_with("warning[IM0308]: no caller may call service `default/d`"),
        "{reported:?}"
    );
    // A label binding may resolve to any account of its namespace.
    let binding = "[[identity_binding]]\nname = \"labelled\"\nendpoint_labels = { a = \"b\" }\n";
    let by_labels = TARGET.replace(
        "destination = { name = \"a\" }",
        "destination = { kind = \"IdentityBinding\", name = \"labelled\" }",
    );
    assert_eq!(findings(&(service("c", "") + binding + &by_labels)), [""; 0]);
}

#[test]
fn traffic_target_of_a_client_only_service_is_a_warning() {
    let loaded = load_one(
        &(service("c", "service_account = \"b\"") + "[[service]]\nname = \"a\"\n" + TARGET),
    );
    let reported: Vec<String> = lines(&loaded);
    assert!(
        reported[0].contains("IM0308") && reported.len() == 2,
        "`c` has ports and no caller: {reported:#?}"
    );
    let message =
        "warning[IM0309]: this target allows no calls: no service of `default/a` has ports";
    assert!(reported[1].starts_with(message), "{reported:#?}");
    // One service of the account with ports is enough.
    let both = service("c", "service_account = \"a\"") + "[[service]]\nname = \"a\"\n" + TARGET;
    assert_eq!(findings(&both), [""; 0]);
}

#[test]
fn five_thousand_rules_of_one_caller_are_compared() {
    use std::fmt::Write as _;
    let mut text = service("a", "") + TARGET;
    for number in 0..5000 {
        write!(
            text,
            "[[http_route_group]]\nname = \"g{number}\"\nmatches = [{{ name = \"m\", path_regex = \"/{number}$\" }}]\n\
             [[traffic_target]]\nname = \"t{number}\"\ndestination = {{ name = \"a\" }}\nsources = [{{ name = \"b\" }}]\n\
             rules = [{{ kind = \"HTTPRouteGroup\", name = \"g{number}\" }}]\n"
        )
        .unwrap();
    }
    // The rule that allows everything makes all others redundant.
    let findings = load_one(&text).findings;
    assert!(findings.iter().filter(|finding| finding.code == codes::SHADOWED_RULE).count() > 900);
}
