//! Identity bindings: the callers that they admit, and that part of an account admits none.

use ironmesh_tests::{App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually};

use crate::bookstore::{ensure_status, wait_for_endpoint};

const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "customer"

[[service]]
name = "reports"

[[service]]
name = "auditor"
namespace = "office"

[[identity_binding]]
name = "tills"
service_account = "till"

[[identity_binding]]
name = "auditors"
spiffe_identities = ["mesh.internal/ns/office/sa/auditor"]

[[identity_binding]]
name = "batch"
endpoint_labels = { role = "batch" }

[[http_route_group]]
name = "till"
[[http_route_group.matches]]
name = "audit"
path_regex = "/audit"
[[http_route_group.matches]]
name = "report"
path_regex = "/report"

[[traffic_target]]
name = "auditors"
destination = { kind = "IdentityBinding", name = "tills" }
sources = [{ kind = "IdentityBinding", name = "auditors" }]
rules = [{ kind = "HTTPRouteGroup", name = "till", matches = ["audit"] }]

[[traffic_target]]
name = "batch"
destination = { name = "till" }
sources = [{ kind = "IdentityBinding", name = "batch" }]
rules = [{ kind = "HTTPRouteGroup", name = "till", matches = ["report"] }]
"#;

const TILL: u16 = 8000;

async fn connected(caller: &Envoy) -> Http1Connection {
    wait_for_endpoint(caller, "default/till|80").await;
    Http1Connection::connect(caller.socket(TILL)).await.unwrap()
}

async fn status(connection: &mut Http1Connection, path: &str) -> u16 {
    connection.get(path, "till").await.unwrap().status.as_u16()
}

/// SMI 9.
#[tokio::test(flavor = "multi_thread")]
async fn identity_binding_allows_named_ids_and_only_whole_accounts() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = App::http1("till", mesh.loopback().socket(21, 8080)).await;
    let till = mesh.envoy(&ProxyOptions::new("default/till", 21)).await;
    let caller =
        |service: &str, host| ProxyOptions::new(service, host).upstream("default/till=8000");
    let auditor = mesh.envoy(&caller("office/auditor", 11)).await;
    let reports = mesh.envoy(&caller("default/reports", 12).label("role=batch")).await;
    let customer = mesh.envoy(&caller("default/customer", 13)).await;

    let mut auditing = connected(&auditor).await;
    let mut reporting = connected(&reports).await;
    eventually("both to be allowed", async || {
        match (status(&mut auditing, "/audit").await, status(&mut reporting, "/report").await) {
            (200, 200) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(status(&mut auditing, "/report").await, 403);
    assert_eq!(status(&mut reporting, "/audit").await, 403);
    let mut stranger = Http1Connection::connect(customer.socket(TILL)).await.unwrap();
    assert_eq!(status(&mut stranger, "/audit").await, 403);
    assert_eq!(status(&mut stranger, "/report").await, 403);

    // Another proxy of the account enrolls without the label. Both would have the same certificate,
    // so neither is admitted, not even on the open connection.
    let listener_updates = "listener_manager.lds.update_success";
    let listeners = till.stat(listener_updates).await;
    let _other = mesh.bootstrap(&ProxyOptions::new("default/reports", 14)).await;
    eventually("the account to be left out", async || {
        match status(&mut reporting, "/report").await {
            403 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    eventually("the finding, which follows the proxies", async || {
        let findings = mesh.readyz().await["findings"].to_string();
        if findings.contains("IM0409") { Ok(()) } else { Err(findings) }
    })
    .await;
    assert_eq!(status(&mut auditing, "/audit").await, 200);
    assert_eq!(till.stat(listener_updates).await, listeners, "grants change no listener");

    // Its revocation admits the account again.
    let proxies = mesh.proxies().await;
    let is_other = |proxy: &&serde_json::Value| {
        proxy["services"][0] == "default/reports" && proxy["labels"]["role"].is_null()
    };
    let other = proxies.as_array().unwrap().iter().find(is_other).unwrap();
    let id = other["id"].as_str().unwrap().to_owned();
    let output = mesh.run(&["proxy", "revoke", &id]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the account to be allowed again", async || {
        let connection = Http1Connection::connect(reports.socket(TILL)).await;
        ensure_status(&connection.unwrap().get("/report", "till").await?, 200)
    })
    .await;
    till.assert_no_update_errors().await;
}
