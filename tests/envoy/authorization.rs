//! HTTP authorization by the server's sidecar: by method, path, header and host, in any order of
//! policy objects.

use ironmesh_tests::{App, Envoy, Mesh, Programs, ProxyOptions, eventually, get_once};

use crate::bookstore::{ensure_status, wait_for_endpoint};

/// Two clients with overlapping grants: the wider one would hide the narrower if routes decided.
const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "anna"

[[service]]
name = "ben"

[[http_route_group]]
name = "store"
[[http_route_group.matches]]
name = "all"
path_regex = "/osm.*"
[[http_route_group.matches]]
name = "root"
path_regex = "/$"
[[http_route_group.matches]]
name = "exact"
path_regex = "/osm$"
methods = ["GET"]
[[http_route_group.matches]]
name = "vip"
path_regex = "/vip"
headers = { x-tier = "gold|silver" }
[[http_route_group.matches]]
name = "at-home"
path_regex = "/home"
headers = { host = "store\\.example" }

[[traffic_target]]
name = "a-wide"
destination = { name = "store" }
sources = [{ name = "anna" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["all", "root"] }]

[[traffic_target]]
name = "b-narrow"
destination = { name = "store" }
sources = [{ name = "ben" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["exact", "vip", "at-home"] }]
"#;

/// A caller, a method, a path, a further header, and the expected status.
type Request = (&'static str, &'static str, &'static str, (&'static str, &'static str), u16);

const REQUESTS: [Request; 24] = [
    ("anna", "GET", "/osm", NONE, 200),
    ("anna", "GET", "/osm/deep", NONE, 200),
    ("anna", "POST", "/osm", NONE, 200),
    ("anna", "GET", "/vip", ("x-tier", "gold"), 403),
    ("ben", "GET", "/osm", NONE, 200),
    ("ben", "GET", "/osm?page=1", NONE, 200),
    ("ben", "GET", "/osm/deep", NONE, 403),
    ("ben", "POST", "/osm", NONE, 403),
    ("ben", "GET", "/vip", ("x-tier", "gold"), 200),
    ("ben", "DELETE", "/vip/lounge", ("x-tier", "silver"), 200),
    ("ben", "GET", "/vip", ("x-tier", "golden"), 403),
    ("ben", "GET", "/vip", ("x-tier", "lead"), 403),
    ("ben", "GET", "/vip", NONE, 403),
    ("ben", "GET", "/no/vip", ("x-tier", "gold"), 403),
    ("ben", "GET", "/home", NONE, 403),
    // Claims of a caller about its identity have no effect.
    ("ben", "GET", "/osm/deep", FORGED, 403),
    ("ben", "GET", "/", NONE, 403),
    ("anna", "GET", "/", NONE, 200),
    // Envoy merges slashes within a path, and leaves a path of only slashes unchanged.
    ("anna", "GET", "//", NONE, 403),
    ("anna", "GET", "//osm//deep", NONE, 200),
    ("anna", "GET", "/OSM", NONE, 403),
    ("anna", "GET", "/x/../osm", NONE, 200),
    ("ben", "GET", "//osm", NONE, 200),
    ("ben", "GET", "/osm%2Fdeep", NONE, 400),
];
const NONE: (&str, &str) = ("x-nothing", "here");
const FORGED: (&str, &str) =
    ("x-forwarded-client-cert", "URI=spiffe://mesh.internal/ns/default/sa/anna");

struct AuthorizationMesh {
    mesh: Mesh,
    anna: Envoy,
    ben: Envoy,
    _server: Envoy,
    _app: App,
}

impl AuthorizationMesh {
    async fn open() -> Option<Self> {
        let mesh = Mesh::start(&Programs::find()?, &[("policy.toml", POLICY)]).await;
        let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
        let caller = |name: &str, host| {
            ProxyOptions::new(&format!("default/{name}"), host).upstream("default/store=8000")
        };
        let anna = mesh.envoy(&caller("anna", 11)).await;
        let ben = mesh.envoy(&caller("ben", 12)).await;
        for caller in [&anna, &ben] {
            wait_for_endpoint(caller, "default/store|80").await;
        }
        Some(Self { mesh, anna, ben, _server: server, _app: app })
    }
}

/// SMI 5, SMI 6, OSM 14.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_grants_allow_each_caller_only_its_requests() {
    let Some(store) = AuthorizationMesh::open().await else { return };
    for (who, method, path, header, status) in REQUESTS {
        let caller = if who == "anna" { &store.anna } else { &store.ben };
        let mut connection =
            ironmesh_tests::Http1Connection::connect(caller.socket(8000)).await.unwrap();
        let answer = connection
            .request(method.parse().unwrap(), path, &[("host", "store"), header])
            .await
            .unwrap();
        let requested = format!("{who}: {method} {path} {header:?}");
        assert_eq!(answer.status, status, "{requested}: {}", answer.text());
    }
    store.ben.assert_no_update_errors().await;
}

/// SMI 6.
#[tokio::test(flavor = "multi_thread")]
async fn host_expression_ignores_case_and_port() {
    let Some(store) = AuthorizationMesh::open().await else { return };
    // Through an upstream port the host is the service's, so the policy names that host.
    let policy = POLICY.replace(r"store\\.example", r"STORE\\.default\\.mesh\\.internal");
    store.mesh.write_policy("policy.toml", &policy);
    eventually("the new host to be granted", async || {
        ensure_status(&get_once(store.ben.socket(8000), "/home", &[]).await?, 200)
    })
    .await;
    let by_host = store.ben.socket(15080);
    for (host, status) in [
        ("store.default.mesh.internal", 200),
        ("STORE.default.mesh.internal:80", 200),
        ("store.default", 403),
        ("store.default.mesh.internal.evil", 404),
    ] {
        let answer = get_once(by_host, "/home", &[("host", host)]).await.unwrap();
        assert_eq!(answer.status, status, "{host}: {}", answer.text());
    }
}
