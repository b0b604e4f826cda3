//! A policy folder with YAML, edited while `serve` runs.

use fs_err as fs;
use ironmesh_tests::eventually;

use crate::server::Server;

/// A file of two resources: a service with one port, and a grant for it.
fn yaml(port: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: store\nspec:\n  ports:\n  - name: http-web\n    \
         port: {port}\n---\napiVersion: access.smi-spec.io/v1alpha4\nkind: TrafficTarget\nmetadata:\n  \
         name: buyers\nspec:\n  destination: {{ kind: ServiceAccount, name: store }}\n  sources:\n  - kind: \
         ServiceAccount\n    name: buyer\n  rules:\n  - {{ kind: TCPRoute, name: all }}\n"
    )
}

const REST: &str = "[[service]]\nname = \"buyer\"\n[[tcp_route]]\nname = \"all\"\n";

/// Waits until the control plane admits the caller at this port, and knows no other.
async fn open_at(server: &Server, port: &str) {
    let ask = |port: &str| {
        let question = ["--from", "default/buyer", "--to", "default/store", "--port", port];
        server.run(&[&["policy", "explain"], &question[..]].concat()).code
    };
    eventually(&format!("port {port} alone"), async || {
        // 2: no such port.
        match ["80", "81", "82"].map(|other| (ask(other), if other == port { 0 } else { 2 })) {
            codes if codes.iter().all(|(code, expected)| code == expected) => Ok(()),
            codes => Err(format!("{codes:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn valid_yaml_edit_is_applied_and_invalid_one_is_rejected() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/rest.toml", REST);
    server.workspace.write("policy/smi.yaml", &yaml("80"));
    let mut child = server.start().await;
    server.ready().await;
    let first =
        server.wait_for_policy("no findings", |policy| policy["findings"][0].is_null()).await;
    open_at(&server, "80").await;

    server.workspace.write("policy/smi.yaml", &yaml("81"));
    let second =
        server.wait_for_policy("the edit", |policy| policy["revision"] != first["revision"]).await;
    open_at(&server, "81").await;

    // Invalid YAML, and YAML that is no policy.
    for (text, message, line) in [
        (yaml("[82"), "", 9),
        (yaml("many"), "`port` must be", 8),
        (yaml("82").replace("kind: TCPRoute", "kind: UDPRoute"), "UDPRoute", 20),
    ] {
        server.workspace.write("policy/smi.yaml", &text);
        let policy = server
            .wait_for_policy(&format!("line {line}"), |policy| {
                policy["findings"][0]["line"] == line
            })
            .await;
        assert_eq!(policy["findings"][0]["file"], "smi.yaml", "{policy:#}");
        assert!(policy["findings"][0]["message"].as_str().unwrap().contains(message), "{policy:#}");
        assert!(policy["rendered"].as_str().unwrap().contains(&format!("smi.yaml:{line}:")));
        assert_eq!(policy["revision"], second["revision"], "what was good last stays: {policy:#}");
        assert!(!policy["stale_since"].is_null(), "{policy:#}");
        open_at(&server, "81").await;
    }

    server.workspace.write("policy/smi.yaml", &yaml("82"));
    server.wait_for_policy("the fixed file", |policy| policy["stale_since"].is_null()).await;
    open_at(&server, "82").await;
    // The objects of a removed file are removed.
    fs::remove_file(server.workspace.path().join("policy/smi.yaml")).unwrap();
    open_at(&server, "none").await;
    assert!(child.terminate().await.success());
}
