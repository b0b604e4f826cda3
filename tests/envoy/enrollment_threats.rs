//! Copied certificates, and a flood of the enrollment port, beside real Envoys.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::{Envoy, Load, Mesh, Programs, REQUESTS_PER_FAULT, eventually, get_once};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bookstore::{Bookstore, HOST, SERVICES, buyers};
use crate::enrollment::{is_connected, join, text};
use crate::renewal::{install_pair, proxy_serial};

/// The host number of the enrolled machine.
const MACHINE: u8 = 14;

/// The connections of the flood that are open at once, and the most of all.
const FLOODING: usize = 64;
const MOST_CONNECTIONS: usize = 20_000;

/// The codes of the findings in status.
async fn codes(mesh: &Mesh) -> Vec<String> {
    let readiness = mesh.readyz().await;
    let findings = readiness.get("findings").and_then(Value::as_array);
    let codes = findings.into_iter().flatten().filter_map(|finding| finding.get("code")?.as_str());
    codes.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_with_a_replaced_certificate_is_rejected_with_an_alarm() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
    let folder = mesh.folder().join("enrolled");
    let (out, address) = (folder.to_str().unwrap(), mesh.loopback().host(MACHINE));
    join(&mesh, out, &address.to_string()).await;
    let [old, new] = ["old", "new"].map(|name| mesh.folder().join(name));
    for kept in [&old, &new] {
        fs::create_dir(kept).unwrap();
    }
    install_pair(&folder, &old);
    let mut serials = Vec::new();
    let envoy = Envoy::start(&programs.envoy, "buyer", &folder, address, 30).await;
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;
    for _ in 0..2 {
        serials.push(proxy_serial(&envoy).await);
        text(&mesh.run_on_machine(&["proxy", "bootstrap", "--renew", out, "--force"]).await);
        eventually("another certificate", async || match proxy_serial(&envoy).await {
            serial if !serials.contains(&serial) => Ok(()),
            serial => Err(serial),
        })
        .await;
    }
    install_pair(&folder, &new);
    mesh.restart_control_plane().await;
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;
    assert!(!codes(&mesh).await.contains(&"IM0742".to_owned()));

    install_pair(&old, &folder);
    eventually("the old certificate", async || match proxy_serial(&envoy).await {
        serial if serial == serials[0] => Ok(()),
        serial => Err(serial),
    })
    .await;
    mesh.restart_control_plane().await;
    eventually("the alarm", async || match codes(&mesh).await {
        codes if codes.iter().any(|code| code == "IM0742") => Ok(()),
        codes => Err(codes.join(" ")),
    })
    .await;
    // The line is written when the stream ends, after the alarm.
    eventually("the line about the copy", async || match mesh.log() {
        log if log.contains("is an old copy") => Ok(()),
        log => Err(log),
    })
    .await;
    // Envoy notices the end of its stream some time after the alarm.
    eventually("the end of the stream", async || match is_connected(&envoy).await {
        Ok(()) => Err("connected"),
        Err(_) => Ok(()),
    })
    .await;
    eventually("the entry in the journal", async || {
        let journal = mesh.run(&["journal", "--kind", "claim"]).await;
        let journal = text(&journal);
        if journal.contains("old copy") { Ok(()) } else { Err(journal) }
    })
    .await;

    install_pair(&new, &folder);
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;
}

/// Opens connections to `to` from an address of its own, sends what is no handshake, and waits until they end.
async fn flood(to: SocketAddr, from: IpAddr, count: usize) {
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        let Ok(mut stream) = socket.connect(to).await else { continue };
        // The control plane may close it before.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        let _ = timeout(Duration::from_secs(1), stream.read(&mut [0; 64])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_the_enrollment_port_stops_neither_pushes_nor_renewals() {
    let Some(store) = Bookstore::open().await else { return };
    let folder = store.mesh.folder().join("enrolled");
    let (out, address) = (folder.to_str().unwrap(), store.mesh.loopback().host(MACHINE));
    join(&store.mesh, out, &address.to_string()).await;
    let load = Load::start(store.local_address(), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let to = store.mesh.loopback().socket(1, 15129);
    let from = IpAddr::from(Ipv4Addr::new(127, 66, 66, 66));
    let mut flooding = JoinSet::new();
    for _ in 0..FLOODING {
        flooding.spawn(flood(to, from, MOST_CONNECTIONS / FLOODING));
    }
    eventually("blocked connections", async || {
        let metrics = get_once(store.mesh.admin(), "/metrics", &[]).await?.text();
        let blocked = "ironmesh_enrollment_connections_lost_total{reason=\"blocked\"}";
        let count = metrics.lines().find_map(|line| line.strip_prefix(blocked));
        let count = count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default();
        anyhow::ensure!(count > 100, "{count}");
        Ok(())
    })
    .await;
    store.mesh.write_policy("buyers.toml", &buyers("/.*"));
    eventually("the new policy", async || {
        let answer = get_once(store.local_address(), "/other", &[("host", HOST)]).await?;
        anyhow::ensure!(answer.status != 403, "{}", answer.status);
        Ok(())
    })
    .await;
    let renew = ["proxy", "bootstrap", "--renew", out, "--force"];
    text(&store.mesh.run_on_machine(&renew).await);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert!(!flooding.is_empty(), "the flood lasts");
    flooding.abort_all();
    load.finish().await.assert_undisturbed();
    store.assert_no_update_errors().await;
}
