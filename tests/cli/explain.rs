//! `ironmesh policy explain`, of policy alone.

use crate::command::{Place, Run};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[service]]
name = "store-v1"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[service]]
name = "store-v2"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[service]]
name = "ledger"
ports = [{ name = "sql", port = 3306, protocol = "tcp" }]

[[service]]
name = "buyer"

[[service]]
name = "thief"

[[traffic_split]]
name = "versions"
service = "store"
backends = [{ service = "store-v1", weight = 9 }, { service = "store-v2", weight = 1 }]

[[http_route_group]]
name = "store"
[[http_route_group.matches]]
name = "buy"
path_regex = "/books/.*"
methods = ["GET"]

[[tcp_route]]
name = "sql"

[[traffic_target]]
name = "buyers"
destination = { name = "store-v1" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]

[[traffic_target]]
name = "book-keeping"
destination = { name = "ledger" }
sources = [{ name = "store-v1" }]
rules = [{ kind = "TCPRoute", name = "sql" }]
"#;

fn explain(place: &Place, arguments: &[&str]) -> Run {
    place.write("policy/a.toml", POLICY);
    let all = [&["policy", "explain", "--offline", "policy"], arguments].concat();
    place.run(&all)
}

#[test]
fn a_request_that_is_allowed_names_its_rule_and_exits_with_0() {
    let Some(place) = Place::open() else { return };
    let run = explain(&place, &["--from", "buyer", "--to", "store-v1", "--path", "/x/../books/1"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
allowed: default/buyer may GET `/x/../books/1` of default/store-v1 (port 80, http)
  the path is compared as `/books/1`

default/store-v1, as account default/store-v1, strict:
  allowed by match `buy` of route group `default/store` (a.toml:32:8): GET on `/books/.*`
    which traffic target `default/buyers` (a.toml:40:8) names
  the caller gets the answer of the application
  endpoints are not known from policy alone
"
    );
    assert_eq!(run.stderr, "");
}

#[test]
fn a_request_that_is_denied_says_what_is_missing_and_exits_with_1() {
    let Some(place) = Place::open() else { return };
    let ways = ["--from", "buyer", "--to", "store-v1", "--path", "/shelf", "--method", "PUT"];
    let run = explain(&place, &ways);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    assert_eq!(
        run.stdout,
        "\
denied: default/buyer may not PUT `/shelf` of default/store-v1 (port 80, http)

default/store-v1, as account default/store-v1, strict:
  not by match `buy` of route group `default/store` (a.toml:32:8), which traffic target `default/buyers` (a.toml:40:8) names
    the method PUT is none of: GET
    the path `/shelf` does not match `/books/.*`
  the caller gets 403 from the server's sidecar
  endpoints are not known from policy alone
"
    );
    let run = explain(&place, &["--from", "thief", "--to", "store-v1", "--path", "/books/1"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("default/thief is not among the callers: default/buyer"));
    assert!(run.stdout.contains("404 by `Host`"), "{}", run.stdout);
}

#[test]
fn calls_through_a_split_are_judged_wherever_they_go() {
    let Some(place) = Place::open() else { return };
    let run = explain(&place, &["--from", "buyer", "--to", "store", "--path", "/books/1"]);
    assert_eq!(run.code, 1, "not all of it is allowed: {run:?}");
    for part in [
        "allowed in part: default/buyer may GET",
        "split by traffic split `default/versions` (a.toml:25:8)",
        "9/10 to default/store-v1",
        "1/10 to default/store-v2",
        "no traffic target is about account default/store-v2",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in\n{}", run.stdout);
    }
}

#[test]
fn without_a_request_the_ways_are_told_and_tcp_has_no_requests() {
    let Some(place) = Place::open() else { return };
    let run = explain(&place, &["--from", "buyer", "--to", "store-v1"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("in these ways"), "{}", run.stdout);
    let run = explain(&place, &["--from", "store-v1", "--to", "ledger"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("TCP route `default/sql` (a.toml:37:8): connections"));
    let run = explain(&place, &["--from", "buyer", "--to", "ledger"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("no connection: its own sidecar listens on no port for it"));
    let run = explain(&place, &["--from", "buyer", "--to", "ledger", "--path", "/"]);
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn a_name_that_is_misspelt_is_no_denial() {
    let Some(place) = Place::open() else { return };
    let run = explain(&place, &["--from", "byer", "--to", "store-v1"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("did you mean `default/buyer`?"), "{}", run.stderr);
    let run = explain(&place, &["--from", "buyer", "--to", "stor"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("did you mean `default/store`?"), "{}", run.stderr);
    let run = explain(&place, &["--from", "buyer", "--to", "store", "--port", "81"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("has no port 81; it has: 80"), "{}", run.stderr);
    let run = place.run(&["policy", "explain", "--from", "buyer", "--to", "store"]);
    assert_eq!(run.code, 4, "no control plane runs: {run:?}");
}

#[test]
fn machines_get_the_verdict_as_data() {
    let Some(place) = Place::open() else { return };
    let arguments = ["--from", "buyer", "--to", "store-v1", "--path", "/a%2fb", "--output", "json"];
    let run = explain(&place, &arguments);
    assert_eq!(run.code, 1, "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(json["answer"]["rejected"].as_str().unwrap().contains("%2f"), "{json:#}");
    let run = explain(&place, &["--from", "buyer", "--to", "store-v1", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["answer"], "allowed");
    let permit = &json["destinations"][0]["judgement"]["by"][0];
    assert_eq!(
        (&permit["target"]["spot"]["file"], &permit["target"]["spot"]["line"]),
        (&"a.toml".into(), &40.into())
    );
}
