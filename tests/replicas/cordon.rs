//! A cordon that is made at one of several control planes.

use ironmesh_tests::{App, Envoy, Load, ProxyOptions, REQUESTS_PER_FAULT, eventually};
use serde_json::Value;

use crate::replicas::{POLICY, Replicas, json};

async fn wait_for_members(buyer: &Envoy, expected: u64) {
    eventually("the healthy endpoints of the store", async || {
        let members = buyer.stat("cluster.default/store|80.membership_healthy").await;
        anyhow::ensure!(members == expected, "{members}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cordon_at_one_control_plane_reaches_callers_of_another() {
    // Each proxy knows its own control plane alone.
    let own = |addresses: &[std::net::SocketAddr], number: usize| vec![addresses[number]];
    let Some(mut replicas) = Replicas::start_with(2, POLICY, own).await else { return };
    let (mut stores, mut buyers, mut apps) = (Vec::new(), Vec::new(), Vec::new());
    for mesh in &replicas.all {
        apps.push(App::http1("store", mesh.loopback().socket(21, 8080)).await);
        stores.push(mesh.envoy(&ProxyOptions::new("default/store", 21)).await);
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
        buyers.push(mesh.envoy(&buyer).await);
    }
    for buyer in &buyers {
        wait_for_members(buyer, 2).await;
    }
    let loads: Vec<_> =
        buyers.iter().map(|buyer| Load::start(buyer.socket(14001), "store", "/")).collect();
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }

    // The proxy is connected to the first control plane, and the operator asks the second one.
    let cordoned = json(&replicas.all[1], &["proxy", "cordon", "store-1", "--reason", "r"]).await;
    assert_eq!((&cordoned["acked"], &cordoned["connected"]), (&true.into(), &true.into()));
    let healthy = async || {
        let mut all = Vec::new();
        for buyer in &buyers {
            all.push(buyer.stat("cluster.default/store|80.membership_healthy").await);
        }
        all
    };
    assert_eq!(healthy().await, [1, 1], "callers of both have it when the command ends");
    for load in &loads {
        load.wait_for_requests(50).await;
    }
    let before = apps[0].requests();
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }
    assert_eq!(apps[0].requests(), before);
    for mesh in &replicas.all {
        eventually("each control plane to show it", async || {
            let shown = json(mesh, &["proxy", "show", "store-1"]).await;
            anyhow::ensure!(shown["cordon"]["reason"] == "r", "{shown:#}");
            anyhow::ensure!(shown["versions"]["envoy"].is_string(), "{shown:#}");
            let versions = json(mesh, &["proxy", "versions"]).await;
            anyhow::ensure!(versions["envoy"]["versions"][0]["count"] == 4, "{versions:#}");
            Ok(())
        })
        .await;
    }
    let both = [
        json(&replicas.all[0], &["proxy", "versions"]).await,
        json(&replicas.all[1], &["proxy", "versions"]).await,
    ];
    assert_eq!(both[0], both[1]);

    // It outlives the control plane that made it.
    replicas.all[1].restart_control_plane().await;
    for load in &loads {
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }
    assert_eq!((apps[0].requests(), healthy().await), (before, vec![1, 1]));
    json(&replicas.all[0], &["proxy", "uncordon", "store-1"]).await;
    for buyer in &buyers {
        wait_for_members(buyer, 2).await;
    }
    for load in loads {
        load.finish().await.assert_undisturbed();
    }

    // A caller of the other control plane that hangs: that control plane is named.
    buyers[0].freeze();
    let arguments = ["proxy", "cordon", "store-1", "--output", "json"];
    let output = replicas.all[1].run(&arguments).await;
    buyers[0].thaw();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["acked"], false, "{result:#}");
    assert_eq!(result["pending_control_planes"].as_array().unwrap().len(), 1, "{result:#}");
    for buyer in &buyers {
        wait_for_members(buyer, 1).await;
        buyer.assert_no_update_errors().await;
    }
}
