//! `ironmesh policy plan` from one folder to another.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use ironmesh_tests::programs::require_envoy;

use crate::command::{Run, Workspace};

const BEFORE: &str = r#"
[[service]]
name = "store"
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
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]

[[traffic_target]]
name = "book-keeping"
destination = { name = "ledger" }
sources = [{ name = "store" }, { name = "store-v2" }]
rules = [{ kind = "TCPRoute", name = "sql" }]

[[traffic_split]]
name = "versions"
service = "store"
backends = [{ service = "store", weight = 9 }, { service = "store-v2", weight = 1 }]
"#;

fn plan(workspace: &Workspace, after: &str, arguments: &[&str]) -> Run {
    workspace.write("before/a.toml", BEFORE);
    workspace.write("after/a.toml", after);
    let all = [&["policy", "plan", "after", "--offline", "before"], arguments].concat();
    workspace.run(&all)
}

#[test]
fn plan_of_reformatted_policy_has_no_changes() {
    let Some(workspace) = Workspace::open() else { return };
    let after = format!("# a comment\n\n{BEFORE}");
    let run = plan(&workspace, &after, &["--detailed-exitcode"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("no changes: "), "{}", run.stdout);
}

#[test]
fn plan_lists_access_changes_and_exits_5_on_request() {
    let Some(workspace) = Workspace::open() else { return };
    let after = BEFORE
        .replace(r#"sources = [{ name = "buyer" }]"#, r#"sources = [{ name = "thief" }]"#)
        .replace(r#"[{ name = "store" }, { name = "store-v2" }]"#, r#"[{ name = "store" }]"#)
        .replace("weight = 9", "weight = 1");
    assert_eq!(plan(&workspace, &after, &[]).code, 0, "changes are no failure");
    let run = plan(&workspace, &after, &["--detailed-exitcode"]);
    assert_eq!((run.code, run.stderr.as_str()), (5, ""), "{run:?}");
    let (revisions, rest) = run.stdout.split_once('\n').unwrap();
    assert!(revisions.contains(" → "), "{revisions}");
    assert_eq!(
        rest,
        "\
evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist

access
  default/ledger, port 3306
    - default/store-v2 loses connections: traffic target `default/book-keeping` (a.toml:37:8)
  default/store, port 80
    - default/buyer loses GET on `/books/.*`: traffic target `default/buyers` (a.toml:31:8)
    + default/thief gains GET on `/books/.*`: traffic target `default/buyers` (a.toml:31:8)

splits
  ~ default/store, port 80: traffic split `default/versions` (a.toml:43:8)
      90 % default/store, 10 % default/store-v2
      → 50 % default/store, 50 % default/store-v2

proxies: 5 of 5 will be updated
  each of default/buyer
    - cluster `default/store-v2|80`
    - cluster `default/store|80`
    - endpoints `default/store-v2|80`
    - endpoints `default/store|80`
    ~ route configuration `outbound-http`
  each of default/ledger
    ~ secret `authz:default/ledger|3306`
    ~ listener `inbound`
    connections of `inbound|default/ledger|3306|0` end within the drain time
  each of default/store
    ~ route configuration `inbound|default/store|80`
  each of default/store-v2
    - cluster `default/ledger|3306`
    - endpoints `default/ledger|3306`
  each of default/thief
    + cluster `default/store-v2|80`
    + cluster `default/store|80`
    + endpoints `default/store-v2|80`
    + endpoints `default/store|80`
    ~ route configuration `outbound-http`
"
    );
}

#[test]
fn plan_shows_splits_by_effective_shares() {
    let Some(workspace) = Workspace::open() else { return };
    let after =
        BEFORE.replace("sources = [{ name = \"buyer\" }]", "sources = [{ name = \"thief\" }]");
    let after = format!(
        r#"{after}
[[traffic_split]]
name = "behind"
service = "store-v2"
backends = [{{ service = "store-v2", weight = 1 }}, {{ service = "store-v3", weight = 1 }}]

[[traffic_split]]
name = "beta"
service = "store"
matches = [{{ kind = "HTTPRouteGroup", name = "store" }}]
backends = [{{ service = "store-v3", weight = 1 }}]

[[service]]
name = "store-v3"
ports = [{{ name = "web", port = 80, protocol = "http" }}]

[[service]]
name = "pay"
external = true
hostname = "api.pay.example"
visibility = "private"
mode = "permissive"
ports = [{{ name = "web", port = 80, protocol = "http" }}]
"#
    )
    .replacen(
        "[[service]]",
        "[[service]]\nsubsets = [{ name = 'store-new', labels = { v = 'n' } }]",
        1,
    );
    let run = plan(&workspace, &after, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    let (words, found) = run.stdout.split_once("\nnew findings").unwrap();
    for position in
        ["store-v3`: its share of the calls is denied (a.toml:51:", "denied (a.toml:57:"]
    {
        assert!(found.contains(position), "no {position} in {found}");
    }
    let (_, words) = words.split_once('\n').unwrap();
    assert_eq!(
        words,
        "\
evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist

services
  + default/pay (a.toml:64:8)
      account default/pay
      port 80 (web, http, to 80)
      mode permissive
      private
      external: api.pay.example, looked up
  + default/store-new (a.toml:3:21)
      account default/store
      port 80 (web, http, to 80)
      the part of default/store with v=n
  + default/store-v3 (a.toml:60:8)
      account default/store-v3
      port 80 (web, http, to 80)

access
  default/pay, port 80
    + every account of namespace default gains every request: permissive mode
  default/store, port 80
    - default/buyer loses GET on `/books/.*`: traffic target `default/buyers` (a.toml:31:8)
    + default/thief gains GET on `/books/.*`: traffic target `default/buyers` (a.toml:32:8)

splits
  ~ default/store, port 80: traffic split `default/beta` (a.toml:54:8), traffic split `default/versions` (a.toml:44:8), traffic split `default/behind` (a.toml:49:8)
      90 % default/store, 10 % default/store-v2
      → GET on `/books/.*`: all to default/store-v3
        otherwise: 90 % default/store, 5 % default/store-v2, 5 % default/store-v3
  + default/store-v2, port 80: traffic split `default/behind` (a.toml:49:8)
      all to default/store-v2
      → 50 % default/store-v2, 50 % default/store-v3
"
    );
}

#[test]
fn plan_annotates_rejected_policy_and_exits_3() {
    let Some(workspace) = Workspace::open() else { return };
    let run = plan(&workspace, &BEFORE.replace("weight = 9", "wight = 9"), &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(format!("{}{}", run.stdout, run.stderr).contains("did you mean `weight`?"), "{run:?}");
    assert!(run.stdout.starts_with("`after` is rejected:\n"), "{}", run.stdout);
    workspace.write("broken/a.toml", "[[service]]\nnam = 1\n");
    let run = workspace.run(&["policy", "plan", "before", "--offline", "broken"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.starts_with("`broken` is rejected:\n"), "{}", run.stdout);
    let run = workspace.run(&["policy", "plan", "before"]);
    assert_eq!(run.code, 4, "no control plane runs: {run:?}");
}

#[test]
fn plan_resources_shows_field_changes_without_keys() {
    let Some(workspace) = Workspace::open() else { return };
    let after = BEFORE.replace(r#"methods = ["GET"]"#, r#"methods = ["PUT"]"#);
    let run = plan(&workspace, &after, &["--resources", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let [group] = &json["proxies"].as_array().unwrap()[..] else { panic!("{json:#}") };
    let [routes] = &group["resources"].as_array().unwrap()[..] else { panic!("{group:#}") };
    assert_eq!(routes["name"], "inbound|default/store|80");
    let [field] = &routes["fields"].as_array().unwrap()[..] else { panic!("{routes:#}") };
    assert_eq!((&field["before"], &field["after"]), (&"GET".into(), &"PUT".into()), "{field:#}");
    assert_eq!(json["unaffected"], 4);
    let added = format!("{BEFORE}\n[[service]]\nname = 'new'\n");
    let run = plan(&workspace, &added, &["--resources"]);
    assert!(run.stdout.contains("\"[redacted]\""), "{}", run.stdout);
}

#[test]
fn plan_of_thousand_services_finds_affected_proxies() {
    let Some(workspace) = Workspace::open() else { return };
    let mut policy = String::new();
    for n in 0..1000 {
        writeln!(
            policy,
            "[[service]]\nname = 's{n}'\nports = [{{ port = 80, protocol = 'http' }}]"
        )
        .unwrap();
        writeln!(policy, "[[http_route_group]]\nname = 'g{n}'").unwrap();
        let mut rules = Vec::new();
        for m in 0..5 {
            writeln!(policy, "[[http_route_group.matches]]\nname = 'm{m}'\npath_regex = '/{m}/.*'")
                .unwrap();
            rules.push(format!("{{ kind = 'HTTPRouteGroup', name = 'g{n}', matches = ['m{m}'] }}"));
        }
        let source = (n + 1) % 1000;
        let rules = rules.join(", ");
        writeln!(policy, "[[traffic_target]]\nname = 't{n}'\ndestination = {{ name = 's{n}' }}\nsources = [{{ name = 's{source}' }}]\nrules = [{rules}]").unwrap();
    }
    workspace.write("large/a.toml", &policy);
    let other = policy.replace(
        "name = 't7'\ndestination = { name = 's7' }\nsources = [{ name = 's8' }]",
        "name = 't7'\ndestination = { name = 's7' }\nsources = [{ name = 's9' }]",
    );
    assert_ne!(policy, other);
    workspace.write("other/a.toml", &other);
    let run = workspace.run(&["policy", "plan", "other", "--offline", "large"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("proxies: 3 of 1000 will be updated"), "{}", run.stdout);
}

#[test]
fn plan_with_envoy_validates_the_policy_first() {
    let Some(workspace) = Workspace::open() else { return };
    let Some(envoy) = require_envoy() else { return };
    let run = plan(&workspace, BEFORE, &["--envoy", envoy.to_str().unwrap()]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    assert!(run.stdout.contains("no changes: "), "{}", run.stdout);
    // Envoy accepts what the loader accepts, so a script rejects it here.
    let script = "#!/bin/sh\necho \"error initializing configuration '$6': it is not to my taste\"\nexit 1\n";
    workspace.write("refuses", script);
    let program = workspace.path().join("refuses");
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let run = plan(&workspace, BEFORE, &["--envoy", program.to_str().unwrap()]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.contains("error[IM0310]: Envoy rejects"), "{}", run.stdout);
    assert!(run.stdout.contains("it is not to my taste"), "{}", run.stdout);
    assert!(run.stderr.contains("`after` is rejected: "), "{}", run.stderr);
    let run = plan(&workspace, BEFORE, &["--envoy", "/bin/true"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
}

#[test]
fn plan_shows_audit_access_and_merges_extended_findings() {
    let Some(workspace) = Workspace::open() else { return };
    // No caller may call `store-v2`, nor the third service.
    let third = "[[service]]\nname = 'third'\nports = [{ port = 80, protocol = 'http' }]\n";
    let audited = BEFORE.replacen("[[service]]", "[[service]]\nmode = \"audit\"", 1);
    workspace.write("one/a.toml", &format!("{BEFORE}\n{}", third.replace("third", "second")));
    workspace
        .write("two/a.toml", &format!("{audited}\n{third}{}", third.replace("third", "second")));
    let run = workspace.run(&["policy", "plan", "two", "--offline", "one"]);
    assert_eq!(run.code, 0, "{run:?}");
    for words in [
        "every account of the mesh gains every request: audit mode\n",
        "\nchanged findings\n  ~ warning[IM0308]: no caller may call services `default/",
    ] {
        assert!(run.stdout.contains(words), "no {words:?} in\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("no more"), "{}", run.stdout);
}
