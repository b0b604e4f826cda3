//! `ironmesh cert list` and `cert status` with a control plane, without an Envoy.

use ironmesh_tests::{eventually, get_once};
use serde_json::{Value, json};

use crate::server::Server;

const POLICY: &str = "[[service]]\nname = \"store\"\n";

fn certificates(list: &Value) -> &Vec<Value> {
    list["certificates"].as_array().unwrap()
}

/// The kind and state of each certificate.
fn states(list: &Value) -> Vec<(&str, &str)> {
    let all = certificates(list).iter();
    all.map(|one| (one["kind"].as_str().unwrap(), one["state"].as_str().unwrap())).collect()
}

fn without_ages(mut list: Value) -> Value {
    for one in list["certificates"].as_array_mut().unwrap() {
        one.as_object_mut().unwrap().remove("age_seconds");
    }
    list
}

#[tokio::test]
async fn cert_list_has_all_kinds_of_certificates() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let address = server.loopback.socket(2, 15003).ip().to_string();
    let enroll = ["proxy", "bootstrap", "--service", "store", "--out", "proxy", "--address"];
    assert_eq!(server.run(&[&enroll[..], &[&address]].concat()).code, 0);

    // The reconciler issues the service certificate after the enrollment.
    let list = eventually("the service certificate", async || {
        let list = server.json(&["cert", "list"]);
        if certificates(&list).len() == 5 { Ok(list) } else { Err(format!("{list:#}")) }
    })
    .await;
    let expected = [
        ("root", "valid"),
        ("intermediate", "valid"),
        ("control_plane", "valid"),
        ("proxy", "unclaimed"),
        ("service", "valid"),
    ];
    assert_eq!(states(&list), expected, "{list:#}");
    for one in certificates(&list) {
        assert!(one["serial"].as_str().is_some_and(|serial| serial.len() == 32), "{one:#}");
        assert!(one["subject"].as_str().unwrap().starts_with("spiffe://mesh.internal"), "{one:#}");
        assert!(one["issued_at"].is_string() && one["not_after"].is_string(), "{one:#}");
        assert!(one["age_seconds"].as_u64().is_some_and(|age| age < 3_600), "{one:#}");
    }
    let proxy = &certificates(&list)[3];
    assert_eq!(proxy["name"], "store-1");
    assert_eq!(proxy["used_by"]["proxy"]["mesh_address"], format!("{address}:15003"));
    assert_eq!(proxy["used_by"]["proxy"]["connected"], false);
    assert_eq!(certificates(&list)[4]["used_by"], json!({ "proxies": 1 }));

    // The TCP listener answers with the same object, some time later.
    let admin = server.loopback.socket(1, 15014);
    let answer = get_once(admin, "/v1/certificates", &[]).await.unwrap();
    assert_eq!(without_ages(answer.json()), without_ages(list));

    let services = server.json(&["cert", "list", "--kind", "service"]);
    assert_eq!(states(&services), [("service", "valid")]);
    let wide = server.run(&["cert", "list", "-o", "wide"]);
    assert!(wide.stdout.contains("spiffe://mesh.internal/ns/default/sa/store"), "{wide:?}");

    let run = server.run(&["cert", "status"]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    assert!(run.stdout.contains("proxy          1 unclaimed\n"), "{run:?}");
    let summary = server.json(&["cert", "status"]);
    assert_eq!(summary["problems"], json!([]));
    assert_eq!(summary["kinds"][4]["renewed_by"], "control_plane");

    // A revoked proxy keeps its row, and its account needs no certificate any more.
    assert_eq!(server.run(&["proxy", "revoke", "store-1"]).code, 0);
    let proxies = server.json(&["cert", "list", "--kind", "proxy"]);
    assert_eq!(states(&proxies), [("proxy", "revoked")]);
}
