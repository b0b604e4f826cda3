//! All proxies reconnect at once, repeatedly.

use std::net::SocketAddr;
use std::path::PathBuf;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::xds::ProxyClient;
use tokio::task::{JoinSet, LocalSet};

use crate::server::{Server, files};

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ name = \"web\", port = 80, protocol = \"http\" }]\n";

/// The number of proxies.
const COUNT: &str = "50";

/// Connects all proxies, each until it has its certificate, and disconnects them together. A
/// runtime of their own closes all connections at once.
async fn storm(server: &Server) {
    let xds = server.loopback.socket(1, 15128);
    let out = server.workspace.path().join("proxies");
    let storm = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let proxies = files(&out).into_iter().map(|name| out.join(name));
        LocalSet::new().block_on(&runtime, async {
            let mut come = JoinSet::new();
            for proxy in proxies {
                come.spawn_local(connect(proxy, xds));
            }
            come.join_all().await.len()
        })
    };
    let count = tokio::task::spawn_blocking(storm).await.unwrap();
    assert_eq!(count.to_string(), COUNT);
}

async fn connect(folder: PathBuf, xds: SocketAddr) -> ProxyClient {
    // The server may not have noticed the end of earlier connections.
    eventually("the stream to be accepted", async || {
        let proxy = ProxyClient::connect(&folder, xds).await?;
        proxy.service_certificate("default/store").await?;
        anyhow::Ok(proxy)
    })
    .await
}

/// The resident memory of a process in KiB.
fn memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A45, A47: the server keeps nothing of ended connections.
#[tokio::test]
async fn memory_does_not_grow_with_reconnect_storms() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let mut child = server.start().await;
    server.ready().await;
    let join = ["proxy", "bootstrap", "--service", "store", "--address", "127.64.255.1"];
    let run = server.run(&[&join[..], &["--count", COUNT, "--out", "proxies"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    for _ in 0..10 {
        storm(&server).await;
    }
    let few = memory_kib(child.id().unwrap());
    for _ in 0..20 {
        storm(&server).await;
    }
    let many = memory_kib(child.id().unwrap());
    // A thousand connections have come and gone. Memory grows a little at first, with the layout of
    // allocations, and then no more: after 50 storms it is the same as after 100.
    assert!(many <= few + few / 4, "{few} KiB after 10 storms, {many} KiB after 30");
    assert!(child.terminate().await.success());
}
