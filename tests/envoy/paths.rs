//! Paths that are not what they seem: none may reach an application that reads it as something
//! outside its grant.

use ironmesh_tests::xds::Imposter;
use ironmesh_tests::{Http1Connection, ProxyOptions, tls};

use crate::bookstore::{Bookstore, HOST};

/// What is asked for, and the path at which the application gets it; `None` where it gets nothing.
const ASKED: [(&str, Option<&str>); 21] = [
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
    // Envoy takes plain `.` and `..` away, with their parameters; the rest lies within the grant.
    ("/books/.;x/1", Some("/books/1")),
    ("/books/;/../admin", Some("/books/admin")),
    // Decoded once this is the text `%2e%2e`, which is no `..`.
    ("/books/%252e%252e;/admin", Some("/books/%252e%252e;/admin")),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_disguised_dot_segment_passes_no_grant_on_a_path() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local()).await.unwrap();
    assert_answers(&store, &mut connection).await;
    store.assert_calm().await;
}

/// There the path is normalized once and not twice, which leaves other disguises.
#[tokio::test(flavor = "multi_thread")]
async fn a_disguised_dot_segment_passes_no_grant_at_the_mesh_port_either() {
    let Some(store) = Bookstore::open().await else { return };
    let folder = store.mesh.bootstrap(&ProxyOptions::new("default/bookbuyer", 13)).await;
    let control_plane = store.mesh.xds();
    let buyer = Imposter::connect(&folder, control_plane).await.unwrap();
    let (chain, key) = buyer.service_certificate("default/bookbuyer").await.unwrap();
    let (sni, alpn) = ("14001.bookstore-v1.default.mesh.internal", ["ironmesh"]);
    let mesh_port = store.v1.socket(15003);
    let stream = tls::connect_mesh(mesh_port, sni, &alpn, &chain, &key, &buyer.roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    assert_answers(&store, &mut connection).await;
}

async fn assert_answers(store: &Bookstore, connection: &mut Http1Connection) {
    let mut wrong = Vec::new();
    for (path, expected) in ASKED {
        let before = store.seen();
        let answer = connection.get(path, HOST).await.unwrap();
        let got = (answer.status == 200).then(|| {
            let told = answer.json();
            told.pointer("/path").and_then(|path| path.as_str()).unwrap().to_owned()
        });
        let is_right = match expected {
            Some(_) => got.as_deref() == expected,
            None => answer.status == 403 && store.seen() == before,
        };
        if !is_right {
            wrong.push(format!("{path}: {} {got:?}, and not {expected:?}", answer.status));
        }
        if let Some(read) = got.map(|got| as_a_servlet_container_reads(&got)) {
            assert!(read.starts_with("/books/"), "{path} is read as {read}");
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Decodes what matters here, takes path parameters off, and only then resolves dots. Containers
/// differ in the order of the first two; this is the most credulous.
fn as_a_servlet_container_reads(path: &str) -> String {
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
