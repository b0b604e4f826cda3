//! Objects of several documents: duplicates, references and accounts.

use super::*;

/// Loads these texts as documents `a.toml`, `b.toml` and `c.toml`.
fn across(texts: &[&str]) -> Loaded {
    let names = ["a.toml", "b.toml", "c.toml"];
    load_documents(names.iter().zip(texts).map(|(name, text)| Document::new(*name, *text)))
}

#[test]
fn duplicate_name_in_two_files_is_reported_with_both_locations() {
    let service = "[[service]]\nname = \"store\"\n";
    let loaded = across(&[service, service]);
    assert_eq!(
        lines(&loaded),
        ["error[IM0202]: service `store` is defined twice in namespace `default` (b.toml:2:8)"]
    );
    assert_eq!(loaded.findings[0].related[0].0.to_string(), "a.toml:2:8");
    // Objects of different kinds or namespaces may have the same name.
    let other = "[[service]]\nname = \"store\"\nnamespace = \"shop\"\n\
                 [[http_route_group]]\nname = \"store\"\nmatches = [{ name = \"all\" }]\n";
    assert!(across(&[service, other]).findings.is_empty());
}

#[test]
fn references_reach_across_files() {
    let middle = BOOKSTORE.find("[[traffic_split]]").unwrap();
    let (services, rest) = BOOKSTORE.split_at(middle);
    assert!(across(&[rest, services]).findings.is_empty());
}

#[test]
fn unresolved_reference_is_reported_with_a_suggestion() {
    let text = BOOKSTORE
        .replace("sources = [{ name = \"bookbuyer\"", "sources = [{ name = \"bookbiyer\"")
        .replace("matches = [\"buy\"]", "matches = [\"bux\"]")
        .replace("service = \"bookstore-v2\"", "service = \"warehouse\"");
    assert_eq!(
        findings(&text),
        [
            "warning[IM0201]: there is no service `warehouse` in namespace `default` (p.toml:22:68) / \
             it gets its share of the calls as soon as policy defines it",
            "error[IM0201]: no service runs as `bookbiyer` in namespace `default` (p.toml:34:21) / \
             did you mean `bookbuyer`?",
            "error[IM0201]: HTTP route group `bookstore` has no match `bux` (p.toml:35:68) / did you \
             mean `buy`?",
        ]
    );
}

#[test]
fn missing_route_group_is_reported_without_its_matches() {
    let text = BOOKSTORE.replace("name = \"bookstore\", matches", "name = \"bookstor\", matches");
    assert_eq!(
        finding(&text),
        "error[IM0201]: there is no HTTP route group `bookstor` in namespace `default` \
         (p.toml:35:44) / did you mean `bookstore`?"
    );
}

#[test]
fn reference_to_the_wrong_namespace_names_the_right_one() {
    let text = BOOKSTORE.replace(
        "[[service]]\nname = \"bookbuyer\"",
        "[[service]]\nnamespace = \"shop\"\nname = \"bookbuyer\"",
    );
    assert!(finding(&text).ends_with("/ there is one in namespace `shop`"));
}

#[test]
fn service_named_as_account_is_reported_with_its_real_account() {
    let text = BOOKSTORE.replace(
        "destination = { name = \"bookstore\" }",
        "destination = { name = \"bookstore-v1\" }",
    );
    assert!(finding(&text).ends_with(
        "/ service `bookstore-v1` runs as `bookstore`: policy is about accounts, not services"
    ));
}

#[test]
fn broken_object_causes_no_findings_in_its_referrers() {
    let text = BOOKSTORE.replace("path_regex = \"/books/.*\"", "path_regex = \"(\"").replace(
        "name = \"bookstore-v1\"\nservice_account",
        "name = \"bookstore-v1\"\nservice_acount",
    );
    let reported = findings(&text);
    assert_eq!(reported.len(), 2, "{reported:#?}");
}

#[test]
fn finding_names_the_object_at_its_spot_or_else_the_file() {
    let text = "
[[service]]
ports = [{ name = \"web\", port = 80, protocol = \"http\", wrong = 1 }]
name = \"web\"
namespace = \"shop\"

[service.endpoints.consul]
service = \"web\"
typo = 1

[[traffic_target]]
name = \"buyers\"
namespace = \"shop\"
destination = { name = \"web\" }
sources = [{ name = \"vistor\" }]
rules = [{ kind = \"TCPRoute\", name = \"missing\" }]

[[traffic_target]]
name = \"a b\"

[[namespace]]
name = \"shop\"
extra = 1

[[servce]]
name = \"x\"
";
    let found: std::collections::BTreeSet<_> = load_one(text)
        .findings
        .iter()
        .map(|finding| {
            let objects: Vec<_> = finding.objects.iter().map(ToString::to_string).collect();
            format!("{} {}", finding.spot.as_ref().map_or(0, |spot| spot.line), objects.join(" "))
        })
        .collect();
    for expected in [
        "3 service:shop/web",
        "9 service:shop/web",
        "15 policy:traffic_target/shop/buyers",
        "16 policy:traffic_target/shop/buyers",
        "19 file:p.toml",
        "23 policy:namespace/shop",
    ] {
        assert!(found.contains(expected), "{expected}: {found:#?}");
    }
    assert!(found.iter().all(|line| !line.ends_with(' ')), "{found:#?}");
}
