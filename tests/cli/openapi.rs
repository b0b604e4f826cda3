//! The OpenAPI document of the API, and the answers of a mesh in use.
//!
//! `schemathesis.rs` compares the rest of the API with it by generated requests, which seldom name an existing object.

use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::{Http1Connection, eventually, get_once};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::server::Server;

/// The document of the checkout.
pub(crate) fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi.json")
}

fn document() -> Value {
    serde_json::from_str(&fs::read_to_string(checked_in()).unwrap()).unwrap()
}

#[tokio::test]
async fn served_document_is_the_one_of_the_checkout() {
    let Some(server) = Server::open_with_releases() else { return };
    let _child = server.start().await;
    let served = get_once(server.loopback.socket(1, 15014), "/v1/openapi.json", &[]).await.unwrap();
    assert_eq!(served.status, 200);
    assert_eq!(served.json(), document(), "run `cargo xtask docs`");
}

#[tokio::test]
async fn questions_about_endpoints_get_503_without_an_active_policy() {
    let Some(server) = Server::open_with_releases() else { return };
    let _child = server.start().await;
    for path in ["/v1/endpoints", "/v1/endpoints/default/store", "/v1/traffic/default/store"] {
        let answer = get_once(server.loopback.socket(1, 15014), path, &[]).await.unwrap();
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
    }
}

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "till"
ports = [{ port = 90, protocol = "tcp" }]

[[http_route_group]]
name = "all"
matches = [{ name = "all", path_regex = "/.*", methods = ["*"] }]

[[traffic_target]]
name = "tills"
destination = { name = "store" }
sources = [{ name = "till" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// A mesh with objects of most kinds, in most states.
async fn use_mesh(server: &Server) {
    let bootstrap = |service: &str, address: &str, count: &str| {
        let arguments = ["proxy", "bootstrap", "--service", service, "--address", address];
        let run = server.run(&[&arguments[..], &["--count", count, "--out", service]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    };
    bootstrap("store", "127.1.0.1", "4");
    bootstrap("till", "127.1.0.9", "2");
    for arguments in [
        &["proxy", "cordon", "store-1", "--reason", "a new disk"][..],
        &["proxy", "drain", "store-2"],
        &["proxy", "revoke", "store-3", "--reason", "stolen"],
        &["proxy", "token", "--service", "store"],
        &["operator", "token", "ann", "--role", "viewer", "--expires", "1h"],
        &["operator", "token", "root", "--role", "admin", "--expires", "1h"],
        &["operator", "revoke", "ann", "--reason", "left"],
    ] {
        let run = server.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
    }
    // A finding, and a silence of it.
    server.workspace.write("policy/b.toml", "[[service]]\n");
    let silence = ["finding", "silence", "IM0725", "--for", "1h", "--reason", "a test"];
    eventually("the finding about the rejected policy", async || match server.run(&silence) {
        run if run.code == 0 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
}

#[tokio::test]
async fn answers_of_a_mesh_in_use_match_the_document() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    use_mesh(&server).await;
    let call = "question=%7B%22caller%22%3A%22till%22%2C%22service%22%3A%22store%22%7D";
    let document = document();
    let mut compared = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(operation) = methods.get("get") else { continue };
        let target = path
            .replace("{id}", "store-1")
            .replace("{namespace}/{name}", "default/store")
            .replace("{name}", "xds");
        let query = match path.as_str() {
            "/v1/explain" => format!("?{call}"),
            "/v1/events" => "?follow=false".to_owned(),
            _ => String::new(),
        };
        let socket = UnixStream::connect(server.state().join("admin.sock")).await.unwrap();
        let mut connection = Http1Connection::over(socket).await.unwrap();
        let answer = connection.get(&format!("{target}{query}"), "ironmesh").await.unwrap();
        let status = answer.status.as_u16().to_string();
        let content = &operation["responses"][&status]["content"];
        assert!(content.is_object(), "{path}: {status} is not in the document: {}", answer.text());
        let Some(schema) = content["application/json"].get("schema") else { continue };
        // References lead to the components of the whole document.
        let schema = json!({ "allOf": [schema], "components": document["components"] });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let problems: Vec<_> =
            validator.iter_errors(&answer.json()).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{path}: {problems:#?}\n{}", answer.text());
        if status == "200" {
            compared += 1;
        }
    }
    assert!(compared >= 20, "only {compared} answers had a body");
}
