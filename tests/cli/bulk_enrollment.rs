//! `ironmesh proxy bootstrap --count`: many identities at once.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use fs_err as fs;
use serde_json::Value;

use crate::command::Run;
use crate::server::{Server, files};

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

fn bootstrap(server: &Server, address: &str, count: &str) -> Run {
    let arguments = ["proxy", "bootstrap", "--service", "store", "--address", address];
    server.run(
        &[&arguments[..], &["--count", count, "--out", "proxies", "--output", "json"]].concat(),
    )
}

fn enrolled(server: &Server) -> Vec<Value> {
    let run = server.run(&["proxy", "list", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

// More than one request may enroll, so that two must fit together.
#[tokio::test]
async fn bulk_enrollment_gives_each_proxy_its_own_identity() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let run = bootstrap(&server, "127.64.255.250", "510");
    assert_eq!(run.code, 0, "{run:?}");
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    let reported = reported["proxies"].as_array().unwrap();
    assert_eq!(reported.len(), 510);
    let out = server.workspace.path().join("proxies");
    let names = files(&out);
    assert_eq!((names.len(), &*names[0], &*names[509]), (510, "0001", "0510"));

    let enrolled = enrolled(&server);
    let addresses = |of: &[Value], key: &str| -> BTreeSet<String> {
        of.iter().map(|proxy| proxy[key].as_str().unwrap().to_owned()).collect()
    };
    let mesh_addresses = addresses(&enrolled, "mesh_address");
    assert_eq!(mesh_addresses.len(), 510);
    assert!(mesh_addresses.contains("127.64.255.250:15003"), "the first");
    assert!(mesh_addresses.contains("127.65.1.247:15003"), "the last");
    assert_eq!(addresses(&enrolled, "id"), addresses(reported, "id"));
    // Each has the files of a single enrollment, and they name its own folder.
    let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for (name, reported) in names.iter().zip(reported) {
        let folder = out.join(name);
        assert_eq!(reported["folder"].as_str(), folder.to_str());
        assert_eq!(files(&folder).len(), 8);
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&folder) & 0o777, 0o700);
        assert_eq!(mode(&folder.join("proxy.key")) & 0o777, 0o600);
        let text = fs::read_to_string(folder.join("envoy.yaml")).unwrap();
        assert!(text.contains(folder.join("sds-roots.yaml").to_str().unwrap()), "{text}");
        let bootstrap: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bootstrap["node"]["id"], reported["id"]);
        ids.insert(reported["id"].as_str().unwrap().to_owned());
        keys.insert(fs::read_to_string(folder.join("proxy.key")).unwrap());
    }
    assert_eq!((ids.len(), keys.len()), (510, 510));
}

#[tokio::test]
async fn bulk_enrollment_rejects_invalid_ranges_before_writing() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let before = files(server.workspace.path());
    for (address, count, code, words) in [
        ("127.64.0.1", "0", 2, "1..=20000"),
        ("127.64.0.1", "20001", 2, "1..=20000"),
        ("255.255.255.254", "3", 1, "3 consecutive addresses from 255.255.255.254 exceed"),
        // Four are valid; the fifth is a multicast address.
        ("223.255.255.252", "5", 1, "callers cannot connect to a proxy at 224.0.0.0"),
    ] {
        let run = bootstrap(&server, address, count);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(files(server.workspace.path()), before);
    }
    assert_eq!(enrolled(&server), Vec::<Value>::new());
}

#[tokio::test]
async fn bulk_enrollment_failure_keeps_and_counts_enrolled_proxies() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    // The second request has the invalid address.
    let run = bootstrap(&server, "223.255.254.12", "501");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("500 of 501 proxies are enrolled"), "{}", run.stderr);
    assert!(
        run.stderr.contains("callers cannot connect to a proxy at 224.0.0.0"),
        "{}",
        run.stderr
    );
    let names = files(&server.workspace.path().join("proxies"));
    assert_eq!((names.len(), &*names[499]), (500, "0500"));
    assert_eq!(enrolled(&server).len(), 500);
}
