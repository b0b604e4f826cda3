//! Credentials, login links and sessions of operators hold at every control plane.

use fs_err as fs;
use http::Method;
use ironmesh_tests::operator::RemoteOperator;
use ironmesh_tests::tls::connect_over;
use ironmesh_tests::{Http1Connection, Mesh, Response, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::replicas::{Replicas, api, json};

const POLICY: &str = "[[service]]\nname = \"till\"\n";

async fn start() -> Option<Replicas> {
    Replicas::start_with(2, POLICY, |addresses, _| addresses.to_vec()).await
}

/// What a command that fails prints.
async fn failure(operator: &RemoteOperator, arguments: &[&str]) -> String {
    let output = operator.run(arguments).await;
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_reaches_the_control_plane_that_is_left() {
    let Some(mut replicas) = start().await else { return };
    let ann = RemoteOperator::new(&replicas.all[0], "ann", "operator").await;
    for stopped in [0, 1] {
        replicas.all[stopped].kill_control_plane().await;
        eventually("a command at the other control plane", async || {
            let output = ann.run(&["service", "list"]).await;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            anyhow::ensure!(output.status.success() && text.contains("till"), "{output:?}");
            Ok(())
        })
        .await;
        replicas.all[stopped].restart_control_plane().await;
    }

    // Revoked at one, the credential is rejected at each, also after an outage of etcd and a restart.
    let revoked = replicas.all[0].run(&["operator", "revoke", "ann", "--reason", "left"]).await;
    assert!(revoked.status.success(), "{revoked:?}");
    let server = api(&replicas.all[1]).to_string();
    eventually("the revocation at the other control plane", async || {
        let output = ann.run(&["service", "list", "--server", &server]).await;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(text.contains("revoked"), "{output:?}");
        Ok(())
    })
    .await;
    for member in 0..3 {
        replicas.etcd.kill(member).await;
    }
    replicas.all[1].restart_control_plane().await;
    let text = failure(&ann, &["service", "list", "--server", &server]).await;
    assert!(text.contains("revoked"), "{text}");
}

/// A request of a browser to a control plane.
async fn send(
    mesh: &Mesh,
    roots: &str,
    path: &str,
    cookie: &str,
    body: Option<&Value>,
) -> Response {
    let stream = TcpStream::connect(api(mesh)).await.unwrap();
    let stream = connect_over(stream, "control-plane.internal", &["http/1.1"], None, roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    let host = api(mesh).to_string();
    let origin = format!("https://{host}");
    let mut headers =
        vec![("host", &*host), ("origin", &*origin), ("content-type", "application/json")];
    headers.extend((!cookie.is_empty()).then_some(("cookie", cookie)));
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let body = body.map_or_else(Vec::new, |body| serde_json::to_vec(body).unwrap());
    connection.send(method, path, &headers, body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn login_link_gives_one_session_for_all_control_planes() {
    let Some(replicas) = start().await else { return };
    let [first, second] = [&replicas.all[0], &replicas.all[1]];
    let file = first.folder().join("ann.json");
    let token = ["operator", "token", "ann", "--role", "operator", "--out", file.to_str().unwrap()];
    json(first, &token).await;
    let credential: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let roots = credential["roots"].as_str().unwrap();
    let link = json(first, &["ui", "--role", "viewer"]).await;
    let (_, secret) = link["links"][0].as_str().unwrap().split_once('#').unwrap();
    let request = json!({ "link": secret });

    // Both at the same time, before either has seen the use at the other one: one of them gets the session.
    let log_in = async |mesh| send(mesh, roots, "/v1/login", "", Some(&request)).await;
    let (at_first, at_second) = tokio::join!(log_in(first), log_in(second));
    let granted: Vec<_> =
        [at_first, at_second].into_iter().filter(|one| one.status == 200).collect();
    assert_eq!(granted.len(), 1, "{granted:?}");
    let cookie = granted[0].headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let proxies = async |mesh| send(mesh, roots, "/v1/proxies", cookie, None).await;
    for mesh in [first, second] {
        let answer = proxies(mesh).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    let sessions = json(second, &["session", "revoke", link["id"].as_str().unwrap()]).await;
    assert_eq!(sessions["id"], link["id"], "{sessions:#}");
    for mesh in [second, first] {
        eventually("the end of the session", async || {
            let answer = proxies(mesh).await;
            anyhow::ensure!(answer.status == 401, "{}", answer.text());
            Ok(())
        })
        .await;
    }
}
