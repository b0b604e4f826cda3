//! `ironmesh policy explain` of calls that leave the mesh, and of calls from outside.

use crate::command::{Run, Workspace};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [
    { name = "web", port = 80, protocol = "http" },
    { name = "admin", port = 8081, protocol = "http" },
]

[[service]]
name = "till"

[[service]]
name = "bank"
ports = [{ name = "web", port = 80, protocol = "http" }]
external = true
hostname = "bank.example.com"

[[http_route_group]]
name = "books"
[[http_route_group.matches]]
name = "buy"
path_regex = "/books/.*"
methods = ["GET"]

[[egress]]
name = "rates"
sources = [{ name = "till" }]
hosts = ["*.example.com"]
ports = [{ number = 80, protocol = "http" }, { number = 443, protocol = "https" }]
matches = [{ kind = "HTTPRouteGroup", name = "books" }]

[[egress]]
name = "ledger"
sources = [{ name = "till" }]
ip_addresses = ["10.9.0.0/16"]
ports = [{ number = 5432, protocol = "tcp" }]

[[ingress_backend]]
name = "front"
backends = [{ name = "store", port = { number = 80, protocol = "https" }, tls = { sni_hosts = ["shop.example.com"] } }]
sources = [
    { kind = "AuthenticatedPrincipal", name = "gateway.example.com" },
    { kind = "IPRange", name = "10.1.0.0/16" },
]
matches = [{ kind = "HTTPRouteGroup", name = "books" }]
"#;

fn explain(workspace: &Workspace, arguments: &[&str]) -> Run {
    workspace.write("policy/a.toml", POLICY);
    let all = [&["policy", "explain", "--offline", "policy"], arguments].concat();
    workspace.run(&all)
}

#[test]
fn explain_egress_call_names_its_egress_object() {
    let Some(workspace) = Workspace::open() else { return };
    let to = ["--from", "till", "--to-host", "api.example.com:80", "--path", "/x/../books/1"];
    let run = explain(&workspace, &to);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
allowed: default/till may GET `/x/../books/1` of api.example.com:80, outside the mesh
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist
  the path is compared as `/books/1`
  policy names it *.example.com
  allowed by match `buy` of route group `default/books` (a.toml:21:8) of egress `default/rates` (a.toml:26:8): GET on `/books/.*` in plain HTTP
  enforced by the caller's proxy alone: an application that bypasses it is not stopped
"
    );
    let denied = [&to[..4], &["--path", "/admin"]].concat();
    let run = explain(&workspace, &denied);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("the path `/admin` does not match `/books/.*`"), "{run:?}");
}

#[test]
fn explain_distinguishes_egress_connections_from_requests() {
    let Some(workspace) = Workspace::open() else { return };
    for (to, code, words) in [
        ("api.example.com:443", 0, "connections of https, by CONNECT or a declared upstream"),
        ("10.9.1.2:5432", 0, "allowed by egress `default/ledger`"),
        (
            "10.8.1.2:5432",
            1,
            "no egress with the source default/till has 10.8.1.2:5432 as a destination",
        ),
        ("example.com:443", 1, "no egress with the source default/till has"),
        (
            "169.254.169.254:5432",
            1,
            "denied to all callers, regardless of policy: `169.254.0.0/16`",
        ),
        ("api.example.com:15003", 1, "the port 15003 is the mesh's own"),
    ] {
        let run = explain(&workspace, &["--from", "till", "--to-host", to]);
        assert_eq!(run.code, code, "{to}: {run:?}");
        assert!(run.stdout.contains(words), "{to}: {run:?}");
    }
    let over_tls = ["--from", "till", "--to-host", "api.example.com:443", "--path", "/books/1"];
    let run = explain(&workspace, &over_tls);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("in which requests are not visible"), "{run:?}");
}

#[test]
fn explain_external_caller_names_unmet_conditions() {
    let Some(workspace) = Workspace::open() else { return };
    let shop = ["--to", "store", "--port", "80", "--path", "/books/1"];
    let requested = |who: &[&str]| {
        let who = who.iter().flat_map(|one| ["--from-outside", one]);
        explain(&workspace, &shop.into_iter().chain(who).collect::<Vec<_>>())
    };
    let run = requested(&["gateway.example.com", "10.1.2.3"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.stdout,
        "\
allowed: a caller with a certificate of `gateway.example.com` from 10.1.2.3 may GET `/books/1` of default/store (port 80, http)
  evaluated without a control plane: mode strict, domain mesh.internal, trust domain mesh.internal, the defaults, since `/etc/ironmesh/ironmesh.toml` does not exist
  allowed by ingress backend `default/front` (a.toml:39:8): https by shop.example.com
    match `buy` of route group `default/books` (a.toml:21:8): GET on `/books/.*`
"
    );
    for (who, words) in [
        (&["gateway.example.com"][..], "its address is not given"),
        (
            &["other.example.com", "10.1.2.3"],
            "its certificate has none of the names: gateway.example.com",
        ),
        (&["gateway.example.com", "10.2.2.3"], "its address is in none of: 10.1.0.0/16"),
    ] {
        let run = requested(who);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stdout.contains(words), "{run:?}");
    }
    let other_port =
        explain(&workspace, &["--from-outside", "10.1.2.3", "--to", "store", "--port", "8081"]);
    assert_eq!(other_port.code, 1, "{other_port:?}");
    assert!(other_port.stdout.contains("no ingress backend has port 8081"), "{other_port:?}");
}

#[test]
fn explain_rejects_invalid_questions_with_advice() {
    let Some(workspace) = Workspace::open() else { return };
    for (arguments, words) in [
        (
            &["--from", "till", "--to-host", "store.default:80"][..],
            "ask about its service, by `--to`",
        ),
        (&["--from", "till", "--to-host", "bank.example.com:80"], "by `--to default/bank`"),
        (&["--from", "tilt", "--to-host", "api.example.com:80"], "did you mean `default/till`?"),
        (&["--from", "till", "--to-host", "api.example.com"], "has a host without a port"),
        (&["--from", "till"], "--to"),
        (&["--to", "store"], "--from"),
        (&["--from-outside", "10.1.2.3", "--to-host", "a.example.com:1"], "cannot be used with"),
        (
            &[
                "--from-outside",
                "10.1.2.3",
                "--from-outside",
                "10.1.2.4",
                "--to",
                "store",
                "--port",
                "80",
            ],
            "one source address",
        ),
        (
            &["--from-outside", "10.1.2.3:443", "--to", "store", "--port", "80"],
            "neither an address",
        ),
        (&["--from-outside", "10.1.0.0/16", "--to", "store", "--port", "80"], "neither an address"),
        (&["--from-outside", "10.1.2.3", "--to", "stores"], "did you mean `default/store`?"),
        (
            &["--from", "till", "--to-host", "api.example.com:80", "--header", "host=b"],
            "leave the header host out",
        ),
    ] {
        let run = explain(&workspace, arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(words), "{arguments:?}: {run:?}");
    }
}
