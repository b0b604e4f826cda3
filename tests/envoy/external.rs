//! Services outside the mesh: resolved by DNS, by list or by the requested host, each for the
//! callers that policy allows.

use http::Method;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Ledger, Mesh, NameServer, Programs, ProxyOptions, TcpConnection,
    eventually,
};

use crate::bookstore::ensure_status;

fn policy(mesh: &Mesh) -> String {
    let listed = mesh.loopback().host(LISTED);
    format!(
        r#"
[[service]]
name = "payments"
external = true
hostname = "api.payments.example"
ports = [
  {{ name = "web", port = 80, protocol = "http", target_port = 8080 }},
  {{ name = "journal", port = 3306, protocol = "tcp" }},
]

[[service]]
name = "mainframe"
external = true
ports = [{{ name = "web", port = 8000, protocol = "http", target_port = 8080 }}]
[service.endpoints]
static = [{{ address = "{listed}" }}]

[[service]]
name = "mirrors"
external = true
hostname = "*.mirrors.example"
resolution = "passthrough"
ports = [{{ name = "web", port = 8080, protocol = "http" }}]

[[service]]
name = "till"

[[service]]
name = "clerk"

[[http_route_group]]
name = "payments"
matches = [
  {{ name = "charge", path_regex = "/charges$", methods = ["POST"] }},
  {{ name = "look", path_regex = "/charges/", methods = ["GET"], headers = {{ x-till = "[0-9]+" }} }},
]

[[http_route_group]]
name = "all"
matches = [{{ name = "all" }}]

[[tcp_route]]
name = "journal"

[[traffic_target]]
name = "payments"
destination = {{ name = "payments" }}
sources = [{{ name = "till" }}]
rules = [
  {{ kind = "HTTPRouteGroup", name = "payments" }},
  {{ kind = "TCPRoute", name = "journal" }},
]

[[traffic_target]]
name = "mainframe"
destination = {{ name = "mainframe" }}
sources = [{{ name = "clerk" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]

[[traffic_target]]
name = "mirrors"
destination = {{ name = "mirrors" }}
sources = [{{ name = "clerk" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]
"#
    )
}

const PAYMENTS: u8 = 31;
const LISTED: u8 = 32;
const MIRROR: u8 = 33;

/// The status, and the request that the application received.
async fn request(
    from: &Envoy,
    port: u16,
    call: (Method, &str, &str),
) -> anyhow::Result<(u16, String)> {
    let (method, host, path) = call;
    let mut connection = Http1Connection::connect(from.socket(port)).await?;
    let answer = connection.request(method, path, &[("host", host), ("x-till", "7")]).await?;
    let host = match answer.status.as_u16() {
        200 => {
            let requested = answer.json();
            let host = requested.pointer("/headers/host").and_then(serde_json::Value::as_str);
            host.unwrap_or_default().to_owned()
        }
        _ => String::new(),
    };
    Ok((answer.status.as_u16(), host))
}

#[tokio::test(flavor = "multi_thread")]
async fn external_services_accept_only_granted_calls() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[]).await;
    let empty = mesh.readyz().await["policy"]["revision"].clone();
    mesh.write_policy("policy.toml", &policy(&mesh));
    eventually("the policy", async || {
        let revision = mesh.readyz().await["policy"]["revision"].clone();
        if revision == empty { Err(revision) } else { Ok(()) }
    })
    .await;
    let names = NameServer::start(mesh.loopback().socket(2, 5353)).await;
    names.set("api.payments.example", mesh.loopback().host(PAYMENTS));
    names.set("north.mirrors.example", mesh.loopback().host(MIRROR));
    names.set("other.example", mesh.loopback().host(MIRROR));
    let app = |name: &'static str, host| App::http1(name, mesh.loopback().socket(host, 8080));
    let apps =
        (app("payments", PAYMENTS).await, app("listed", LISTED).await, app("mirror", MIRROR).await);
    let _journal = Ledger::start("payments", mesh.loopback().socket(PAYMENTS, 3306)).await;
    let caller = |service: &str, host| {
        ProxyOptions::new(service, host).name_server(mesh.loopback().socket(2, 5353))
    };
    let till = caller("default/till", 11)
        .upstream("default/payments:80=8000")
        .upstream("default/payments:3306=3306");
    let till = mesh.envoy(&till).await;
    let clerk = mesh.envoy(&caller("default/clerk", 12).upstream("default/mirrors=8001")).await;

    // By its external name, by its names in the mesh, and by a local port. The host sent out is its
    // own.
    for (port, host) in
        [(15080, "api.payments.example"), (15080, "payments"), (15080, "payments:80"), (8000, "x")]
    {
        eventually(&format!("the answer of {host}"), async || {
            match request(&till, port, (Method::POST, host, "/charges")).await {
                Ok((200, requested)) if requested == "api.payments.example" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    // The caller's own proxy denies what no target allows.
    let before = apps.0.requests();
    let status = async |from: &Envoy, call| request(from, 15080, call).await.unwrap().0;
    assert_eq!(status(&till, (Method::GET, "payments", "/charges/7")).await, 200);
    assert_eq!(status(&till, (Method::GET, "payments", "/charges")).await, 403);
    assert_eq!(status(&till, (Method::POST, "payments", "/charges/7")).await, 403);
    assert_eq!(status(&till, (Method::POST, "payments", "/charges/../refunds")).await, 403);
    assert_eq!(apps.0.requests(), before + 1);
    // Other callers do not learn of it.
    assert_eq!(status(&clerk, (Method::POST, "api.payments.example", "/charges")).await, 404);
    let mut journal = TcpConnection::connect(till.socket(3306)).await.unwrap();
    assert_eq!(journal.line().await.unwrap(), "payments");

    // A list, and a pass-through service.
    assert_eq!(status(&clerk, (Method::GET, "mainframe", "/")).await, 200);
    assert_eq!(status(&till, (Method::GET, "mainframe", "/")).await, 404);
    let north = "north.mirrors.example:8080";
    for port in [15080, 8001] {
        let answer = request(&clerk, port, (Method::GET, north, "/")).await.unwrap();
        assert_eq!(answer, (200, north.to_owned()), "{port}");
    }
    let outside = (Method::GET, "other.example:8080", "/");
    assert_eq!(request(&clerk, 8001, outside.clone()).await.unwrap().0, 404);
    assert_eq!(status(&clerk, outside).await, 404);
    assert_eq!(status(&clerk, (Method::GET, "unknown.mirrors.example:8080", "/")).await, 503);
    assert_eq!(status(&till, (Method::GET, north, "/")).await, 404);

    // Callers follow a changed DNS answer.
    names.set("api.payments.example", mesh.loopback().host(MIRROR));
    eventually("the payments to have moved", async || {
        let mut connection = Http1Connection::connect(till.socket(8000)).await?;
        let answer = connection.request(Method::POST, "/charges", &[("host", "x")]).await?;
        ensure_status(&answer, 200)?;
        anyhow::ensure!(answer.header("x-app") == Some("mirror"));
        anyhow::Ok(())
    })
    .await;
    till.assert_no_update_errors().await;
    clerk.assert_no_update_errors().await;

    // No proxy can enroll as an external service.
    let output = mesh
        .run(&[
            "proxy",
            "bootstrap",
            "--service",
            "default/payments",
            "--address",
            "127.0.0.1",
            "--out",
            "/nonexistent",
        ])
        .await;
    assert!(!output.status.success());
}

/// Two HTTP ports of an external host, the second on a mesh port, for the till.
const BY_DNS: &str = r#"
[[service]]
name = "payments"
external = true
hostname = "api.payments.example"
ports = [
  { name = "web", port = 8080, protocol = "http" },
  { name = "mesh", port = 8081, protocol = "http", target_port = 15003 },
]

[[service]]
name = "till"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "payments"
destination = { name = "payments" }
sources = [{ name = "till" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn dns_answers_with_forbidden_addresses_are_never_dialed() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", BY_DNS)]).await;
    let names = NameServer::start(mesh.loopback().socket(2, 5353)).await;
    let host = "api.payments.example";
    names.set(host, mesh.loopback().host(PAYMENTS));
    let app = App::http1("payments", mesh.loopback().socket(PAYMENTS, 8080)).await;
    let of_the_mesh = App::http1("mesh", mesh.loopback().socket(PAYMENTS, 15003)).await;
    let till = ProxyOptions::new("default/till", 11)
        .name_server(mesh.loopback().socket(2, 5353))
        .upstream("default/payments:8080=8000");
    let till = mesh.envoy(&till).await;
    let status =
        async |port, host| request(&till, port, (Method::GET, host, "/")).await.map(|it| it.0);
    let until = async |wanted: &[u16]| {
        eventually(&format!("{wanted:?}"), async || {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..20 {
                seen.insert(status(8000, "x").await?);
            }
            anyhow::ensure!(seen.iter().eq(wanted), "{seen:?}");
            anyhow::Ok(())
        })
        .await;
    };
    until(&[200]).await;

    // A mesh port, by every name of the service.
    for host in ["api.payments.example:8081", "payments:8081"] {
        assert_eq!(status(15080, host).await.unwrap(), 403, "{host}");
    }
    assert_eq!(of_the_mesh.requests(), 0);

    // Each of two addresses is checked by itself, in either order: one serves, and one is never
    // dialed.
    let metadata = "169.254.169.254".parse().unwrap();
    for addresses in
        [[mesh.loopback().host(PAYMENTS), metadata], [metadata, mesh.loopback().host(PAYMENTS)]]
    {
        names.set_all(host, &addresses);
        until(&[200, 403]).await;
        names.set(host, metadata);
        until(&[403]).await;
    }
    names.set(host, mesh.loopback().host(PAYMENTS));
    until(&[200]).await;
    assert!(app.requests() > 0);
    till.assert_no_update_errors().await;
}
