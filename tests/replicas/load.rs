//! How proxies spread over control planes, each of which serves a limited number.

use ironmesh_tests::{App, Load, Mesh, ProxyOptions, REQUESTS_PER_FAULT, eventually, get_once};
use serde_json::Value;

use crate::replicas::{POLICY, Replicas, codes, json};

/// The finding of `/readyz` about refused proxies.
async fn limit_finding(mesh: &Mesh) -> Option<Value> {
    let readyz = mesh.readyz().await;
    let mut findings = readyz["findings"].as_array().unwrap().iter();
    findings.find(|finding| finding["code"] == "IM0721").cloned()
}

/// The number of proxies that are connected to a control plane.
async fn connected(mesh: &Mesh) -> usize {
    let proxies = mesh.proxies().await;
    proxies.as_array().unwrap().iter().filter(|proxy| proxy["streams"] == 1).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_beyond_the_limit_connects_to_a_different_control_plane() {
    // Each control plane advertises its own address first, and all bootstraps have both.
    let settings = "xds = { max_proxies = 2 }\n";
    let own_first = |addresses: &[std::net::SocketAddr], number: usize| {
        let mut advertised = addresses.to_vec();
        advertised.rotate_left(number);
        advertised
    };
    let Some(mut replicas) = Replicas::with_settings(2, settings, POLICY, own_first).await else {
        return;
    };
    let network = replicas.all[0].loopback();
    let _app = App::http1("store", network.socket(21, 8080)).await;
    // Each is ready once it has its configuration. The four of them take all places.
    let store = replicas.all[0].envoy(&ProxyOptions::new("default/store", 21)).await;
    let mut buyers = Vec::new();
    for host in 11..=13 {
        let buyer = ProxyOptions::new("default/buyer", host).upstream("default/store=14001");
        buyers.push(replicas.all[0].envoy(&buyer).await);
    }
    eventually("each control plane to serve two proxies", async || {
        let here = [connected(&replicas.all[0]).await, connected(&replicas.all[1]).await];
        anyhow::ensure!(here == [2, 2], "{here:?}");
        Ok(())
    })
    .await;
    for buyer in &buyers {
        eventually("the endpoint of the store", async || {
            let members = buyer.stat("cluster.default/store|80.membership_healthy").await;
            anyhow::ensure!(members == 1, "{members}");
            Ok(())
        })
        .await;
    }
    let load = Load::start(buyers[0].socket(14001), "store", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    // The proxies of the other one come here, and no place is free.
    replicas.all[1].kill_control_plane().await;
    let found = eventually("the error about refused proxies", async || {
        let found =
            limit_finding(&replicas.all[0]).await.ok_or_else(|| anyhow::anyhow!("no finding"))?;
        let message = found["message"].as_str().unwrap();
        anyhow::ensure!(message.contains("serves 2 proxies"), "{found:#}");
        Ok(found)
    })
    .await;
    assert_eq!(found["severity"], "error", "{found:#}");
    assert_eq!(connected(&replicas.all[0]).await, 2, "the others have kept their places");
    let status = replicas.all[0].run(&["status"]).await;
    assert!(!status.status.success(), "{status:?}");
    assert!(String::from_utf8_lossy(&status.stdout).contains("error[IM0721]"), "{status:?}");
    let metrics = get_once(replicas.all[0].admin(), "/metrics", &[]).await.unwrap().text();
    let name = "ironmesh_xds_streams_closed_total{reason=\"too_many_clients\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert_ne!(count, "0", "{metrics}");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    replicas.all[1].restart_control_plane().await;
    eventually("each control plane to serve two proxies again", async || {
        let here = [connected(&replicas.all[0]).await, connected(&replicas.all[1]).await];
        anyhow::ensure!(here == [2, 2], "{here:?}");
        let found = limit_finding(&replicas.all[0]).await;
        anyhow::ensure!(
            found.as_ref().is_none_or(|found| found["severity"] == "warning"),
            "{found:#?}"
        );
        Ok(())
    })
    .await;
    for mesh in &replicas.all {
        assert_eq!(peer_versions(mesh).await, [env!("CARGO_PKG_VERSION")]);
        let found = codes(mesh).await;
        let is_other = |code: &&String| ["IM0722", "IM0723"].contains(&code.as_str());
        assert_eq!(found.iter().find(is_other), None, "all know both addresses: {found:?}");
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    for envoy in buyers.iter().chain([&store]) {
        envoy.assert_no_update_errors().await;
    }
}

/// The versions of the other control planes.
async fn peer_versions(mesh: &Mesh) -> Vec<String> {
    eventually("the other control plane to be known", async || {
        let readyz = mesh.readyz().await;
        let peers = readyz["peers"].as_array().unwrap().iter();
        let versions: Vec<_> =
            peers.map(|peer| peer["version"].as_str().unwrap().to_owned()).collect();
        anyhow::ensure!(!versions.is_empty(), "{readyz:#}");
        Ok(versions)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_with_one_address_is_reported_by_its_control_plane() {
    let one_address = |addresses: &[std::net::SocketAddr], number: usize| vec![addresses[number]];
    let Some(replicas) = Replicas::start_with(2, POLICY, one_address).await else { return };
    let _store = replicas.all[0].envoy(&ProxyOptions::new("default/store", 21)).await;
    let name = json(&replicas.all[0], &["proxy", "list"]).await;
    let name = name[0]["name"].as_str().unwrap();
    let address = replicas.all[0].xds().to_string();
    eventually("the finding", async || {
        let readyz = replicas.all[0].readyz().await;
        let mut findings = readyz["findings"].as_array().unwrap().iter();
        let found = findings.find(|finding| finding["code"] == "IM0722");
        let found = found.ok_or_else(|| anyhow::anyhow!("{readyz:#}"))?;
        let message = found["message"].as_str().unwrap();
        anyhow::ensure!(message.contains(name) && message.contains(&address), "{message}");
        Ok(())
    })
    .await;
    assert!(!codes(&replicas.all[1]).await.contains(&"IM0722".to_owned()), "it has no proxy");
    let status = replicas.all[0].run(&["status"]).await;
    let text = String::from_utf8_lossy(&status.stdout);
    let peers = text.lines().find(|line| line.starts_with("peers ")).unwrap_or_default();
    assert!(peers.contains(concat!("(", env!("CARGO_PKG_VERSION"), ")")), "{text}");
}
