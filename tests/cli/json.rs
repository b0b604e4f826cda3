//! The JSON output of commands matches docs/reference/json.md.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::command::Workspace;

const BEFORE: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[service]]
name = "pay"
external = true
hostname = "pay.example"
ports = [{ name = "web", port = 80, protocol = "http" }]
[service.endpoints]
static = [{ address = "10.0.0.9" }]

[[service]]
name = "buyer"

[[service]]
name = "thief"

[[http_route_group]]
name = "store"
matches = [{ name = "buy", path_regex = "/books", methods = ["GET"], headers = { x-tier = "gold", host = "store.*" } }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]

[[traffic_target]]
name = "payers"
destination = { name = "pay" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]

[[traffic_split]]
name = "books"
service = "store"
matches = [{ kind = "HTTPRouteGroup", name = "store" }]
backends = [{ service = "store", weight = 1 }]

[[http_route]]
name = "books"
service = "store"
matches = [{ kind = "HTTPRouteGroup", name = "store" }]
timeout = "5s"

[[telemetry]]
name = "log"
access_log = {}
"#;

/// The words in backticks on the page.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let page = fs_err::read_to_string(page).unwrap();
    page.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// All keys of `value`, except those of objects with foreign keys.
fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        Value::Object(fields) => {
            for (key, value) in fields {
                into.insert(key.clone());
                let is_foreign = ["before", "after"].contains(&&**key) && fields.contains_key("at");
                // Headers by name; and findings, which have their own page.
                if !is_foreign && key != "headers" && !key.starts_with("findings_") {
                    keys(value, into);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn json_keys_of_verdict_and_plan_match_the_docs() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("before/a.toml", BEFORE);
    let after = BEFORE
        .replace("x-tier = \"gold\"", "x-tier = \"lead\"")
        .replace("5s", "6s")
        .replace("weight = 1 }", "weight = 1 }, { service = \"store-v2\", weight = 1 }")
        .replace("access_log = {}", "access_log = { filter = { status_at_least = 500 } }")
        .replacen("[[service]]", "[[service]]\nvisibility = \"private\"", 1);
    let after = format!(
        "{after}\n[[service]]\nname = \"store-v2\"\nports = [{{ name = \"web\", port = 80, protocol = \"http\" }}]\n"
    );
    workspace.write("after/a.toml", &after);
    let mut found = BTreeSet::new();
    let mut ask = |arguments: &[&str]| {
        let run = workspace.run(&[arguments, &["--output", "json"]].concat());
        let printed = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        keys(&printed, &mut found);
    };
    let explain = ["policy", "explain", "--offline", "before", "--from", "buyer", "--to"];
    ask(&[&explain[..], &["store", "--path", "/books", "--header", "x-tier=gold"]].concat());
    ask(&[&explain[..], &["store", "--path", "/a/../b", "--method", "PUT"]].concat());
    ask(&[&explain[..], &["store", "--path", "/a%2fb"]].concat());
    ask(&[&explain[..], &["pay"]].concat());
    ask(&["policy", "plan", "after", "--offline", "before", "--resources"]);
    let documented = documented();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/reference/json.md does not have: {missing:?}");
    // A renamed key is missing on the page, and a removed one is not printed.
    for gone in [
        "answer",
        "reason",
        "port_verdict",
        "mismatches",
        "shares",
        "conditions",
        "access",
        "settings",
    ] {
        assert!(found.contains(gone), "{gone} is not printed: {found:?}");
    }
    for key in ["bytes", "who", "turn"] {
        assert!(!found.contains(key), "{key} is our own affair");
    }
}
