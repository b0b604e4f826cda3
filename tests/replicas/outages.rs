//! Control planes while etcd is down, and after it was put back to an older state.

use anyhow::Context as _;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{Mesh, ProxyOptions, eventually, get_once};
use rustix::process::Signal;

use crate::replicas::{POLICY, Replicas, codes};

#[tokio::test(flavor = "multi_thread")]
async fn outage_of_etcd_is_reported_and_ends_without_a_restart() {
    let Some(mut replicas) = Replicas::start(2).await else { return };
    let folder = replicas.enroll(0, "default/store", 21).await;
    for member in 0..3 {
        replicas.etcd.kill(member).await;
    }
    for mesh in &replicas.all {
        eventually("the outage to be reported", async || {
            let codes = codes(mesh).await;
            anyhow::ensure!(codes.contains(&"IM0706".to_owned()), "{codes:?}");
            Ok(())
        })
        .await;
        let status = mesh.run(&["status"]).await;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("the first service certificate expires at"), "{status}");
        // Alerts need both.
        for sample in ["ironmesh_mesh_findings", OUTAGE] {
            wait_for_metric(mesh, sample, |value| value > 0.0).await;
        }
        // A certificate that was never used cannot be claimed, but what is stored is served.
        assert_eq!(mesh.readyz().await["ready"], true);
    }
    let options = ["proxy", "bootstrap", "--service", "store", "--address", "127.0.0.9"];
    let output = replicas.all[1].run(&[&options[..], &["--out", "unused"]].concat()).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("etcd"), "{error}");

    // A control plane that starts meanwhile has the last good state.
    let restarted = &mut replicas.all[1];
    restarted.kill_control_plane().await;
    restarted.launch_control_plane(&[]);
    restarted.ready().await;
    assert_eq!(restarted.proxies().await.as_array().unwrap().len(), 1);

    for member in 0..3 {
        replicas.etcd.start_member(member);
    }
    replicas.etcd.ready().await;
    for mesh in &replicas.all {
        eventually("the outage to end", async || {
            let codes = codes(mesh).await;
            anyhow::ensure!(!codes.contains(&"IM0706".to_owned()), "{codes:?}");
            let client = ProxyClient::connect(&folder, mesh.xds()).await?;
            client.service_certificate("default/store").await.map(drop)
        })
        .await;
        wait_for_metric(mesh, OUTAGE, |value| value == 0.0).await;
    }
    replicas.enroll(1, "default/buyer", 31).await;
}

/// The metric of an outage of the store in etcd, in seconds.
const OUTAGE: &str = "ironmesh_store_outage_seconds{store=\"etcd\"}";

/// Waits until the value of a metric is as expected.
async fn wait_for_metric(mesh: &Mesh, sample: &str, is_it: impl Fn(f64) -> bool) {
    eventually(sample, async || {
        let text = get_once(mesh.admin(), "/metrics", &[]).await?.text();
        let mut values =
            text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        let value = values.find_map(|value| value.parse::<f64>().ok());
        anyhow::ensure!(value.is_some_and(&is_it), "{value:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_that_waits_for_etcd_at_its_start_ends_on_sigterm() {
    let Some(mut replicas) = Replicas::start(1).await else { return };
    let mesh = &mut replicas.all[0];
    mesh.stop().await;
    // They accept connections, and never answer.
    for member in 0..3 {
        replicas.etcd.signal(member, Signal::STOP);
    }
    mesh.launch_control_plane(&[]);
    mesh.handles_signals().await;
    mesh.signal_control_plane(Signal::TERM);
    mesh.ended().await;
    let log = mesh.log();
    assert!(log.contains("control plane stopped while it started"), "{log}");
}

/// A commit of the reconciler waits for an etcd that never answers, once. No push needs etcd.
#[tokio::test(flavor = "multi_thread")]
async fn policy_reaches_proxies_while_etcd_never_answers() {
    let Some(replicas) = Replicas::start(1).await else { return };
    let mesh = &replicas.all[0];
    let _buyer =
        mesh.envoy(&ProxyOptions::new("default/buyer", 31).upstream("default/store=14001")).await;
    let acked = async || -> anyhow::Result<String> {
        let proxies = mesh.proxies().await;
        let sync = &proxies[0]["sync"];
        anyhow::ensure!(sync["state"] == "synced", "{proxies}");
        Ok(sync["revision"].as_str().context("no revision")?.to_owned())
    };
    let before = eventually("the buyer to be synced", &acked).await;
    for member in 0..3 {
        replicas.etcd.signal(member, Signal::STOP);
    }
    let other = POLICY.replace(
        r#"matches = [{ name = "all" }]"#,
        r#"matches = [{ name = "all", methods = ["GET"] }]"#,
    );
    assert_ne!(other, POLICY);
    mesh.write_policy("p.toml", &other);
    eventually("the buyer to ACK the other policy", async || {
        let revision = acked().await?;
        anyhow::ensure!(revision != before, "{revision}");
        Ok(())
    })
    .await;
    eventually("the outage to be reported", async || {
        let codes = codes(mesh).await;
        anyhow::ensure!(codes.contains(&"IM0706".to_owned()), "{codes:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_with_another_key_does_not_start() {
    let Some(mut replicas) = Replicas::start(2).await else { return };
    let other = &mut replicas.all[1];
    other.stop().await;
    fs_err::write(crate::replicas::key(other), "00".repeat(32)).unwrap();
    let state = other.folder().join("state").join("local");
    fs_err::remove_dir_all(state).unwrap();
    let output = other.run(&["serve"]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{error}");
    assert!(error.contains("sealed with a different key-encryption key"), "{error}");
}
