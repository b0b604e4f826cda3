//! The names of proxies, and `ironmesh proxy list` with its filters and pages. `tests/envoy` has it with real Envoys.

use ironmesh_tests::get_once;
use ironmesh_tests::process::Child;
use serde_json::Value;

use crate::command::Run;
use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

async fn open() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/services.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

fn bootstrap(server: &Server, service: &str, last: u8, more: &[&str]) -> Run {
    let (address, out) = (format!("127.1.0.{last}"), format!("proxy-{last}"));
    let known = ["proxy", "bootstrap", "--service", service, "--address", &address, "--out", &out];
    server.run(&[&known, more].concat())
}

/// The names of listed proxies, in their order.
fn names(server: &Server, filters: &[&str]) -> Vec<String> {
    let list = server.json(&[&["proxy", "list"], filters].concat());
    let list = list.as_array().unwrap().iter();
    list.map(|proxy| proxy["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn proxy_name_is_unique_in_use_and_selects_the_proxy_in_commands() {
    let Some((server, _child)) = open().await else { return };
    let hint = "ironmesh: no proxy is enrolled; `ironmesh proxy token --service NS/NAME`";
    for (more, has_hint) in
        [(&[][..], true), (&["-o", "json"], false), (&["--state", "stale"], false)]
    {
        let run = server.run(&[&["proxy", "list"], more].concat());
        assert_eq!((run.code, run.stderr.starts_with(hint)), (0, has_hint), "{run:?}");
    }
    let run = bootstrap(&server, "store", 1, &["--name", "vm-1.example.com"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("proxy vm-1.example.com ("), "{run:?}");

    let run = bootstrap(&server, "store", 2, &["--name", "vm-1.example.com"]);
    assert_eq!(run.code, 1, "{run:?}");
    let taken = "the name `vm-1.example.com` belongs to the proxy ";
    assert!(run.stderr.contains(taken) && run.stderr.contains("at 127.1.0.1:15003"), "{run:?}");
    let run = bootstrap(&server, "store", 2, &["--name", "6b1f2c1e-0b5c-4c62-9b8e-3f5a0f8f7c11"]);
    assert!(run.code == 1 && run.stderr.contains("is a UUID"), "{run:?}");
    let run = bootstrap(&server, "store", 2, &["--name", "Vm 1"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(names(&server, &[]), ["vm-1.example.com"]);

    let shown = server.json(&["proxy", "show", "vm-1.example.com"]);
    let id = shown["id"].as_str().unwrap();
    let run = server.run(&["proxy", "revoke", "vm-1.example.com"]);
    assert!(
        run.stdout.starts_with(&format!("proxy vm-1.example.com ({id}) was revoked")),
        "{run:?}"
    );

    // A revoked proxy no longer uses its name, and the one in use is found by it.
    let run = bootstrap(&server, "store", 2, &["--name", "vm-1.example.com"]);
    assert_eq!(run.code, 0, "{run:?}");
    let newest = server.json(&["proxy", "show", "vm-1.example.com"]);
    assert_ne!(newest["id"], id);
    assert_eq!(newest["state"], "unclaimed");
    let neighbour = ["--service", "buyer", "--address", "127.1.0.2", "--out", "neighbour"];
    let run = server.run(&[&["proxy", "bootstrap"][..], &neighbour].concat());
    let note = "proxy vm-1.example.com is already enrolled at this address, for default/store";
    assert!(run.code == 0 && run.stdout.contains(note), "{run:?}");
}

#[tokio::test]
async fn default_names_are_numbered_by_service_and_survive_a_restart() {
    let Some((server, mut child)) = open().await else { return };
    assert_eq!(bootstrap(&server, "store", 1, &["--count", "3"]).code, 0);
    assert_eq!(bootstrap(&server, "buyer", 11, &[]).code, 0);
    assert_eq!(server.run(&["proxy", "revoke", "store-2"]).code, 0);
    assert!(child.terminate().await.success());
    let _child = server.start().await;
    server.ready().await;
    // The name of a revoked proxy is not given to a new one by default.
    assert_eq!(bootstrap(&server, "store", 4, &[]).code, 0);
    assert_eq!(names(&server, &[]), ["buyer-1", "store-1", "store-2", "store-3", "store-4"]);
    // Numbers are ordered by their value.
    assert_eq!(bootstrap(&server, "buyer", 12, &["--count", "10"]).code, 0);
    assert_eq!(names(&server, &["--service", "buyer"])[..3], ["buyer-1", "buyer-2", "buyer-3"]);
}

#[tokio::test]
async fn list_is_filtered_and_paged_by_the_control_plane() {
    let Some((server, _child)) = open().await else { return };
    assert_eq!(bootstrap(&server, "store", 1, &["--count", "5"]).code, 0);
    assert_eq!(bootstrap(&server, "buyer", 11, &[]).code, 0);
    assert_eq!(server.run(&["proxy", "revoke", "store-5"]).code, 0);

    assert_eq!(names(&server, &["--service", "buyer"]), ["buyer-1"]);
    assert_eq!(names(&server, &["--state", "revoked"]), ["store-5"]);
    assert_eq!(names(&server, &["--state", "unclaimed", "--limit", "2"]), ["buyer-1", "store-1"]);
    for none in ["connected", "synced", "stale", "nacked", "disconnected", "expired"] {
        assert!(names(&server, &["--state", none]).is_empty(), "{none}");
    }
    let run = server.run(&["proxy", "list", "--limit", "2"]);
    assert!(run.stdout.contains("4 more; raise --limit"), "{run:?}");
    let run = server.run(&["proxy", "list", "--limit", "2", "--output", "json"]);
    assert_eq!(
        run.stderr,
        "ironmesh: 4 more; raise --limit, or filter with --service and --state\n"
    );
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{run:?}");
    let wide = server.run(&["proxy", "list", "-o", "wide", "--service", "buyer"]);
    assert!(wide.stdout.contains("127.1.0.11:15003"), "{wide:?}");
    assert_eq!(server.run(&["status", "-o", "wide"]).code, 2);
    let run = server.run(&["proxy", "list", "--state", "gone"]);
    assert!(run.code == 2 && run.stderr.contains("synced"), "{run:?}");

    let admin = server.loopback.socket(1, 15014);
    let mut listed = Vec::new();
    let mut path = "/v1/proxies?limit=4".to_owned();
    loop {
        let page = get_once(admin, &path, &[]).await.unwrap().json();
        assert_eq!(page["matching"], 6);
        let proxies = page["proxies"].as_array().unwrap();
        listed.extend(proxies.iter().map(|proxy| proxy["name"].as_str().unwrap().to_owned()));
        let Value::String(next) = &page["next"] else { break };
        path = format!("/v1/proxies?limit=4&after={next}");
    }
    assert_eq!(listed, names(&server, &[]));
    for bad in ["after=x", "state=gone", "limit=-1", "unknown=1"] {
        let answer = get_once(admin, &format!("/v1/proxies?{bad}"), &[]).await.unwrap();
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}
