//! `ironmesh serve` and the limit of open files.

use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::server::Server;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ name = \"web\", port = 80, protocol = \"http\" }]\n";

/// Starts `serve` with these limits of open files, and waits until it is ready.
pub(crate) async fn serve(server: &Server, soft: u64, hard: u64) -> Child {
    server.workspace.write("policy/services.toml", POLICY);
    let serve = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    let mut command = Command::new("sh");
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(serve.get_program()).args(serve.get_args());
    command.current_dir(server.workspace.path());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let child = Child::start("ironmesh serve", &mut command, &log(server));
    eventually("readiness", async || {
        let answer =
            ironmesh_tests::get_once(server.loopback.socket(1, 15014), "/readyz", &[]).await?;
        anyhow::ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .await;
    child
}

fn log(server: &Server) -> std::path::PathBuf {
    server.workspace.path().join("serve.log")
}

/// The number of log lines with these words.
fn count_in_log(server: &Server, words: &str) -> usize {
    fs_err::read_to_string(log(server)).unwrap().matches(words).count()
}

/// A64.
#[tokio::test]
async fn open_files_limit_is_raised_and_reported_if_too_low() {
    let Some(server) = Server::open("") else { return };
    let mut child = serve(&server, 100, 1000).await;
    let limits = fs_err::read_to_string(format!("/proc/{}/limits", child.id().unwrap())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["1000", "1000"]);
    for part in
        ["open_files=1000", "possible_connections=744", "connection_limit=20000", "LimitNOFILE="]
    {
        assert_eq!(count_in_log(&server, part), 1, "{part}: {}", child.log_tail());
    }
    assert!(child.terminate().await.success());
}

/// A64 (bystander): open streams stay, and once there is room, others connect.
#[tokio::test]
async fn exhausted_file_descriptors_delay_only_new_streams() {
    let Some(server) = Server::open("") else { return };
    let mut child = serve(&server, 100, 100).await;
    let out = server.workspace.path().join("proxy");
    let arguments = ["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.1"];
    let run = server.run(&[&arguments[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let xds = server.loopback.socket(1, 15128);
    let old = ProxyClient::connect(&out, xds).await.unwrap();
    old.service_certificate("default/store").await.unwrap();

    let mut crowd = Vec::new();
    eventually("no file to be left", async || {
        crowd.push(TcpStream::connect(xds).await.unwrap());
        match count_in_log(&server, "cannot accept xDS connections") {
            0 => Err(format!("{} connections are there", crowd.len())),
            _ => Ok(()),
        }
    })
    .await;
    // Silent connections are closed after 10 s. Until then the open connection can have another
    // stream.
    for _ in 0..10 {
        old.service_certificate("default/store").await.unwrap();
    }
    assert_eq!(count_in_log(&server, "cannot accept xDS connections"), 1, "{}", child.log_tail());
    drop(crowd);
    let node = Node { id: old.node_id.clone(), ..Node::default() };
    eventually("another connection", async || {
        let new = ProxyClient::connect(&out, xds).await?;
        anyhow::Ok(new.request_secret(node.clone(), "service-cert:default/store").await?)
    })
    .await;
    assert_eq!(
        count_in_log(&server, "xDS connections are accepted again"),
        1,
        "{}",
        child.log_tail()
    );
    assert!(child.terminate().await.success());
}
