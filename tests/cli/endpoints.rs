//! `ironmesh endpoints`, without an Envoy.

use http::Method;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, eventually, get_once};
use serde_json::Value;
use tokio::process::Command;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "till"
namespace = "shop"
ports = [{ port = 80, protocol = "http", target_port = 8080 }]
[service.endpoints]
registered = true
static = [{ address = "10.0.0.5", labels = { v = "1" } }, { address = "10.0.0.6", port = 81, weight = 3 }]

[[service]]
name = "vault"
namespace = "shop"
state = "drained"
ports = [{ port = 80, protocol = "http" }]
endpoints = { static = [{ address = "10.0.0.7" }] }

[[service]]
name = "open"
mode = "permissive"
ports = [{ port = 80, protocol = "http" }]
endpoints = { static = [{ address = "10.0.0.8" }] }
"#;

/// A control plane with this policy, and an enrolled proxy of the till that has never connected.
async fn open() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/services.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    let join = ["proxy", "bootstrap", "--service", "shop/till", "--address", "10.0.0.9"];
    let run = server.run(&[&join[..], &["--out", "proxy"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    Some((server, child))
}

/// Waits until the enrolled proxy is one of the endpoints, and returns them.
async fn endpoints_with_proxy(server: &Server) -> Value {
    eventually("the endpoint of the proxy", async || {
        let list = server.json(&["endpoints"]);
        let rows = list["services"][1]["endpoints"].as_array().unwrap();
        if rows.iter().any(|row| row["provider"] == "registered") { Ok(list) } else { Err(list) }
    })
    .await
}

#[tokio::test]
async fn endpoints_are_listed_with_status_as_text_and_json() {
    let Some((server, _child)) = open().await else { return };
    let list = endpoints_with_proxy(&server).await;
    let names: Vec<_> =
        list["services"].as_array().unwrap().iter().map(|s| &s["service"]).collect();
    assert_eq!(names, ["default/open", "shop/till", "shop/vault"]);
    let statuses = |service: usize| -> Vec<String> {
        let rows = list["services"][service]["endpoints"].as_array().unwrap();
        let row = |row: &Value| {
            let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
            [text("address"), text("provider"), text("status"), text("dialled_at")].join(" ")
        };
        rows.iter().map(row).collect()
    };
    assert_eq!(statuses(0), ["10.0.0.8 static plaintext 10.0.0.8:80"]);
    assert_eq!(
        statuses(1),
        [
            "10.0.0.5 static no_proxy -",
            "10.0.0.6 static no_proxy -",
            "10.0.0.9 registered unclaimed -"
        ]
    );
    assert_eq!(statuses(2), ["10.0.0.7 static drained -"]);
    assert_eq!(list["services"][1]["endpoints"][0]["labels"]["v"], "1");

    let of_one = server.json(&["endpoints", "shop/till"]);
    assert_eq!(of_one["services"], serde_json::json!([list["services"][1]]));
    let run = server.run(&["endpoints", "shop/till"]);
    let lines: Vec<_> = run.stdout.lines().collect();
    let words = |line: &str| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
    assert_eq!(lines[0], "shop/till");
    assert_eq!(words(lines[1]), "ADDRESS PROVIDER HEALTH LOCALITY WEIGHT");
    assert_eq!(words(lines[3]), "10.0.0.6:81 static unknown - 3");
    assert!(lines[3].contains("no proxy: no proxy is enrolled for this service"), "{}", lines[3]);
    assert!(lines[4].contains("unclaimed: its proxy has never connected"), "{}", lines[4]);
    assert_eq!(lines.len(), 5, "{lines:#?}");
}

#[tokio::test]
async fn endpoints_rejects_invalid_services_and_accepts() {
    let Some((server, _child)) = open().await else { return };
    let unknown = "policy defines no service `shop/tll`; did you mean `shop/till`?";
    for (arguments, code, words) in [
        (&["endpoints", "shop/tll"][..], 1, unknown),
        (&["endpoints", "shop/tll", "--watch"], 1, unknown),
        (&["endpoints", "accept", "shop/tll"], 1, unknown),
        (&["endpoints", "accept", "shop/till"], 1, "nothing is held back of this service"),
        (&["endpoints", "accept"], 2, "<NS/SERVICE>"),
        (&["endpoints", "Shop/till"], 2, "Shop/till"),
        (&["endpoints", "shop/till", "accept", "shop/till"], 2, "accept"),
    ] {
        let run = server.run(arguments);
        assert_eq!((run.code, &*run.stdout), (code, ""), "{run:?}");
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    }
    // The TCP port only reads.
    let admin = server.loopback.socket(1, 15014);
    for (path, status) in [
        ("/v1/endpoints", 200),
        ("/v1/endpoints/shop/till", 200),
        ("/v1/endpoints/shop/tll", 404),
        ("/v1/endpoints/Shop/till", 400),
    ] {
        assert_eq!(get_once(admin, path, &[]).await.unwrap().status, status, "{path}");
    }
    let accept = Http1Connection::connect(admin).await.unwrap();
    let accept = { accept }.request(Method::POST, "/v1/endpoints/shop/till/accept", &[]).await;
    assert_eq!(accept.unwrap().status, 403);
}

#[test]
fn endpoints_without_control_plane_exits_4() {
    let Some(server) = Server::open("") else { return };
    for arguments in [&["endpoints"][..], &["endpoints", "--watch"], &["endpoints", "accept", "a"]]
    {
        let run = server.run(arguments);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(run.stderr.contains("is `ironmesh serve` running"), "{}", run.stderr);
    }
}

#[tokio::test]
async fn endpoints_watch_follows_changes_across_a_restart() {
    let Some((server, mut child)) = open().await else { return };
    endpoints_with_proxy(&server).await;
    let log = server.workspace.path().join("watch.log");
    let arguments = ["endpoints", "shop/till", "--watch", "--config", "ironmesh.toml"];
    let command = server.workspace.command(&arguments);
    let mut watcher = Child::start("ironmesh endpoints", &mut Command::from(command), &log);
    let mut sees = async |what: &str| {
        eventually("a line of it", async || {
            watcher.assert_running();
            let text = fs_err::read_to_string(&log).unwrap();
            if text.contains(what) { Ok(()) } else { Err(text) }
        })
        .await;
    };
    sees("Z shop/till 10.0.0.6:81 new: static, unknown, no locality, weight 3, no proxy: ").await;
    server.workspace.write("policy/services.toml", &POLICY.replace("weight = 3", "weight = 4"));
    sees("Z shop/till 10.0.0.6:81 weight 3 → weight 4\n").await;
    assert!(child.terminate().await.success());
    sees("; retrying\n").await;
    let _child = server.start().await;
    server.ready().await;
    server.workspace.write("policy/services.toml", &POLICY.replace("10.0.0.6", "10.0.0.4"));
    sees("Z shop/till 10.0.0.6:81 gone\n").await;

    // The reader closes the pipe after the first words.
    let (reader, stdout) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::from(server.workspace.command(&arguments));
    let mut unread = command.stdout(stdout).kill_on_drop(true).spawn().unwrap();
    let status = eventually("its end", async || unread.try_wait().unwrap().ok_or("still running"));
    assert!(status.await.success());
}
