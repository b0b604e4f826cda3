//! Envoy's admin interface on a Unix socket: its owner, what other users may read, and that a hot
//! restart keeps it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http::Method;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Http1Connection, Mesh, Programs, ProxyOptions, Response, eventually};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::Command;

use crate::bookstore::ensure_status;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// Starts an Envoy of a hot restart epoch.
fn start(programs: &Programs, folder: &Path, epoch: u32) -> Child {
    let mut command = Command::new(&programs.envoy);
    command.arg("-c").arg(folder.join("envoy.yaml"));
    // Envoys of one hot restart share a base id.
    command.args(["--base-id", &(std::process::id() % 1_000_000).to_string()]);
    command.args(["--restart-epoch", &epoch.to_string(), "--concurrency", "1", "-l", "warning"]);
    command.args(["--drain-time-s", "1", "--parent-shutdown-time-s", "2"]);
    let log = folder.join(format!("envoy-{epoch}.log"));
    Child::start(&format!("envoy of epoch {epoch}"), &mut command, &log)
}

async fn get_by_socket(folder: &Path, path: &str) -> anyhow::Result<Response> {
    let socket = UnixStream::connect(folder.join("admin.sock")).await?;
    let mut connection = Http1Connection::over(socket).await?;
    connection.request(Method::GET, path, &[("host", "localhost")]).await
}

/// Waits until the Envoy of `epoch` answers on the socket.
async fn wait_for_epoch(folder: &Path, epoch: u32) {
    eventually(&format!("epoch {epoch} on the socket"), async || {
        let reported = get_by_socket(folder, "/server_info").await?.json();
        let is_new = reported.pointer("/command_line_options/restart_epoch") == Some(&epoch.into());
        anyhow::ensure!(is_new && reported.get("state") == Some(&"LIVE".into()), "{reported:#}");
        Ok(())
    })
    .await;
    let mode = fs_err::metadata(folder.join("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_socket_outlasts_a_hot_restart_and_others_read_only_metrics() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let folder = mesh.bootstrap(&ProxyOptions::new("default/store", 21).admin_socket()).await;
    let mut first = start(&programs, &folder, 0);
    wait_for_epoch(&folder, 0).await;
    assert_others_read_only_metrics(&mesh).await;

    let _second = start(&programs, &folder, 1);
    wait_for_epoch(&folder, 1).await;
    first.wait().await;
    wait_for_epoch(&folder, 1).await;
    assert_others_read_only_metrics(&mesh).await;
}

async fn assert_others_read_only_metrics(mesh: &Mesh) {
    let host = |port| mesh.loopback().socket(21, port);
    assert!(TcpStream::connect(host(15000)).await.is_err(), "the admin port is open");
    let ask = async |method: Method, path: &str| {
        let mut connection = Http1Connection::connect(host(15010)).await?;
        connection.request(method, path, &[("host", "localhost")]).await
    };
    eventually("the metrics", async || {
        let ready = ask(Method::GET, "/ready").await?;
        ensure_status(&ready, 200)?;
        let metrics = ask(Method::GET, "/stats/prometheus?usedonly").await?;
        ensure_status(&metrics, 200)?;
        anyhow::ensure!(metrics.text().contains("envoy_server_live"), "{}", metrics.text());
        anyhow::Ok(())
    })
    .await;
    // No agent runs.
    let agent = ask(Method::GET, "/agent/metrics").await.unwrap();
    assert_eq!(agent.status, 503, "{}", agent.text());
    for (method, path) in [
        (Method::POST, "/agent/metrics"),
        (Method::GET, "/agent/"),
        (Method::GET, "/config_dump"),
        (Method::GET, "/"),
        (Method::GET, "/stats"),
        (Method::GET, "/stats/prometheus/../../config_dump"),
        (Method::POST, "/stats/prometheus"),
        (Method::POST, "/ready"),
        (Method::POST, "/quitquitquit"),
    ] {
        let answer = ask(method.clone(), path).await.unwrap();
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
    }
}
