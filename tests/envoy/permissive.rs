//! Permissive mode: the whole mesh may call, and endpoints without a proxy are called in plaintext.

use std::collections::BTreeSet;

use ironmesh_tests::{
    App, Envoy, Http1Connection, Http2Connection, Ledger, Mesh, Programs, ProxyOptions, Response,
    TcpConnection, eventually, get_once, tls,
};

use crate::bookstore::{ensure_status, wait_for_endpoint};

/// The file `till.toml`: a till with a proxy at `proxied`, one without at `plain`, and a ledger
/// without.
fn policy(mesh: &Mesh, mode: &str) -> String {
    let (proxied, plain) = (mesh.loopback().host(PROXIED), mesh.loopback().host(PLAIN));
    format!(
        r#"
[[service]]
name = "till"
{mode}
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]
[service.endpoints]
static = [{{ address = "{proxied}" }}, {{ address = "{plain}", port = 9090 }}]

[[service]]
name = "ledger"
{mode}
ports = [{{ name = "ledger", port = 3306, protocol = "tcp" }}]
[service.endpoints]
static = [{{ address = "{plain}" }}]

[[service]]
name = "customer"
"#
    )
}

/// The file `ledger.toml`: the customer may connect, also in strict mode.
const LEDGERS: &str = r#"
[[tcp_route]]
name = "ledger"

[[traffic_target]]
name = "ledger"
destination = { name = "ledger" }
sources = [{ name = "customer" }]
rules = [{ kind = "TCPRoute", name = "ledger" }]
"#;

const PROXIED: u8 = 41;
const PLAIN: u8 = 42;
const PERMISSIVE: &str = "mode = \"permissive\"";

/// The customer's local ports for the tills and the ledger.
const TILL: u16 = 8000;
const LEDGER: u16 = 3306;

struct PermissiveMesh {
    mesh: Mesh,
    _apps: (App, App, Ledger),
    till: Envoy,
    customer: Envoy,
}

impl PermissiveMesh {
    /// Opens the mesh with these settings, and this mode of its services.
    async fn open(settings: &str, mode: &str) -> Option<Self> {
        let programs = Programs::find()?;
        // Policy must define the service before its proxy enrolls.
        let mesh = Mesh::start_with(settings, &programs, &[]).await;
        mesh.write_policy("till.toml", &policy(&mesh, mode));
        eventually("findings about endpoints without a proxy", async || {
            let readiness = mesh.readyz().await;
            let findings = readiness.get("findings").and_then(|findings| findings.as_array());
            findings.is_some_and(|findings| !findings.is_empty()).then_some(()).ok_or("none")
        })
        .await;
        let apps = (
            App::http1("proxied", mesh.loopback().socket(PROXIED, 8080)).await,
            App::http1("plain", mesh.loopback().socket(PLAIN, 9090)).await,
            Ledger::start("ledger", mesh.loopback().socket(PLAIN, 3306)).await,
        );
        let till = mesh.envoy(&ProxyOptions::new("default/till", PROXIED)).await;
        let customer = ProxyOptions::new("default/customer", 51)
            .drain_seconds(2)
            .upstream("default/till=8000")
            .upstream("default/ledger=3306");
        let customer = mesh.envoy(&customer).await;
        Some(Self { mesh, _apps: apps, till, customer })
    }

    async fn call(&self) -> anyhow::Result<Response> {
        get_once(self.customer.socket(TILL), "/", &[]).await
    }

    /// The applications that answer ten calls; an error if one call fails.
    async fn answering_apps(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut apps = BTreeSet::new();
        for _ in 0..10 {
            let response = self.call().await?;
            ensure_status(&response, 200)?;
            apps.insert(response.header("x-app").unwrap_or_default().to_owned());
        }
        Ok(apps)
    }

    /// Waits until exactly these applications answer.
    async fn wait_for(&self, apps: &[&str]) {
        eventually("the expected applications to answer", async || {
            match self.answering_apps().await {
                Ok(seen) if seen.iter().eq(apps) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permissive_calls_use_tls_or_plaintext_per_endpoint() {
    let Some(setup) = PermissiveMesh::open("", PERMISSIVE).await else { return };
    setup.wait_for(&["plain", "proxied"]).await;
    // By HTTP/1.1 and HTTP/2, although the applications speak only HTTP/1.1.
    let mut http1 = Http1Connection::connect(setup.customer.socket(TILL)).await.unwrap();
    let mut http2 = Http2Connection::connect(setup.customer.socket(TILL)).await.unwrap();
    for n in 0..40 {
        let response = if n % 2 == 0 {
            http1.get("/", "till").await.unwrap()
        } else {
            http2.get("/", "till").await.unwrap()
        };
        ensure_status(&response, 200).unwrap();
        // An application behind a proxy learns the caller; in plaintext it cannot.
        let caller = response.json()["headers"]["x-forwarded-client-cert"].clone();
        let is_known = caller.as_str().is_some_and(|text| text.contains("/sa/customer"));
        assert_eq!(is_known, response.header("x-app") == Some("proxied"), "{caller}");
    }
    let handshakes = setup.customer.stat("cluster.default/till|80.ssl.handshake").await;
    assert!(handshakes > 0, "no endpoint was called over TLS");
    // TCP to an endpoint without a proxy.
    let mut connection = TcpConnection::connect(setup.customer.socket(LEDGER)).await.unwrap();
    assert_eq!(connection.line().await.unwrap(), "ledger");
    connection.exchange("one").await.unwrap();
    // Plaintext endpoints are reported.
    let plain = setup.mesh.loopback().host(PLAIN);
    let findings = setup.mesh.readyz().await["findings"].to_string();
    assert!(
        findings.contains(&format!(
            "endpoint {plain} of service `default/till` is called in plaintext"
        )),
        "{findings}"
    );
    for envoy in [&setup.customer, &setup.till] {
        envoy.assert_no_update_errors().await;
    }
}

/// OSM 5.
#[tokio::test(flavor = "multi_thread")]
async fn mode_switch_between_strict_and_permissive_takes_effect() {
    let Some(setup) = PermissiveMesh::open("", "").await else { return };
    assert_endpoint_unpublished(&setup).await;
    ensure_status(&setup.call().await.unwrap(), 403).unwrap();
    TcpConnection::connect(setup.customer.socket(LEDGER)).await.unwrap_err();

    setup.mesh.write_policy("till.toml", &policy(&setup.mesh, PERMISSIVE));
    setup.wait_for(&["plain", "proxied"]).await;
    let mut plaintext = TcpConnection::connect(setup.customer.socket(LEDGER)).await.unwrap();
    assert_eq!(plaintext.line().await.unwrap(), "ledger");
    // Strict mode, and the customer may still connect: plaintext connections end all the same.
    setup.mesh.write_policy("ledger.toml", LEDGERS);
    setup.mesh.write_policy("till.toml", &policy(&setup.mesh, "mode = \"strict\""));
    eventually("the plaintext connection to end", async || {
        plaintext.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    setup.mesh.remove_policy("ledger.toml");
    eventually("the calls to be denied", async || ensure_status(&setup.call().await?, 403)).await;
    eventually("the listener to go", async || {
        TcpConnection::connect(setup.customer.socket(LEDGER)).await.err().ok_or("it listens")
    })
    .await;
    // Strict mode with a grant: the endpoint without a proxy is excluded.
    setup.mesh.write_policy(
        "allowed.toml",
        r#"
[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "customers"
destination = { name = "till" }
sources = [{ name = "customer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#,
    );
    setup.wait_for(&["proxied"]).await;
    let plain = setup.mesh.loopback().host(PLAIN);
    let findings = setup.mesh.readyz().await["findings"].to_string();
    let expected = format!("endpoint {plain} of service `default/till` gets no traffic");
    assert!(findings.contains(&expected), "{findings}");
    // Back to permissive mode: allowed calls stay allowed.
    setup.mesh.write_policy("till.toml", &policy(&setup.mesh, PERMISSIVE));
    setup.wait_for(&["plain", "proxied"]).await;
    setup.customer.assert_no_update_errors().await;
    setup.till.assert_no_update_errors().await;
}

async fn assert_endpoint_unpublished(setup: &PermissiveMesh) {
    let clusters = setup.customer.stats(r"^cluster\.default/.*membership_total$").await;
    assert!(clusters.is_empty(), "Envoy has a cluster that it may not call: {clusters:?}");
}

/// OSM 5.
#[tokio::test(flavor = "multi_thread")]
async fn permissive_mode_rejects_callers_outside_the_mesh() {
    let Some(setup) = PermissiveMesh::open("mode = \"permissive\"", "").await else { return };
    wait_for_endpoint(&setup.customer, "default/till|80").await;
    setup.wait_for(&["plain", "proxied"]).await;
    // Plaintext to the mesh port.
    let mesh_port = setup.till.socket(15003);
    get_once(mesh_port, "/", &[("host", "till")]).await.unwrap_err();
    // A proxy certificate of the mesh, which is no service certificate.
    let folder = setup.mesh.bootstrap(&ProxyOptions::new("default/customer", 52)).await;
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let (chain, key, roots) = (read("proxy.crt"), read("proxy.key"), read("ca.crt"));
    let sni = "80.till.default.mesh.internal";
    let stream = tls::connect_mesh(mesh_port, sni, &["ironmesh"], &chain, &key, &roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    assert_eq!(connection.get("/", "till").await.unwrap().status, 403);
}
