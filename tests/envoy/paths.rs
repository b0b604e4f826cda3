//! Paths that are not what they seem: none may reach an application that reads it as something
//! outside its grant.

use crate::bookstore::Bookstore;

/// What is asked for, and the path at which the application gets it; `None` where the sidecars refuse.
const ASKED: [(&str, Option<&str>); 20] = [
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
    ("/books/.;x/1", None),
    // Envoy itself takes the plain `..` away, and what is left lies within the grant.
    ("/books/.;/../admin", Some("/books/admin")),
    ("/books/;/../admin", Some("/books/admin")),
    // Decoded once this is the text `%2e%2e`, which is no `..`.
    ("/books/%252e%252e;/admin", Some("/books/%252e%252e;/admin")),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_disguised_dot_segment_never_passes_a_grant_on_a_path() {
    let Some(store) = Bookstore::open().await else { return };
    let mut wrong = Vec::new();
    for (path, expected) in ASKED {
        let before = store.seen();
        let answer = store.buy(path).await.unwrap();
        let got =
            (answer.status == 200).then(|| answer.json()["path"].as_str().unwrap().to_owned());
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
    store.assert_calm().await;
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
