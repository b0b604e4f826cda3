//! `ironmesh policy explain` of policy alone.

use crate::command::{Run, Workspace};
use crate::server::Server;

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

fn explain(workspace: &Workspace, arguments: &[&str]) -> Run {
    workspace.write("policy/a.toml", POLICY);
    let all = [&["policy", "explain", "--offline", "policy"], arguments].concat();
    workspace.run(&all)
}

#[test]
fn explain_of_allowed_request_names_its_rule_and_exits_0() {
    let Some(workspace) = Workspace::open() else { return };
    let run =
        explain(&workspace, &["--from", "buyer", "--to", "store-v1", "--path", "/x/../books/1"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
allowed: default/buyer may GET `/x/../books/1` of default/store-v1 (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist
  the path is compared as `/books/1`

default/store-v1, as account default/store-v1, strict:
  allowed by match `buy` of route group `default/store` (a.toml:32:8): GET on `/books/.*`
    of traffic target `default/buyers` (a.toml:40:8)
  the caller gets the answer of the application
  endpoints are unknown without a control plane
"
    );
    assert_eq!(run.stderr, "");
}

#[test]
fn explain_of_denied_request_names_the_cause_and_exits_1() {
    let Some(workspace) = Workspace::open() else { return };
    let ways = ["--from", "buyer", "--to", "store-v1", "--path", "/shelf", "--method", "PUT"];
    let run = explain(&workspace, &ways);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    assert_eq!(
        run.stdout,
        "\
denied: default/buyer may not PUT `/shelf` of default/store-v1 (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist

default/store-v1, as account default/store-v1, strict:
  not by match `buy` of route group `default/store` (a.toml:32:8) of traffic target `default/buyers` (a.toml:40:8)
    the method PUT is none of: GET
    the path `/shelf` does not match `/books/.*`
  the caller gets 403 from the server's sidecar
  endpoints are unknown without a control plane
"
    );
    let run = explain(&workspace, &["--from", "thief", "--to", "store-v1", "--path", "/books/1"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("default/thief is not among the callers: default/buyer"));
    assert!(run.stdout.contains("404 by `Host`"), "{}", run.stdout);
}

#[test]
fn explain_evaluates_every_backend_of_a_split() {
    let Some(workspace) = Workspace::open() else { return };
    let run = explain(&workspace, &["--from", "buyer", "--to", "store", "--path", "/books/1"]);
    assert_eq!(run.code, 1, "not all of it is allowed: {run:?}");
    for part in [
        "allowed in part: default/buyer may GET",
        "split by traffic split `default/versions` (a.toml:25:8)",
        "9/10 to default/store-v1",
        "1/10 to default/store-v2",
        "no traffic target has account default/store-v2 as its destination",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in\n{}", run.stdout);
    }
}

const MORE: &str = r#"
[[service]]
name = "books"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[traffic_split]]
name = "readers"
service = "books"
matches = [{ kind = "HTTPRouteGroup", name = "store" }]
backends = [{ service = "store-v2", weight = 1 }]

[[traffic_split]]
name = "rest"
service = "books"
backends = [{ service = "store", weight = 1 }]

[[service]]
name = "safe"
visibility = "private"
mode = "permissive"
ports = [{ name = "web", port = 80, protocol = "http" }]
subsets = [{ name = "safe-new", labels = { version = "new" } }]

[[service]]
name = "auditor"
namespace = "office"

[[service]]
name = "pay"
external = true
hostname = "api.pay.example"
ports = [{ name = "web", port = 80, protocol = "http" }]

[[traffic_target]]
name = "payers"
destination = { name = "pay" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store" }]
"#;

fn explain_more(workspace: &Workspace, arguments: &[&str]) -> Run {
    workspace.write("policy/more.toml", MORE);
    explain(workspace, arguments)
}

#[test]
fn explain_resolves_conditional_and_nested_splits() {
    let Some(workspace) = Workspace::open() else { return };
    let run = explain_more(&workspace, &["--from", "buyer", "--to", "books", "--path", "/books/1"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
denied: default/buyer may not GET `/books/1` of default/books (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist
  the calls are split by traffic split `default/readers` (more.toml:7:8), traffic split `default/rest` (more.toml:13:8), traffic split `default/versions` (a.toml:25:8)
  this request matches GET on `/books/.*` (match `buy` (a.toml:32:8))

all to default/store-v2, as account default/store-v2, strict:
  no traffic target has account default/store-v2 as its destination
  the caller gets 403 from the server's sidecar
  endpoints are unknown without a control plane
"
    );
    let run = explain_more(&workspace, &["--from", "buyer", "--to", "books"]);
    assert_eq!(run.code, 1, "{run:?}");
    for part in [
        "allowed in part: default/buyer may call",
        "\n    GET on `/books/.*` (match `buy` (a.toml:32:8)): all to default/store-v2\n",
        "\n    otherwise: 90 % default/store-v1, 10 % default/store-v2\n",
        "\ndefault/store-v1, as account",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in\n{}", run.stdout);
    }
}

#[test]
fn explain_identifies_private_and_external_services() {
    let Some(workspace) = Workspace::open() else { return };
    let run = explain_more(&workspace, &["--from", "office/auditor", "--to", "safe-new"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
denied: office/auditor may not call default/safe-new (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist

default/safe-new, a subset of default/safe, as account default/safe, permissive:
  the service is private: only accounts of namespace default may call it, whatever traffic targets allow
  the caller gets 404 by `Host`, or 403 at a declared upstream: its own sidecar does not have this service
  endpoints are unknown without a control plane
"
    );
    let run = explain_more(&workspace, &["--from", "thief", "--to", "safe-new"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = explain_more(&workspace, &["--from", "buyer", "--to", "pay", "--path", "/shelf"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
denied: default/buyer may not GET `/shelf` of default/pay (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist

default/pay, outside the mesh, as account default/pay, strict:
  not by match `buy` of route group `default/store` (a.toml:32:8) of traffic target `default/payers` (more.toml:35:8)
    the path `/shelf` does not match `/books/.*`
  the caller gets 403 from its own sidecar
  endpoints are looked up by DNS, as api.pay.example
  enforced by the caller's proxy alone: an application that bypasses it is not stopped
"
    );
}

#[test]
fn explain_without_request_lists_allowed_traffic() {
    let Some(workspace) = Workspace::open() else { return };
    let run = explain(&workspace, &["--from", "buyer", "--to", "store-v1"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains(", as listed"), "{}", run.stdout);
    let run = explain(&workspace, &["--from", "store-v1", "--to", "ledger"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("TCP route `default/sql` (a.toml:37:8): connections"));
    let run = explain(&workspace, &["--from", "buyer", "--to", "ledger"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("no connection: its own sidecar listens on no port for it"));
    let run = explain(&workspace, &["--from", "buyer", "--to", "ledger", "--path", "/"]);
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn explain_of_unknown_name_exits_2_with_a_suggestion() {
    let Some(workspace) = Workspace::open() else { return };
    let run = explain(&workspace, &["--from", "byer", "--to", "store-v1"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("did you mean `default/buyer`?"), "{}", run.stderr);
    let run = explain(&workspace, &["--from", "buyer", "--to", "stor"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("did you mean `default/store`?"), "{}", run.stderr);
    let run = explain(&workspace, &["--from", "buyer", "--to", "store", "--port", "81"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("has no port 81; it has: 80"), "{}", run.stderr);
    let run = workspace.run(&["policy", "explain", "--from", "buyer", "--to", "store"]);
    assert_eq!(run.code, 4, "no control plane runs: {run:?}");
}

#[test]
fn explain_prints_the_verdict_as_json() {
    let Some(workspace) = Workspace::open() else { return };
    let arguments = ["--from", "buyer", "--to", "store-v1", "--path", "/a%2fb", "--output", "json"];
    let run = explain(&workspace, &arguments);
    assert_eq!(run.code, 1, "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["answer"], "rejected", "{json:#}");
    assert!(json["reason"].as_str().unwrap().contains("%2f"), "{json:#}");
    let run = explain(&workspace, &["--from", "buyer", "--to", "store-v1", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["answer"], "allowed");
    let permit = &json["destinations"][0]["port_verdict"]["by"][0];
    assert_eq!(
        (&permit["target"]["spot"]["file"], &permit["target"]["spot"]["line"]),
        (&"a.toml".into(), &40.into())
    );
}

const BY_HOST: &str = r#"
[[http_route_group]]
name = "hosts"
[[http_route_group.matches]]
name = "other"
headers = { host = "other\\.example" }
[[http_route_group.matches]]
name = "short"
headers = { host = "store-v2" }

[[traffic_target]]
name = "hosts"
destination = { name = "store-v2" }
sources = [{ name = "thief" }]
rules = [{ kind = "HTTPRouteGroup", name = "hosts" }]
"#;

#[test]
fn explain_rejects_a_host_of_a_different_service() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("policy/b.toml", BY_HOST);
    let to = ["--from", "thief", "--to", "store-v2"];
    let run = explain(&workspace, &[&to[..], &["--header", "host=other.example"]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    for host in ["store-v2, ", "store-v2.default.mesh.internal:80", "declared upstream"] {
        assert!(run.stderr.contains(host), "no {host} in {}", run.stderr);
    }
    // A different result at a declared upstream is reported.
    let run = explain(&workspace, &[&to[..], &["--header", "host=store-v2"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let words = "  the host is compared as `store-v2`, by `Host`; at a declared upstream it is `store-v2.default.mesh.internal:80`: denied\n";
    assert!(run.stdout.contains(words), "{}", run.stdout);
    let run = explain(&workspace, &[&to[..], &["--path", "/"]].concat());
    assert_eq!(run.code, 1, "{run:?}");
    let words = "  the host is compared as `store-v2.default.mesh.internal:80`, the default without a host header; by `Host` it is what the caller sends\n";
    assert!(run.stdout.contains(words), "{}", run.stdout);
}

#[test]
fn explain_failures_do_not_exit_as_denials() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("policy/a.toml", POLICY);
    workspace.write("bad.toml", "mode = 1\n");
    workspace.write("broken/a.toml", "[[service]]\nnam = 1\n");
    let about = ["policy", "explain", "--from", "thief", "--to", "store-v1", "--path", "/books/1"];
    let explain = |more: &[&str]| workspace.run(&[&about[..], more].concat());
    assert_eq!(explain(&["--offline", "policy"]).code, 1, "this is a denial");
    for (code, words, more) in [
        (2, "`polcy`", ["--offline", "polcy"].as_slice()),
        (2, "no.toml", &["--config", "no.toml", "--offline", "policy"]),
        (2, "no.toml", &["--config", "no.toml"]),
        (3, "the settings are rejected", &["--config", "bad.toml", "--offline", "policy"]),
        (3, "`broken`", &["--offline", "broken"]),
        (4, "ironmesh serve", &[]),
    ] {
        let run = explain(more);
        assert_eq!(run.code, code, "{more:?}: {run:?}");
        assert!(run.stderr.contains(words), "{more:?}: no {words} in {}", run.stderr);
    }
}

#[test]
fn explain_exits_4_if_control_plane_does_not_answer() {
    let Some(workspace) = Workspace::open() else { return };
    let state = workspace.path().join("home/ironmesh");
    fs_err::create_dir_all(&state).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(state.join("admin.sock")).unwrap();
    let answers: [&[u8]; 3] = [
        // The connection breaks.
        b"",
        // The server lives.
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n",
        // No policy is active yet.
        b"HTTP/1.1 503 x\r\nContent-Length: 29\r\n\r\n{\"error\": \"no policy, as yet\"}",
    ];
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requested = [0; 1 << 12];
            let _ = stream.read(&mut requested).unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    for words in ["did not answer", "no policy, as yet"] {
        let run = workspace.run(&["policy", "explain", "--from", "thief", "--to", "store"]);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(run.stderr.contains(words), "no {words} in {run:?}");
    }
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_sends_large_requests_to_the_control_plane() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", "[[service]]\nnam = 'x'\n");
    let mut child = server.start().await;
    let tier = format!("x-tier={}", "\"".repeat(600));
    let question = |headers: usize| {
        let more = ["--header", &tier].repeat(headers);
        let about = ["policy", "explain", "--from", "buyer", "--to", "store-v1"];
        server.run(&[&about[..], &["--path", "/books/1"], &more].concat())
    };
    let run = question(1);
    assert_eq!(run.code, 4, "there is no policy yet: {run:?}");
    assert!(run.stderr.contains("no policy is active yet"), "{}", run.stderr);
    server.workspace.write("policy/a.toml", POLICY);
    server.ready().await;
    assert_eq!(question(100).code, 0, "60 KB, and thrice that in a query");
    let run = question(101);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("the request has 101 headers and "), "{}", run.stderr);
    assert!(child.terminate().await.success());
}

#[test]
fn explain_offline_names_the_defaults_from_settings() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write(
        "mesh.toml",
        "mode = \"audit\"\ndomain = \"a.example\"\ntrust_domain = \"b.example\"\n",
    );
    let about = ["--from", "thief", "--to", "store-v1", "--config", "mesh.toml"];
    let run = explain(&workspace, &about);
    assert_eq!(run.code, 0, "{run:?}");
    let assumed = "  evaluated without a control plane: mode audit, domain a.example, trust domain b.example, from `mesh.toml`";
    assert_eq!(run.stdout.lines().nth(1), Some(assumed), "{}", run.stdout);
}

#[test]
fn explain_hints_at_common_input_mistakes() {
    let Some(workspace) = Workspace::open() else { return };
    let about = ["--from", "buyer", "--to", "store-v1", "--path", "/books/1"];
    let with = |more: &[&str]| explain(&workspace, &[&about[..], more].concat());
    let run = with(&["--method", "get"]);
    assert_eq!(run.code, 1, "{run:?}");
    let words = "the method get is none of: GET; methods are case-sensitive: use GET";
    assert!(run.stdout.contains(words), "{}", run.stdout);
    for (words, more) in [
        ("`NAME=VALUE`", ["--header", "x-tier:gold"]),
        ("`G T` is no method", ["--method", "G T"]),
        ("`X Tier` is no name", ["--header", "X Tier=gold"]),
        ("set by the server's sidecar", ["--header", "x-forwarded-client-cert=By=a"]),
    ] {
        let run = with(&more);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(words), "no {words} in {}", run.stderr);
    }
    let certificate = r#"path_regex = "/books/.*"
headers = { x-forwarded-client-cert = "By=.*" }"#;
    workspace.write("other/a.toml", &POLICY.replace(r#"path_regex = "/books/.*""#, certificate));
    let run = workspace.run(&[&["policy", "explain", "--offline", "other"], &about[..]].concat());
    assert_eq!(run.code, 1, "{run:?}");
    let words = "the server's sidecar sets the header x-forwarded-client-cert";
    assert!(run.stdout.contains(words), "{}", run.stdout);
}
