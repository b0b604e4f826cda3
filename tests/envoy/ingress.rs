//! Callers outside the mesh: which are admitted, for which requests, and what they can make the
//! application believe.

mod changes;
mod edge;
mod wsgi;

use std::net::IpAddr;

use http::Method;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Http2Connection, Mesh, Programs, ProxyOptions, Response, client,
    eventually, get_once, tls,
};

use crate::bookstore::ensure_status;

/// The SNI that callers outside the mesh use for the store.
const SNI: &str = "store.example.com";

/// A store, and other services with certificates of the mesh.
const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "edge"

[[service]]
name = "buyer"

[[http_route_group]]
name = "store"
matches = [{ name = "books", path_regex = "/books(/.*)?$", methods = ["GET"] }]
"#;

struct IngressMesh {
    mesh: Mesh,
    server: Envoy,
    app: App,
    edge: ProxyClient,
    buyer: ProxyClient,
}

/// A caller by its protocol and certificate.
#[derive(Debug, Clone, Copy)]
enum Caller {
    Plain,
    Edge,
    Buyer,
    Nameless,
}

impl IngressMesh {
    async fn open() -> Option<Self> {
        let mesh = Mesh::start(&Programs::find()?, &[("services.toml", SERVICES)]).await;
        let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
        let edge = enroll_client(&mesh, "default/edge", 13).await;
        let buyer = enroll_client(&mesh, "default/buyer", 14).await;
        Some(Self { mesh, server, app, edge, buyer })
    }

    fn host(&self, host: u8) -> IpAddr {
        self.mesh.loopback().host(host)
    }

    fn write(&self, policy: &str) {
        self.mesh.write_policy("ingress.toml", policy);
    }

    /// A connection of `caller` from `host`.
    async fn connect(&self, caller: Caller, host: u8) -> anyhow::Result<Http1Connection> {
        let port = if matches!(caller, Caller::Plain) { 14001 } else { 15003 };
        let stream = client::dial_from(self.host(host), self.server.socket(port)).await?;
        let (proxy_client, account) = match caller {
            Caller::Plain => return Http1Connection::over(stream).await,
            Caller::Nameless => {
                let roots = &self.edge.roots;
                let stream = tls::connect_over(stream, SNI, &[], None, roots).await?;
                return Http1Connection::over(stream).await;
            }
            Caller::Edge => (&self.edge, "default/edge"),
            Caller::Buyer => (&self.buyer, "default/buyer"),
        };
        let (chain, key) = proxy_client.service_certificate(account).await?;
        let identity = Some((chain.as_str(), key.as_str()));
        let stream =
            tls::connect_over(stream, SNI, &["http/1.1"], identity, &proxy_client.roots).await?;
        Http1Connection::over(stream).await
    }

    /// The response to `caller` for `path`.
    async fn get(&self, caller: Caller, host: u8, path: &str) -> anyhow::Result<Response> {
        let mut connection = self.connect(caller, host).await?;
        connection.request(Method::GET, path, &[("host", SNI)]).await
    }

    async fn wait_for(&self, caller: Caller, host: u8, status: u16) {
        eventually(&format!("{caller:?} from {host} to get {status}"), async || {
            ensure_status(&self.get(caller, host, "/books/1").await?, status)
        })
        .await;
    }

    async fn wait_until_rejected(&self, caller: Caller, host: u8) {
        eventually(&format!("{caller:?} from {host} to be rejected"), async || {
            match self.get(caller, host, "/books/1").await {
                Err(_) => Ok(()),
                Ok(answer) => Err(answer.status),
            }
        })
        .await;
    }
}

/// An ingress backend over HTTP for this address range, with further keys.
fn over_http(range: &str, more: &str) -> String {
    let source = format!("{{ kind = \"IPRange\", name = \"{range}\" }}");
    ingress("port = { number = 14001, protocol = \"http\" }", &source, more)
}

/// An ingress backend over HTTPS for this account, with further keys.
fn over_https(account: &str, more: &str) -> String {
    let name = format!("spiffe://mesh.internal/ns/default/sa/{account}");
    let source = format!("{{ kind = \"AuthenticatedPrincipal\", name = \"{name}\" }}");
    let tls = format!("tls = {{ sni_hosts = [\"{SNI}\"] }}");
    let backend = format!("port = {{ number = 14001, protocol = \"https\" }}, {tls}");
    ingress(&backend, &source, more)
}

/// A client with the enrollment of a proxy of `service` at host `host`.
async fn enroll_client(mesh: &Mesh, service: &str, host: u8) -> ProxyClient {
    let folder = mesh.bootstrap(&ProxyOptions::new(service, host)).await;
    ProxyClient::connect(&folder, mesh.xds()).await.unwrap()
}

fn ingress(backend: &str, sources: &str, more: &str) -> String {
    format!(
        "[[ingress_backend]]\nname = \"store\"\nbackends = [{{ name = \"store\", {backend} }}]\n\
         sources = [{sources}]\n{more}\n"
    )
}

// Scenario 15 of OSM's end-to-end tests.
#[tokio::test(flavor = "multi_thread")]
async fn ingress_allows_only_callers_named_by_policy() {
    let Some(store) = IngressMesh::open().await else { return };
    let range = format!("{}/32", store.host(31));
    for caller in [Caller::Plain, Caller::Edge, Caller::Buyer, Caller::Nameless] {
        store.get(caller, 31, "/books/1").await.unwrap_err();
    }

    store.write(&over_http(&range, ""));
    store.wait_for(Caller::Plain, 31, 200).await;
    // Callers from other addresses are disconnected, and no TLS is accepted.
    store.get(Caller::Plain, 32, "/books/1").await.unwrap_err();
    store.get(Caller::Edge, 31, "/books/1").await.unwrap_err();

    store.write(&over_https("edge", ""));
    store.wait_for(Caller::Edge, 31, 200).await;
    store.wait_until_rejected(Caller::Plain, 31).await;
    let rejected = store.get(Caller::Buyer, 31, "/books/1").await.unwrap();
    assert_eq!(rejected.status, 403);
    store.get(Caller::Nameless, 31, "/books/1").await.unwrap_err();

    // TLS without a client certificate, and only from the given addresses.
    let tls = format!("tls = {{ sni_hosts = [\"{SNI}\"], skip_client_cert_validation = true }}");
    let backend = format!("port = {{ number = 14001, protocol = \"https\" }}, {tls}");
    let source = format!("{{ kind = \"IPRange\", name = \"{range}\" }}");
    store.write(&ingress(&backend, &source, ""));
    store.wait_for(Caller::Nameless, 31, 200).await;
    store.get(Caller::Nameless, 32, "/books/1").await.unwrap_err();
    assert_eq!(store.app.requests(), 3);

    store.mesh.remove_policy("ingress.toml");
    store.wait_until_rejected(Caller::Nameless, 31).await;
    store.server.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ingress_matches_limit_external_callers() {
    let Some(store) = IngressMesh::open().await else { return };
    let matches = "matches = [{ kind = \"HTTPRouteGroup\", name = \"store\" }]";
    let range = format!("{}/32", store.host(31));
    let http = over_http(&range, matches).replace("\"store\"\nback", "\"by-http\"\nback");
    store.write(&format!("{}{http}", over_https("edge", matches)));
    for caller in [Caller::Edge, Caller::Plain] {
        store.wait_for(caller, 31, 200).await;
        for (method, path, status) in [
            (Method::GET, "/books", 200),
            (Method::GET, "/books/../books/2?x=/../admin", 200),
            (Method::GET, "/admin", 403),
            (Method::GET, "/books/../admin", 403),
            (Method::GET, "//books/./2", 200),
            (Method::GET, "/books/..;x/admin", 403),
            (Method::GET, "/books%2f..%2fadmin", 400),
            (Method::POST, "/books", 403),
        ] {
            let mut connection = store.connect(caller, 31).await.unwrap();
            let answer = connection.request(method.clone(), path, &[("host", SNI)]).await.unwrap();
            assert_eq!(answer.status, status, "{caller:?}: {method} {path}: {}", answer.text());
        }
    }
    // A change of the route group takes effect as well.
    let services = SERVICES.replace("/books(/.*)?$", "/magazines$");
    store.mesh.write_policy("services.toml", &services);
    store.wait_for(Caller::Edge, 31, 403).await;
    assert_eq!(store.get(Caller::Plain, 31, "/magazines").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn external_caller_cannot_forge_identity_or_control_the_proxy() {
    let Some(store) = IngressMesh::open().await else { return };
    let range = format!("{}/32", store.host(31));
    let http = over_http(&range, "").replace("\"store\"\nback", "\"by-http\"\nback");
    store.write(&format!("{}{http}", over_https("edge", "")));
    store.wait_for(Caller::Edge, 31, 200).await;
    store.wait_for(Caller::Plain, 31, 200).await;
    let edge = "spiffe://mesh.internal/ns/default/sa/edge";
    let forged = [
        ("host", SNI),
        ("x-forwarded-client-cert", "URI=spiffe://mesh.internal/ns/default/sa/buyer"),
        ("x-forwarded-for", "192.0.2.7, 10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-envoy-upstream-rq-timeout-ms", "1"),
        ("x-envoy-retry-on", "5xx"),
        ("x-envoy-max-retries", "100"),
        ("x-envoy-internal", "true"),
        ("x-envoy-original-path", "/admin"),
        ("x-envoy-decorator-operation", "nonsense"),
    ];
    for (caller, identity) in [(Caller::Edge, Some(edge)), (Caller::Plain, None)] {
        let mut connection = store.connect(caller, 31).await.unwrap();
        let answer = connection.request(Method::GET, "/books", &forged).await.unwrap();
        assert_eq!(answer.status, 200);
        // The proxy does not disclose itself.
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("x-envoy-")));
        let seen = answer.json()["headers"].clone();
        let shown = seen["x-forwarded-client-cert"].as_str();
        assert_eq!(shown.is_some(), identity.is_some(), "{seen:#}");
        if let (Some(shown), Some(identity)) = (shown, identity) {
            // The certificate has one DNS name of its own.
            assert!(
                shown.contains(&format!(";URI={identity};DNS=")) && !shown.contains("buyer"),
                "{shown}"
            );
        }
        // The edge is trusted for the headers of its own callers.
        assert_eq!(seen["x-forwarded-for"], "192.0.2.7, 10.0.0.1");
        assert_eq!(seen["x-forwarded-proto"], "https");
        let of_envoy = seen.as_object().unwrap().keys().filter(|name| name.starts_with("x-envoy-"));
        assert_eq!(of_envoy.collect::<Vec<_>>(), [""; 0], "{seen:#}");
    }
    // An SNI of the mesh admits no outside caller, and the ingress SNI admits no mesh caller by its
    // own grants: none exist.
    let (chain, key) = store.edge.service_certificate("default/edge").await.unwrap();
    for (sni, alpn) in [
        ("14001.store.default.mesh.internal", &["http/1.1"][..]),
        ("store.example.org", &["http/1.1"]),
    ] {
        let port = store.server.socket(15003);
        let dialled = tls::connect_mesh(port, sni, alpn, &chain, &key, &store.edge.roots).await;
        assert!(dialled.is_err(), "came in by {sni}");
    }
    let port = store.server.socket(15003);
    let mesh = "14001.store.default.mesh.internal";
    let stream =
        tls::connect_mesh(port, mesh, &["ironmesh"], &chain, &key, &store.edge.roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    // The edge may call through the ingress, and not as a mesh caller: no target names it.
    assert_eq!(connection.get("/books", "store").await.unwrap().status, 403);
    // HTTP/2, by ALPN.
    let stream =
        tls::connect_mesh(port, SNI, &["h2"], &chain, &key, &store.edge.roots).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut connection = Http2Connection::over(stream).await.unwrap();
    assert_eq!(connection.get("/books", SNI).await.unwrap().status, 200);
}

/// A second service on the same proxy, with ingress backends of both that share a listener with the
/// mesh's chains.
const SHARED_PROXY: &str = r#"
[[service]]
name = "stall"
ports = [
  { name = "web", port = 14001, protocol = "http", target_port = 8081 },
  { name = "more", port = 14002, protocol = "http", target_port = 8081 },
]

[[ingress_backend]]
name = "plain"
backends = [
  { name = "store", port = { number = 14001, protocol = "http", ingress_port = 8443 } },
  { name = "stall", port = { number = 14001, protocol = "http", ingress_port = 8443 } },
  { name = "stall", port = { number = 14002, protocol = "http", ingress_port = 8081 } },
]
sources = [{ kind = "IPRange", name = "127.0.0.0/8" }]

[[ingress_backend]]
name = "tls"
backends = [
  { name = "store", port = { number = 14001, protocol = "https" }, tls = { sni_hosts = ["store.example.com"] } },
  { name = "stall", port = { number = 14001, protocol = "https" }, tls = { sni_hosts = ["store.example.com"] } },
  { name = "stall", port = { number = 14002, protocol = "https" }, tls = { sni_hosts = ["14001.store.default.mesh.internal"] } },
]
sources = [{ kind = "AuthenticatedPrincipal", name = "spiffe://mesh.internal/ns/default/sa/edge" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_ingress_backends_are_reported_without_a_nack() {
    let Some(programs) = Programs::find() else { return };
    let policy = [("services.toml", SERVICES), ("ingress.toml", SHARED_PROXY)];
    let mesh = Mesh::start(&programs, &policy).await;
    let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let stall = App::http1("stall", mesh.loopback().socket(21, 8081)).await;
    let server = ProxyOptions::new("default/store", 21).with_service("default/stall");
    let server = mesh.envoy(&server).await;
    let edge = enroll_client(&mesh, "default/edge", 13).await;
    let (chain, key) = edge.service_certificate("default/edge").await.unwrap();
    let port = server.socket(15003);
    eventually("the first ingress backend to apply", async || {
        let stream = tls::connect_mesh(port, SNI, &[], &chain, &key, &edge.roots).await?;
        ensure_status(&Http1Connection::over(stream).await?.get("/", SNI).await?, 200)?;
        ensure_status(&get_once(server.socket(8443), "/", &[]).await?, 200)
    })
    .await;
    assert_eq!((store.requests() >= 2, stall.requests()), (true, 0));
    let status = mesh.run(&["status"]).await;
    let reported = String::from_utf8_lossy(&status.stdout);
    for (way, by) in [
        ("`default/stall|14001` by port 8443", "default/store|14001"),
        ("`default/stall|14002` by port 8081", "the machine"),
        ("`default/stall|14001` by `store.example.com`", "default/store|14001"),
        ("`default/stall|14002` by `14001.store.default.mesh.internal`", "the mesh"),
    ] {
        let words = format!("opens no ingress to {way}, which {by} uses there already");
        assert!(reported.contains(&words), "{words}\n{reported}");
    }
    server.assert_no_update_errors().await;
}
