//! What one control plane stores, the others use: enrollments, revocations, certificates, the journal.

use std::path::Path;

use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{App, Envoy, Load, Mesh, ProxyOptions, REQUESTS_PER_FAULT, eventually};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;

use crate::replicas::{POLICY, Replicas, json};

/// Waits until each control plane knows where each of this many proxies is connected: one of them has its stream.
async fn wait_for_connections(replicas: &Replicas, count: usize) {
    eventually("each connection to be known to all", async || {
        let mut here = 0;
        for mesh in &replicas.all {
            let proxies = mesh.proxies().await;
            for proxy in proxies.as_array().unwrap() {
                let is_here = proxy["streams"] == 1 && proxy["sync"]["state"] == "synced";
                let is_elsewhere = proxy["control_plane"].is_string() && proxy["sync"].is_null();
                here += usize::from(is_here);
                let is_known = proxy["state"] == "connected" && (is_here || is_elsewhere);
                anyhow::ensure!(is_known, "{proxies:#}");
            }
        }
        anyhow::ensure!(here == count, "{here} connections");
        Ok(())
    })
    .await;
}

/// Whether a control plane accepts the certificate in this folder.
async fn is_accepted(mesh: &Mesh, folder: &Path) -> anyhow::Result<()> {
    let client = ProxyClient::connect(folder, mesh.xds()).await?;
    client.service_certificate("default/store").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollment_and_revocation_hold_at_every_control_plane() {
    let Some(replicas) = Replicas::start(3).await else { return };
    let folder = replicas.enroll(0, "default/store", 21).await;
    eventually("the proxy to be listed by all", async || {
        for mesh in &replicas.all {
            anyhow::ensure!(mesh.proxies().await.as_array().unwrap().len() == 1);
        }
        Ok(())
    })
    .await;
    is_accepted(&replicas.all[1], &folder).await.unwrap();
    eventually("the claim to reach the first control plane", async || {
        let proxies = json(&replicas.all[0], &["proxy", "list"]).await;
        anyhow::ensure!(proxies[0]["claimed_at"].is_string(), "{proxies:#}");
        Ok(())
    })
    .await;

    // A stream that is open at a different control plane ends, too.
    let client = ProxyClient::connect(&folder, replicas.all[1].xds()).await.unwrap();
    let node = Node { id: client.node_id.clone(), ..Node::default() };
    let mut stream = client.nack(node, "it stays open").await.unwrap();
    let id = replicas.all[0].proxies().await[0]["id"].as_str().unwrap().to_owned();
    json(&replicas.all[2], &["proxy", "revoke", &id, "--reason", "stolen"]).await;
    let ended = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                ended => return ended.err(),
            }
        }
    };
    let ended = tokio::time::timeout(patience(), ended).await.expect("the stream ends");
    let reason = ended.map(|status| status.message().to_owned()).unwrap_or_default();
    assert!(reason.contains("stolen"), "{reason}");
    for mesh in &replicas.all {
        eventually("the revoked proxy to be rejected", async || {
            match is_accepted(mesh, &folder).await {
                Ok(()) => Err("it is accepted"),
                Err(_) => Ok(()),
            }
        })
        .await;
    }
    // Who did what, whichever control plane it was.
    eventually("the journal to have the entries of all", async || {
        let journal = json(&replicas.all[1], &["journal"]).await;
        let kinds: Vec<_> = journal["entries"].as_array().into_iter().flatten().collect();
        let has = |kind: &str| kinds.iter().filter(|one| one["kind"] == kind).count() == 1;
        anyhow::ensure!(has("enroll") && has("claim") && has("revoke"), "{journal:#}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_that_enroll_at_once_give_each_name_once() {
    let Some(replicas) = Replicas::start(2).await else { return };
    let [one, other] = [&replicas.all[0], &replicas.all[1]];
    let address = one.loopback().host(21).to_string();
    // An operator gets the name or an error.
    let bootstrap = async |mesh: &Mesh, name: &str| {
        let out = mesh.folder().join("named").join(name);
        let service = ["proxy", "bootstrap", "--service", "default/store", "--address", &address];
        let named = ["--name", name, "--out", out.to_str().unwrap()];
        mesh.run(&[&service[..], &named[..]].concat()).await
    };
    for name in ["one", "two", "three"] {
        let both = tokio::join!(bootstrap(one, name), bootstrap(other, name));
        let [first, second] = [&both.0, &both.1].map(|output| output.status.success());
        assert!(first != second, "{both:?}");
        let refused = if first { both.1 } else { both.0 };
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(error.contains(&format!("the name `{name}` belongs to the proxy")), "{error}");
    }
    // Default names have different numbers.
    tokio::join!(replicas.enroll(0, "default/store", 22), replicas.enroll(1, "default/store", 23));
    eventually("all proxies to be listed, each name once", async || {
        let listed = json(other, &["proxy", "list"]).await;
        let names = listed.as_array().into_iter().flatten().map(|one| one["name"].to_string());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        anyhow::ensure!(names.len() == 5, "{names:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_certificate_is_the_same_at_every_control_plane() {
    let Some(replicas) = Replicas::start(3).await else { return };
    let folder = replicas.enroll(1, "default/store", 21).await;
    let mut all = Vec::new();
    for mesh in &replicas.all {
        let issued = eventually("the certificate", async || {
            let client = ProxyClient::connect(&folder, mesh.xds()).await?;
            client.service_certificate("default/store").await
        })
        .await;
        all.push(issued);
    }
    assert!(all.iter().all(|one| *one == all[0]), "control planes issued different certificates");
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_control_plane_has_no_effect_on_traffic() {
    let Some(mut replicas) = Replicas::start(2).await else { return };
    let network = replicas.all[0].loopback();
    let _app = App::http1("store", network.socket(21, 8080)).await;
    let store = replicas.all[0].envoy(&ProxyOptions::new("default/store", 21)).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = replicas.all[0].envoy(&buyer).await;
    wait_for_member(&buyer).await;
    wait_for_connections(&replicas, 2).await;
    let load = Load::start(buyer.socket(14001), "store", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    // A revision is synced when the proxies of all control planes have it.
    let edited = POLICY.replace("name = \"buyers\"", "name = \"renamed\"");
    for mesh in &replicas.all {
        mesh.write_policy("p.toml", &edited);
    }
    let waited = json(&replicas.all[0], &["policy", "wait"]).await;
    assert_eq!(waited["outcome"], "synced", "{waited:#}");
    replicas.all[1].write_policy("p.toml", POLICY);
    let is_behind = async |mesh: &Mesh| {
        let arguments = ["policy", "wait", "--timeout", "1s", "--output", "json"];
        let output = mesh.run(&arguments).await;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_pending = answer["outcome"] == "pending" && answer["control_planes"][0].is_string();
        anyhow::ensure!(is_pending && !output.status.success(), "{answer:#}");
        Ok(())
    };
    eventually("the other revision to be known", async || is_behind(&replicas.all[0]).await).await;
    replicas.all[1].write_policy("p.toml", &edited);
    json(&replicas.all[0], &["policy", "wait"]).await;
    // What Envoys have got: another control plane has the same bytes, and sends nothing again.
    let updates = async || {
        let mut all = Vec::new();
        for envoy in [&store, &buyer] {
            let filter = r"(cds|lds|rds|sds)\..*update_success$|\.update_success$";
            all.push(envoy.sum(filter).await);
        }
        all
    };
    wait_for_connections(&replicas, 2).await;
    let before = updates().await;
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    for number in [0, 1] {
        replicas.all[number].kill_control_plane().await;
        let survivor = &replicas.all[1 - number];
        eventually("both to be connected to the other one", async || {
            let proxies = survivor.proxies().await;
            let is_here = |one: &&serde_json::Value| one["streams"] == 1;
            anyhow::ensure!(
                proxies.as_array().unwrap().iter().filter(is_here).count() == 2,
                "{proxies:#}"
            );
            Ok(())
        })
        .await;
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
        replicas.all[number].restart_control_plane().await;
        wait_for_connections(&replicas, 2).await;
    }
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(updates().await, before, "a control plane has sent something again");
    let report = load.finish().await;
    report.assert_undisturbed();
    for envoy in [&store, &buyer] {
        envoy.assert_no_update_errors().await;
    }
}

async fn wait_for_member(buyer: &Envoy) {
    eventually("the endpoint of the store", async || {
        let members = buyer.stat("cluster.default/store|80.membership_healthy").await;
        anyhow::ensure!(members == 1, "{members}");
        Ok(())
    })
    .await;
}
