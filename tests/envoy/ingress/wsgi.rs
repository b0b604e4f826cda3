//! A CGI-style application behind an ingress: it does not distinguish `x_…` from `x-…`.

use http::Method;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, Mesh, Programs, ProxyOptions, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{SERVICES, over_http};
use crate::bookstore::ensure_status;

/// Answers with its request headers under their CGI names.
const APPLICATION: &str = r#"
import json, sys
from wsgiref.simple_server import make_server

def application(environment, start):
    headers = {name: value for name, value in environment.items() if name.startswith("HTTP_X_")}
    body = json.dumps(headers).encode()
    start("200 OK", [("content-type", "application/json"), ("content-length", str(len(body)))])
    return [body]

make_server(sys.argv[1], int(sys.argv[2]), application).serve_forever()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn wsgi_application_receives_no_forged_identity() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
    let at = mesh.loopback().socket(21, 8080);
    let mut command = Command::new("python3");
    command.args(["-c", APPLICATION, &at.ip().to_string(), &at.port().to_string()]);
    let _application = Child::start("wsgiref", &mut command, &mesh.folder().join("wsgi.log"));
    let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    mesh.write_policy("ingress.toml", &over_http("127.0.0.0/8", ""));
    let name = "By=spiffe://mesh.internal/ns/default/sa/store;URI=spiffe://mesh.internal/ns/default/sa/buyer";
    let get = async |headers: &[(&str, &str)]| -> anyhow::Result<Value> {
        let mut connection = Http1Connection::connect(server.socket(14001)).await?;
        let all = [&[("host", "store.example.com")], headers].concat();
        let answer = connection.request(Method::GET, "/books/1", &all).await?;
        ensure_status(&answer, 200)?;
        Ok(answer.json())
    };
    // The headers that the application trusts, and those that a caller may set.
    let reported = eventually("the application", async || get(&[("x-tier", "gold")]).await).await;
    assert_eq!(reported["HTTP_X_TIER"], json!("gold"), "{reported}");
    for forged in [
        "x_forwarded_client_cert",
        "X_Forwarded_Client_Cert",
        "x-forwarded_client-cert",
        "x-forwarded-client-cert",
    ] {
        let reported = get(&[(forged, name), ("x_tier", "gold")]).await.unwrap();
        assert_eq!(reported.get("HTTP_X_FORWARDED_CLIENT_CERT"), None, "{forged}: {reported}");
        assert_eq!(reported.get("HTTP_X_TIER"), None, "{reported}");
    }
    let dropped = server.sum(r"dropped_headers_with_underscores$").await;
    assert!(dropped >= 7, "Envoy has dropped {dropped} headers");
}
