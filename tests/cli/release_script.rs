//! `examples/release/release.sh`, which the guide on releases quotes, without an Envoy.

use std::os::unix::fs::symlink;
use std::process::Command;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;

use crate::command::{Run, finish};
use crate::server::Server;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/release/release.sh");

/// A policy in which `buyer` calls `store`, whose cluster depends on `connections`.
fn policy(connections: u32) -> String {
    format!(
        "[[service]]\nname = \"store\"\nports = [{{ port = 80, protocol = \"tcp\" }}]\n\
         [[service]]\nname = \"buyer\"\n\
         [[tcp_route]]\nname = \"store\"\n\
         [[traffic_target]]\nname = \"store\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{{ name = \"buyer\" }}]\nrules = [{{ kind = \"TCPRoute\", name = \"store\" }}]\n\
         [[upstream_traffic_setting]]\nname = \"store\"\nservice = \"store\"\n\
         [upstream_traffic_setting.connection_settings.tcp]\nmax_connections = {connections}\n"
    )
}

/// The script with the folder `rules`, in which it finds this policy.
fn script(server: &Server, connections: u32, timeout: &str) -> Command {
    server.workspace.write("rules/a.toml", &policy(connections));
    let bin = server.workspace.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = server.workspace.command(&[]).get_program().to_owned();
    // It may exist already.
    let _ = symlink(program, bin.join("ironmesh"));
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command.args([SCRIPT, "rules"]).current_dir(server.workspace.path());
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.env("IRONMESH_CONFIG", "ironmesh.toml").env("RELEASE_TIMEOUT", timeout);
    command
}

fn release(server: &Server, connections: u32, timeout: &str) -> Run {
    finish(&mut script(server, connections, timeout))
}

async fn active_revision(server: &Server) -> String {
    server.readyz().await.json()["policy"]["revision"].as_str().unwrap().to_owned()
}

#[test]
fn guide_quotes_the_release_script() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let guide = fs::read_to_string(format!("{root}/docs/guides/release-policy.md")).unwrap();
    let script = fs::read_to_string(SCRIPT).unwrap();
    assert!(guide.contains(&format!("```sh\n{script}```")), "the guide differs from {SCRIPT}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_release_is_rolled_back_unless_it_is_superseded() {
    let Some(server) = Server::open_with_releases() else { return };
    let _child = server.start().await;
    for connections in [1, 2] {
        let run = release(&server, connections, "20s");
        assert_eq!(run.code, 0, "{run:?}");
    }
    let good = active_revision(&server).await;
    // A policy with errors changes nothing.
    server.workspace.write("rules/b.toml", "[[service]]\nnam = \"x\"\n");
    let run = release(&server, 3, "20s");
    assert_eq!(run.code, 3, "{run:?}");
    assert!(!run.stderr.contains("rolling back"), "{run:?}");
    fs::remove_file(server.workspace.path().join("rules/b.toml")).unwrap();

    // A proxy that ACKs nothing any more.
    let enroll = ["--service", "buyer", "--address", "127.1.0.1", "--out", "proxy"];
    let run = server.run(&[&["proxy", "bootstrap"][..], &enroll].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("proxy");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
    let node = Node { id: proxy.node_id.clone(), ..Node::default() };
    let _stream = proxy.nack(node, "no").await.unwrap();
    eventually("a proxy behind", async || {
        let run = server.run(&["policy", "wait", "--timeout", "0s"]);
        if run.code == 1 { Ok(()) } else { Err(run.stdout) }
    })
    .await;

    let run = release(&server, 4, "1s");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains(&format!("rolling back to {good}, unless")), "{run:?}");
    assert!(run.stdout.contains(&format!("revision {good} is active")), "{run:?}");
    assert_eq!(active_revision(&server).await, good);

    // Another operator releases while the script waits.
    let mut command = script(&server, 5, "60s");
    let waiting = std::thread::spawn(move || finish(&mut command));
    eventually("the release", async || match active_revision(&server).await {
        new if new != good => Ok(()),
        same => Err(same),
    })
    .await;
    server.workspace.write("rules/a.toml", &policy(6));
    let applied = server.json(&["policy", "apply", "rules"]);
    let run = waiting.join().unwrap();
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("is superseded") && run.stderr.contains("not rolled back: "));
    assert_eq!(active_revision(&server).await, applied["policy"]["revision"].as_str().unwrap());
}
