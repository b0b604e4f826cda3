//! `ironmesh policy show`, `ironmesh provider list`, `ironmesh settings` and their JSON.

use ironmesh_tests::{eventually, get_once};
use serde_json::{Value, json};

use crate::rollback::keep_revision;
use crate::server::Server;

const FIRST: &str = "# the first revision\n[[service]]\nname = \"store\"\n";
const SECOND: &str = "\
# the second revision
[[service]]
name = \"store\"
ports = [{ port = 80, protocol = \"http\" }]
endpoints = { static = [{ address = \"10.0.0.5\" }, { address = \"10.0.0.6\" }] }
";

#[tokio::test]
async fn documents_of_active_and_stored_revisions_are_shown() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/store.toml", FIRST);
    let _child = server.start().await;
    server.ready().await;
    let first = server.json(&["policy", "show"]);
    assert_eq!(first["active"], true);
    assert_eq!(first["documents"], json!([{ "path": "store.toml", "text": FIRST }]));
    let revision = first["revision"].as_str().unwrap().to_owned();
    keep_revision(&server, &revision);
    server.workspace.write("policy/store.toml", SECOND);
    let second = eventually("the second revision", async || {
        let shown = server.json(&["policy", "show"]);
        if shown["revision"] == first["revision"] { Err(shown) } else { Ok(shown) }
    })
    .await;
    assert_eq!(second["documents"][0]["text"], SECOND);
    let old = server.json(&["policy", "show", &revision[..8]]);
    assert_eq!((&old["active"], &old["documents"]), (&json!(false), &first["documents"]));
    let text = server.run(&["policy", "show"]).stdout;
    assert!(text.contains(", active\n\n# store.toml\n# the second revision\n"), "{text}");

    let unknown = server.run(&["policy", "show", "../../state"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("see `ironmesh policy revisions`"), "{unknown:?}");
    // Documents need the right to read policy, which other users of the machine do not have.
    for path in ["/v1/policy/documents", "/v1/settings"] {
        let answer = get_once(server.loopback.socket(1, 15014), path, &[]).await.unwrap();
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn documents_of_releases_are_shown() {
    let Some(server) = Server::open_with_releases() else { return };
    let _child = server.start().await;
    let none = server.run(&["policy", "show"]);
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains("no policy is active yet"), "{none:?}");
    let apply = |text: &str| {
        server.workspace.write("rules/store.toml", text);
        let done = server.json(&["policy", "apply", "rules"]);
        done["policy"]["revision"].as_str().unwrap().to_owned()
    };
    let first = apply(FIRST);
    apply(SECOND);
    assert_eq!(server.json(&["policy", "show"])["documents"][0]["text"], SECOND);
    let old = server.json(&["policy", "show", &first]);
    assert_eq!((&old["active"], &old["documents"][0]["text"]), (&json!(false), &json!(FIRST)));
    let unknown = server.run(&["policy", "show", "../current"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("see `ironmesh policy revisions`"), "{unknown:?}");
}

#[tokio::test]
async fn providers_are_listed_with_state_and_counts() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/store.toml", SECOND);
    let _child = server.start().await;
    server.ready().await;
    let list = server.json(&["provider", "list"]);
    let rows = list["providers"].as_array().unwrap();
    let states: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("provider"), text("state"), row["services"].clone(), row["endpoints"].clone())
        })
        .collect();
    let row = |provider: &str, state: &str, services: usize, endpoints: usize| {
        (provider.to_owned(), state.to_owned(), json!(services), json!(endpoints))
    };
    let unused = ["consul", "azure", "registered"].map(|provider| row(provider, "unused", 0, 0));
    let [consul, azure, registered] = unused;
    assert_eq!(states, [row("static", "synced", 1, 2), consul, azure, registered]);
    let port = get_once(server.loopback.socket(1, 15014), "/v1/providers", &[]).await.unwrap();
    assert_eq!(port.json(), list);
    let text = server.run(&["provider", "list"]).stdout;
    assert!(text.contains("static      synced  -    1         2\n"), "{text}");

    // A provider that does not answer is shown with its reason.
    let consul = SECOND.replace("endpoints = {", "endpoints = { consul = { service = \"x\" },");
    server.workspace.write("policy/store.toml", &consul);
    eventually("the reason of Consul", async || {
        let list = server.json(&["provider", "list"]);
        let consul = &list["providers"][1];
        let is_stale = consul["state"] == "stale" || consul["unreported_count"] == 1;
        if is_stale { Ok(()) } else { Err(list) }
    })
    .await;
}

#[tokio::test]
async fn effective_settings_are_shown_without_secrets() {
    let more = "settle = \"30ms\"\n\
         consul = { agents = [\"http://127.0.0.1:1\"], token_file = \"consul-token\" }";
    let Some(server) = Server::open(more) else { return };
    server.workspace.write("policy/store.toml", FIRST);
    server.workspace.write("consul-token", "a-secret-token\n");
    let _child = server.start().await;
    server.ready().await;
    let shown = server.json(&["settings"]);
    assert!(shown["file"].as_str().unwrap().ends_with("ironmesh.toml"), "{shown:#}");
    let setting = |shown: &Value, key: &str| {
        let all = shown["settings"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("{key}: {shown:#}"))
    };
    assert_eq!(
        setting(&shown, "settle"),
        json!({ "key": "settle", "value": "30ms", "needs_restart": false })
    );
    let token_file = setting(&shown, "consul.token_file");
    assert_eq!(token_file["needs_restart"], true);
    let path = token_file["value"].as_str().unwrap();
    assert!(path.ends_with("consul-token") && path.starts_with('/'), "{path}");
    assert!(!shown.to_string().contains("a-secret-token"), "{shown:#}");
    let text = server.run(&["settings"]).stdout;
    assert!(text.starts_with("settings file: ") && text.contains("after a restart"), "{text}");
}
