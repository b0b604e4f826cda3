//! Disguised paths: none may reach an application that reads it as a path outside its grant.

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually, get_once, tls,
};

use crate::bookstore::{Bookstore, HOST};

/// A requested path, and the path that the application receives; `None` if denied.
const PATHS: [(&str, Option<&str>); 24] = [
    ("/books/1;edition=2", Some("/books/1;edition=2")),
    ("/books/1;edition=2/pages;from=3;to=4", Some("/books/1;edition=2/pages;from=3;to=4")),
    ("/books/1%3bedition=2", Some("/books/1%3bedition=2")),
    ("/books/...;x/.hidden;y", Some("/books/...;x/.hidden;y")),
    ("/books/1?back=/..;/admin", Some("/books/1?back=/..;/admin")),
    ("/books/../admin", None),
    ("/books/..;/admin", None),
    ("/books/..;", None),
    ("/books/%2e%2e;/admin", None),
    ("/books/.%2E;/admin", None),
    ("/books/%2e%2e;x=1/admin", None),
    ("/books/1/..;x=1/..;y=2/admin", None),
    ("/books/.;/..;/admin", None),
    ("/books/;/..;/..;/admin", None),
    ("/books/..%3b/admin", None),
    ("/books/%2e%2e%3Bx=1/admin", None),
    ("/books/.;/../admin", None),
    ("/books/.;a=/%2e%2e%3b/x", None),
    // Envoy removes plain `.` and `..` with their parameters; the rest is within the grant.
    ("/books/.;x/1", Some("/books/1")),
    ("/books/;/../admin", Some("/books/admin")),
    // Decoded once, this is the text `%2e%2e`, which is no `..`.
    ("/books/%252e%252e;/admin", Some("/books/%252e%252e;/admin")),
    // Envoy decodes once, and no overlong UTF-8: an application that decodes further leaves the
    // grant (docs/reference).
    ("/books/%252e%252e/admin", Some("/books/%252e%252e/admin")),
    ("/books/%c0%ae%c0%ae/admin", Some("/books/%c0%ae%c0%ae/admin")),
    ("/.;x/books/1", Some("/books/1")),
];

#[tokio::test(flavor = "multi_thread")]
async fn disguised_dot_segment_matches_no_grant() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    assert_answers(&store, &mut connection).await;
    store.assert_no_update_errors().await;
}

/// At the mesh port the path is normalized once, not twice, which leaves other disguises.
#[tokio::test(flavor = "multi_thread")]
async fn disguised_dot_segment_matches_no_grant_at_the_mesh_port() {
    let Some(store) = Bookstore::open().await else { return };
    let folder = store.mesh.bootstrap(&ProxyOptions::new("default/bookbuyer", 13)).await;
    let control_plane = store.mesh.xds();
    let buyer = ProxyClient::connect(&folder, control_plane).await.unwrap();
    let (chain, key) = buyer.service_certificate("default/bookbuyer").await.unwrap();
    let (sni, alpn) = ("14001.bookstore-v1.default.mesh.internal", ["ironmesh"]);
    let mesh_port = store.v1.socket(15003);
    let stream = tls::connect_mesh(mesh_port, sni, &alpn, &chain, &key, &buyer.roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    assert_answers(&store, &mut connection).await;
}

async fn assert_answers(store: &Bookstore, connection: &mut Http1Connection) {
    let mut wrong = Vec::new();
    for (path, expected) in PATHS {
        let before = store.requests_seen();
        let answer = connection.get(path, HOST).await.unwrap();
        let got = (answer.status == 200).then(|| {
            let reported = answer.json();
            reported.pointer("/path").and_then(|path| path.as_str()).unwrap().to_owned()
        });
        let is_right = match expected {
            Some(_) => got.as_deref() == expected,
            None => answer.status == 403 && store.requests_seen() == before,
        };
        if !is_right {
            wrong.push(format!("{path}: {} {got:?}, and not {expected:?}", answer.status));
        }
        if let Some(read) = got.map(|got| servlet_path(&got)) {
            assert!(read.starts_with("/books/"), "{path} is read as {read}");
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The path as a servlet container reads it: it decodes, removes path parameters, and then resolves
/// dots. Containers differ in the order of the first two; this is the most credulous.
fn servlet_path(path: &str) -> String {
    let path = path.split('?').next().unwrap().to_lowercase();
    let path = path.replace("%2e", ".").replace("%3b", ";").replace("%2f", "/");
    let mut segments = Vec::new();
    for segment in path.split('/').map(|segment| segment.split(';').next().unwrap()) {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// A service that keeps escaped slashes, and one that rejects them, behind the same listener of the
/// buyer.
fn projects(escaped_slashes: &str) -> String {
    format!(
        r#"
[[service]]
name = "projects"
escaped_slashes = "{escaped_slashes}"
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]

[[service]]
name = "books"
ports = [{{ name = "web", port = 80, protocol = "http", target_port = 8080 }}]

[[service]]
name = "buyer"

[[http_route_group]]
name = "projects"
matches = [{{ name = "one", path_regex = "/projects/[^/]+$" }}]

[[traffic_target]]
name = "projects"
destination = {{ name = "projects" }}
sources = [{{ name = "buyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "projects" }}]

[[traffic_target]]
name = "books"
destination = {{ name = "books" }}
sources = [{{ name = "buyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "projects" }}]
"#
    )
}

/// The buyer's request for `path`: the status, and the path at the application.
async fn request(
    buyer: &Envoy,
    port: u16,
    host: &str,
    path: &str,
) -> Result<(u16, String), String> {
    let answer = get_once(buyer.socket(port), path, &[("host", host)]).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let path = match answer.status.as_u16() {
        200 => answer.json().pointer("/path").and_then(|path| path.as_str()).unwrap().to_owned(),
        _ => String::new(),
    };
    Ok((answer.status.as_u16(), path))
}

#[tokio::test(flavor = "multi_thread")]
async fn escaped_slashes_reach_only_services_that_keep_them() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", &projects("keep"))]).await;
    let app = |name: &'static str, host| App::http1(name, mesh.loopback().socket(host, 8080));
    let _apps = (app("projects", 21).await, app("books", 22).await);
    let _projects = mesh.envoy(&ProxyOptions::new("default/projects", 21)).await;
    let _books = mesh.envoy(&ProxyOptions::new("default/books", 22)).await;
    let options = ProxyOptions::new("default/buyer", 11).upstream("default/projects:80=7080");
    let buyer = mesh.envoy(&options).await;
    let by_host = 15080;
    let answers = async |port, host: &str, path: &str, expected: (u16, &str)| {
        eventually(&format!("{path} of {host} by port {port}"), async || {
            let got = request(&buyer, port, host, path).await?;
            if (got.0, &*got.1) == expected { Ok(()) } else { Err(format!("{got:?}")) }
        })
        .await;
    };
    for port in [by_host, 7080] {
        for path in ["/projects/group%2Fname", "/projects/group%5cname", "/projects/group%2f"] {
            answers(port, "projects", path, (200, path)).await;
        }
        // No escape from the grant, neither for Envoy nor for an application that unescapes.
        for path in
            ["/projects/..%2fadmin", "/projects/%2e%2e%5Cadmin", "/projects/a%2F..%2f..%2fb"]
        {
            answers(port, "projects", path, (403, "")).await;
        }
        answers(port, "projects", "/projects/a%2fb/../c", (200, "/projects/c")).await;
    }
    answers(by_host, "books", "/projects/name", (200, "/projects/name")).await;
    for path in ["/projects/group%2Fname", "/projects/group%5cname", "/projects/..%2fadmin"] {
        answers(by_host, "books", path, (400, "")).await;
    }
    answers(by_host, "books", "/projects/name?of=a%2Fb", (200, "/projects/name?of=a%2Fb")).await;

    mesh.write_policy("policy.toml", &projects("reject"));
    for port in [by_host, 7080] {
        answers(port, "projects", "/projects/group%2Fname", (400, "")).await;
        answers(port, "projects", "/projects/name", (200, "/projects/name")).await;
    }
    buyer.assert_no_update_errors().await;
}
