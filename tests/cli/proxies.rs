//! `ironmesh proxy show` and `revoke`, without an Envoy; `tests/envoy` has them with one.

use ironmesh_tests::get_once;
use ironmesh_tests::process::Child;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::status::v3::ClientStatusRequest;
use ironmesh_xds_wire::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use serde_json::Value;
use tonic::Code;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A control plane with this many proxies, and their UUIDs.
async fn open(count: u32) -> Option<(Server, Child, Vec<String>)> {
    let server = Server::open("")?;
    server.workspace.write("policy/services.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    let count = count.to_string();
    let run = server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "store",
        "--address",
        "127.1.0.1",
        "--count",
        &count,
        "--out",
        "proxies",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    let enrolled = list(&server);
    let ids = enrolled.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    Some((server, child, ids))
}

fn list(server: &Server) -> Vec<Value> {
    serde_json::from_value(server.json(&["proxy", "list"])).unwrap()
}

#[tokio::test]
async fn proxy_show_describes_an_unclaimed_proxy() {
    let Some((server, _child, ids)) = open(1).await else { return };
    let id = &ids[0];
    let run = server.run(&["proxy", "show", id]);
    assert_eq!(run.code, 0, "{run:?}");
    for part in [
        "proxy         store-1\n".to_owned(),
        format!("id            {id}\n"),
        "state         unclaimed: the proxy has never connected\n".to_owned(),
        "services      default/store\n".to_owned(),
        "mesh address  127.1.0.1:15003\n".to_owned(),
        "certificate   unclaimed; expires ".to_owned(),
        "endpoint      default/store|80 not called yet: `ironmesh endpoints` has the reason; applications: port 80 with weight 1, health unknown\n".to_owned(),
    ] {
        assert!(run.stdout.contains(&part), "no {part:?} in\n{}", run.stdout);
    }
    let shown = server.json(&["proxy", "show", id]);
    assert_eq!((&shown["state"], &shown["node"]), (&"unclaimed".into(), &Value::Null));
    let config = server.json(&["proxy", "show", id, "--resources"]);
    assert_eq!((&config["streams"], &config["resources"]), (&0.into(), &serde_json::json!([])));
}

#[tokio::test]
async fn config_option_works_before_and_after_the_uuid() {
    let Some((server, _child, ids)) = open(1).await else { return };
    let id = &*ids[0];
    for arguments in [
        ["proxy", "show", "--config", "ironmesh.toml", id],
        ["proxy", "show", id, "--config", "ironmesh.toml"],
    ] {
        let run = server.workspace.run(&arguments);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.stdout.contains(&format!("\nid            {id}\n")), "{run:?}");
    }
    // The UUID is not taken as the value of `--config`: the file is missing.
    for arguments in [&["proxy", "show", "--config", id][..], &["proxy", "show", id, "--config"]] {
        let run = server.workspace.run(arguments);
        assert_eq!((run.code, &*run.stdout), (2, ""), "{run:?}");
    }
}

#[tokio::test]
async fn proxy_show_accepts_a_unique_uuid_prefix() {
    // Of this many, some share their first digit, and hardly any the first eight.
    let Some((server, _child, ids)) = open(40).await else { return };
    let shown = server.json(&["proxy", "show", &ids[0][..8].to_uppercase()]);
    assert_eq!(shown["id"], ids[0].as_str());

    let unknown = "00000000-0000-4000-8000-000000000000";
    for (given, words) in [
        (unknown, format!("no proxy `{unknown}` is enrolled; `ironmesh proxy list` shows")),
        ("00000000", "no proxy `00000000` is enrolled".to_owned()),
        ("web-1", "no proxy `web-1` is enrolled".to_owned()),
        (&ids[0][..3], "is too short: give the first 4 characters".to_owned()),
    ] {
        let run = server.run(&["proxy", "show", given]);
        assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
        assert!(run.stderr.contains(&words), "no {words:?} in {}", run.stderr);
    }
    let run = server.run(&["proxy", "show", "../readyz"]);
    assert_eq!(run.code, 2, "{run:?}");
}

#[tokio::test]
async fn revocation_is_shown_and_survives_a_restart() {
    let Some((server, mut child, ids)) = open(2).await else { return };
    let (id, other) = (&ids[0], &ids[1]);
    let folder = |id: &str| {
        let places =
            ["0001", "0002"].map(|name| server.workspace.path().join("proxies").join(name));
        let is_its = |workspace: &std::path::PathBuf| {
            fs_err::read_to_string(workspace.join("envoy.yaml")).unwrap().contains(id)
        };
        places.into_iter().find(is_its).unwrap()
    };
    let run = server.run(&["proxy", "revoke", id, "--reason", " stolen "]);
    assert_eq!(run.code, 0, "{run:?}");
    let (proxy, words) = run.stdout.lines().next().unwrap().split_once(" was ").unwrap();
    let name = server.json(&["proxy", "show", id])["name"].as_str().unwrap().to_owned();
    assert_eq!(proxy, format!("proxy {name} ({id})"));
    assert!(words.starts_with("revoked on 2") && words.ends_with("Z: stolen"), "{words}");
    // The proxy itself knows its id.
    let reported = format!("proxy {id} was {words}");

    for restarts in 0..2 {
        if restarts > 0 {
            assert!(child.terminate().await.success());
            child = server.start().await;
            server.ready().await;
        }
        // A second revocation changes nothing.
        let again = server.json(&["proxy", "revoke", id, "--reason", "lost"]);
        let again = &again["proxies"][0];
        assert_eq!(
            (&again["is_old"], &again["revocation"]["reason"]),
            (&true.into(), &"stolen".into())
        );
        let run = server.run(&["proxy", "list"]);
        let row = run.stdout.lines().zip(run.stdout.lines().skip(1));
        let revoked: Vec<_> = row.filter(|(row, _)| row.contains("  revoked  ")).collect();
        assert!(matches!(revoked[..], [(_, below)] if below.contains(words)), "{}", run.stdout);
        let run = server.run(&["proxy", "show", id]);
        assert!(run.stdout.contains("state         revoked\n"), "{}", run.stdout);
        assert!(run.stdout.contains(words), "{}", run.stdout);
        let of_other = server.json(&["proxy", "show", other]);
        assert_eq!(of_other.get("revoked"), None, "{of_other:#}");

        let xds = server.loopback.socket(1, 15128);
        for (who, is_refused) in [(id, true), (other, false)] {
            let proxy = ProxyClient::connect(&folder(who), xds).await.unwrap();
            let node = Node { id: who.clone(), ..Node::default() };
            let question = ClientStatusRequest { node: Some(node.clone()), ..Default::default() };
            let mut client = ClientStatusDiscoveryServiceClient::new(proxy.channel().clone());
            let status = client.fetch_client_status(question).await;
            let rejected = status.map(drop).err().map(|rejected| rejected.message().to_owned());
            assert_eq!(rejected.as_ref(), is_refused.then_some(&reported));
            match proxy.request_secret(node, "roots").await {
                Ok(_) => assert!(!is_refused, "the stream was accepted"),
                Err(rejected) => {
                    assert!(is_refused, "{rejected}");
                    assert_eq!(rejected.code(), Code::PermissionDenied);
                    assert_eq!(rejected.message(), reported);
                }
            }
        }
    }
}

#[tokio::test]
async fn revoke_requires_the_admin_socket_and_a_known_proxy() {
    let Some((server, _child, ids)) = open(1).await else { return };
    let unknown = "00000000-0000-4000-8000-000000000000";
    let run = server.run(&["proxy", "revoke", unknown]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains(&format!("no proxy `{unknown}` is enrolled")), "{}", run.stderr);
    // A revocation is final, so a few characters are not enough.
    let run = server.run(&["proxy", "revoke", &ids[0][..7]]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(run.stderr.contains("give the first 8 characters"), "{}", run.stderr);
    let long = "x".repeat(501);
    for (reason, but) in [
        ("two\nlines", r"this one holds the control character '\n'"),
        (&*long, "this one has 501 bytes"),
    ] {
        let run = server.run(&["proxy", "revoke", &ids[0], "--reason", reason]);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("one line of at most 500 bytes"), "{}", run.stderr);
        assert!(run.stderr.contains(but), "{}", run.stderr);
    }
    // The TCP port only reads.
    let admin = server.loopback.socket(1, 15014);
    let path = format!("/v1/proxies/{}", ids[0]);
    let shown = get_once(admin, &path, &[]).await.unwrap();
    assert_eq!(shown.json()["state"], "unclaimed");
    assert_eq!(get_once(admin, &format!("{path}/config"), &[]).await.unwrap().status, 200);
    let missing = get_once(admin, &format!("/v1/proxies/{unknown}"), &[]).await.unwrap();
    assert_eq!(missing.status, 404, "{}", missing.text());
    let revoke = ironmesh_tests::Http1Connection::connect(admin).await.unwrap();
    let revoke = { revoke }.request(http::Method::POST, &format!("{path}/revoke"), &[]).await;
    assert_eq!(revoke.unwrap().status, 403);
    let revoke = ironmesh_tests::Http1Connection::connect(admin).await.unwrap();
    let revoke = { revoke }.request(http::Method::POST, "/v1/revocations", &[]).await;
    assert_eq!(revoke.unwrap().status, 403);
    assert!(list(&server).iter().all(|one| one.get("revoked").is_none()));
}

#[test]
fn show_and_revoke_without_control_plane_exit_4() {
    let Some(server) = Server::open("") else { return };
    let id = "00000000-0000-4000-8000-000000000000";
    for command in ["show", "revoke"] {
        let run = server.run(&["proxy", command, id]);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(run.stderr.contains("is `ironmesh serve` running"), "{}", run.stderr);
    }
}

#[tokio::test]
async fn revoke_accepts_a_uuid_prefix_and_prints_the_full_uuid() {
    let Some((server, _child, ids)) = open(2).await else { return };
    let run = server.run(&["proxy", "revoke", &ids[0][..8].to_uppercase()]);
    assert_eq!(run.code, 0, "{run:?}");
    let name = list(&server).into_iter().find(|proxy| proxy["id"] == ids[0].as_str());
    let name = name.unwrap()["name"].as_str().unwrap().to_owned();
    let expected = format!("proxy {name} ({}) was revoked on 2", ids[0]);
    assert!(run.stdout.starts_with(&expected), "{run:?}");
    for proxy in list(&server) {
        assert_eq!(proxy["state"] == "revoked", proxy["id"] == ids[0].as_str(), "{proxy:#}");
    }
    let run = server.run(&["proxy", "revoke", "00000000-0"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(run.stderr.contains("no proxy `00000000-0` is enrolled"), "{}", run.stderr);
}

#[tokio::test]
async fn unknown_or_ambiguous_name_revokes_none_of_all() {
    let Some((server, _child, ids)) = open(40).await else { return };
    let revoke = |names: &[&str]| server.run(&[&["proxy", "revoke"], names].concat());
    let ambiguous = {
        let begins = |first: char| ids.iter().filter(|id| id.starts_with(first)).count();
        // Of 40 UUIDs, some two share their first digit; a name has the rest.
        "0123456789abcdef".chars().find(|first| begins(*first) > 1).unwrap().to_string()
    };
    for (names, words) in [
        (["store-1", "store-99", "web-1"], ["no proxy `store-99`", "no proxy `web-1`"]),
        (["store-1", &ambiguous, "store-2"], ["no proxy was revoked: ", "is too short"]),
    ] {
        let run = revoke(&names);
        assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
        for words in words {
            assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
        }
    }
    assert_eq!(revoke(&[]).code, 2);
    assert!(list(&server).iter().all(|one| one.get("revoked").is_none()));

    // Each once, though named twice; the second command changes nothing.
    let named = server.json(&["proxy", "show", "store-1"])["id"].as_str().unwrap().to_owned();
    let run = revoke(&["store-1", "store-2", &named, "--reason", "sold"]);
    assert_eq!(run.code, 0, "{run:?}");
    let lines: Vec<_> = run.stdout.lines().filter(|line| line.starts_with("proxy ")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with(": sold")), "{run:?}");
    let run = revoke(&["store-2", "store-3"]);
    assert_eq!(run.code, 0, "{run:?}");
    let lines: Vec<_> = run.stdout.lines().filter(|line| line.starts_with("proxy ")).collect();
    assert!(lines[0].contains(" was already revoked on "), "{run:?}");
    assert!(lines[1].contains(" was revoked on "), "{run:?}");
    let entries = server.json(&["journal", "--kind", "revoke"]);
    let done = entries["entries"].as_array().unwrap().iter().filter(|one| one["outcome"] == "done");
    assert_eq!(done.count(), 3, "{entries:#}");
}

#[tokio::test]
async fn dry_run_of_a_revocation_changes_nothing() {
    let Some((server, _child, ids)) = open(2).await else { return };
    let run = server.run(&["proxy", "revoke", "store-1", "--dry-run"]);
    assert_eq!(run.code, 0, "{run:?}");
    let mut lines = run.stdout.lines();
    assert!(lines.next().unwrap().ends_with(" would be revoked"), "{run:?}");
    assert_eq!(run.stdout.lines().last(), Some("nothing was changed"), "{run:?}");
    let predicted = server.json(&["proxy", "revoke", "store-1", &ids[1], "--dry-run"]);
    assert_eq!(predicted["dry_run"], true, "{predicted:#}");
    for proxy in predicted["proxies"].as_array().unwrap() {
        assert_eq!((proxy.get("revocation"), &proxy["streams"]), (None, &0.into()));
    }
    assert!(list(&server).iter().all(|one| one.get("revoked").is_none()));
    assert_eq!(server.json(&["journal", "--kind", "revoke"])["entries"], serde_json::json!([]));
}

#[tokio::test]
async fn retries_of_a_revoked_proxy_write_one_log_line() {
    let Some((server, _child, ids)) = open(1).await else { return };
    let run = server.run(&["proxy", "revoke", &ids[0]]);
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("proxies/0001");
    let node = Node { id: ids[0].clone(), ..Node::default() };
    for _ in 0..50 {
        // The control plane closes the connection of a rejected stream.
        let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
        let rejected = proxy.request_secret(node.clone(), "roots").await.unwrap_err();
        assert_eq!(rejected.code(), Code::PermissionDenied);
    }
    let log = fs_err::read_to_string(server.workspace.path().join("serve.log")).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("revoked")).collect();
    let of_streams = lines.iter().filter(|line| line.contains("stream"));
    assert_eq!(of_streams.count(), 1, "{lines:#?}");
}
