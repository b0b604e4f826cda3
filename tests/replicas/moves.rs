//! A mesh that moves between an embedded store and etcd, and two meshes in one etcd.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Etcd, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually,
};
use serde_json::Value;

use crate::machine::Machine;
use crate::replicas::{POLICY, json, key};

/// Replaces the part of the settings that names the store.
fn set_store(mesh: &Mesh, store: &str) {
    let path = mesh.folder().join("ironmesh.toml");
    let settings = fs::read_to_string(&path).unwrap();
    let without = settings.split("[store]").next().unwrap();
    fs::write(&path, format!("{without}{store}")).unwrap();
}

/// Runs `ironmesh` and returns its stderr; it must fail.
async fn failure(mesh: &Mesh, arguments: &[&str]) -> String {
    let output = mesh.run(arguments).await;
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// What a move must not change: proxies, tokens and certificates, without what depends on the moment.
async fn lasting_state(mesh: &Mesh) -> [Value; 3] {
    let mut proxies = json(mesh, &["proxy", "list"]).await;
    let mut state = Vec::new();
    for proxy in proxies.as_array_mut().unwrap() {
        let lasting = ["id", "services", "claimed_at", "revoked", "certificate"];
        state.push(lasting.map(|field| proxy[field].take()).into());
    }
    let tokens = json(mesh, &["proxy", "token", "list"]).await;
    let certificates = json(mesh, &["cert", "list"]).await;
    let certificates = certificates["certificates"].as_array().unwrap().iter();
    // A control plane gets a certificate at each start.
    let lasting = certificates.filter(|one| one["kind"] != "control_plane");
    let serials = lasting.map(|one| one["serial"].clone()).collect();
    [Value::Array(state), tokens["tokens"].clone(), Value::Array(serials)]
}

/// What an Envoy has got from the control plane, except for endpoints, which depend on health.
async fn updates(envoys: [&Envoy; 2]) -> Vec<u64> {
    let mut all = Vec::new();
    for envoy in envoys {
        let filter = r"(cds|lds|rds|sds)\..*update_success$|\.update_success$";
        all.push(envoy.sum(filter).await);
    }
    all
}

async fn wait_until_synced(mesh: &Mesh, count: usize) {
    eventually("the proxies to be connected and synced", async || {
        let proxies = mesh.proxies().await;
        let is_synced = |one: &&Value| one["streams"] == 1 && one["sync"]["state"] == "synced";
        let synced = proxies.as_array().unwrap().iter().filter(is_synced).count();
        anyhow::ensure!(synced == count, "{proxies:#}");
        Ok(())
    })
    .await;
}

/// Stops the control plane and exports its mesh.
async fn export_stopped(mesh: &mut Mesh, name: &str) -> PathBuf {
    mesh.stop().await;
    let path = mesh.folder().join(name);
    json(mesh, &["store", "export", "--offline", path.to_str().unwrap()]).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    path
}

async fn import(mesh: &Mesh, path: &Path) -> Value {
    json(mesh, &["store", "import", path.to_str().unwrap()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mesh_moves_to_etcd_and_back_without_an_effect_on_proxies() {
    let Some(programs) = Programs::find() else { return };
    let Some(etcd) = Etcd::start_three().await else { return };
    let mut mesh = Mesh::start(&programs, &[("p.toml", POLICY)]).await;
    let _app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let store = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let buyer = mesh.envoy(&buyer).await;
    let envoys = [&store, &buyer];
    wait_until_synced(&mesh, 2).await;
    // A machine with an agent, which has service certificates for its own key.
    let mut machine = Machine::start(&mesh, "default/buyer", 24).await;
    // One that has not connected yet, one that is revoked, and a token that nothing has used.
    let unclaimed = mesh.bootstrap(&ProxyOptions::new("default/store", 22)).await;
    let revoked = mesh.bootstrap(&ProxyOptions::new("default/store", 23)).await;
    let revoked_client = ProxyClient::connect(&revoked, mesh.xds()).await.unwrap();
    revoked_client.service_certificate("default/store").await.unwrap();
    let id = revoked_client.node_id.clone();
    json(&mesh, &["proxy", "revoke", &id, "--reason", "stolen"]).await;
    json(&mesh, &["proxy", "token", "--service", "default/store"]).await;
    let load = Load::start(buyer.socket(14001), "store", "/");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    wait_until_synced(&mesh, 3).await;
    let (state, before) = (lasting_state(&mesh).await, updates(envoys).await);

    // Through the running control plane: the export is whole, and the store of the settings is not replaced.
    let online = mesh.folder().join("online.export");
    let exported = json(&mesh, &["store", "export", online.to_str().unwrap()]).await;
    assert_eq!(exported["bytes"], fs::metadata(&online).unwrap().len());
    let error = failure(&mesh, &["store", "import", online.to_str().unwrap()]).await;
    assert!(error.contains("stop it first"), "{error}");

    let export = export_stopped(&mut mesh, "to-etcd.export").await;
    let error = failure(&mesh, &["store", "import", export.to_str().unwrap()]).await;
    assert!(error.contains("there is a store already"), "{error}");
    set_store(&mesh, &etcd.store_settings());
    let damaged = mesh.folder().join("damaged.export");
    let bytes = fs::read(&export).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    let error = failure(&mesh, &["store", "import", damaged.to_str().unwrap()]).await;
    assert!(error.contains("its end is missing"), "{error}");
    assert_eq!(etcd.keys("/ironmesh/default/").await, [""; 0], "nothing is written before");
    let imported = import(&mesh, &export).await;
    assert_eq!(imported["proxies"], 5, "{imported:#}");
    let error = failure(&mesh, &["store", "import", export.to_str().unwrap()]).await;
    assert!(error.contains("move it away"), "{error}");
    verify_move(&mut mesh, envoys, &load, (&state, &before), &revoked).await;
    // A certificate that was never used is claimed at the new store.
    let client = ProxyClient::connect(&unclaimed, mesh.xds()).await.unwrap();
    client.service_certificate("default/store").await.unwrap();
    drop(client);

    let state = lasting_state(&mesh).await;
    let export = export_stopped(&mut mesh, "to-embedded.export").await;
    set_store(&mesh, "");
    let error = failure(&mesh, &["store", "import", export.to_str().unwrap()]).await;
    assert!(error.contains("move it away first"), "{error}");
    let database = mesh.folder().join("state").join("state.redb");
    fs::rename(&database, mesh.folder().join("earlier.redb")).unwrap();
    import(&mesh, &export).await;
    verify_move(&mut mesh, envoys, &load, (&state, &before), &revoked).await;
    let report = load.finish().await;
    report.assert_undisturbed();
    // Its agent reaches the control plane too: a drain waits for it.
    machine.drain().await;
    for envoy in envoys {
        envoy.assert_no_update_errors().await;
    }
}

/// Starts the control plane after a move: proxies connect and get no update, and what lasts is as before.
async fn verify_move(
    mesh: &mut Mesh,
    envoys: [&Envoy; 2],
    load: &Load,
    (state, before): (&[Value; 3], &[u64]),
    revoked: &Path,
) {
    mesh.restart_control_plane().await;
    wait_until_synced(mesh, 3).await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(updates(envoys).await, before, "an Envoy got something that it had");
    assert_eq!(lasting_state(mesh).await, *state);
    let journal = json(mesh, &["journal"]).await;
    let entries = journal["entries"].as_array().unwrap();
    assert!(entries.iter().any(|one| one["kind"] == "revoke"), "{journal:#}");
    let findings = mesh.readyz().await["findings"].clone();
    let is_of_state = |one: &&Value| one["code"].as_str().unwrap().starts_with("IM070");
    assert_eq!(findings.as_array().unwrap().iter().filter(is_of_state).count(), 0, "{findings:#}");
    let client = ProxyClient::connect(revoked, mesh.xds()).await;
    let is_accepted = match client {
        Ok(client) => client.service_certificate("default/store").await.is_ok(),
        Err(_) => false,
    };
    assert!(!is_accepted, "a revoked proxy is accepted after the move");
}

#[tokio::test(flavor = "multi_thread")]
async fn meshes_in_one_etcd_never_see_each_other() {
    let Some(programs) = Programs::find() else { return };
    let Some(etcd) = Etcd::start_three().await else { return };
    let policy = [("p.toml", POLICY)];
    let mut one = Mesh::prepare("", &programs, &policy);
    one.add_settings(&etcd.store_settings());
    let mut other = Mesh::prepare("mesh = \"other\"", &programs, &policy);
    other.add_settings(&etcd.other_store_settings());
    let mut proxies = Vec::new();
    for mesh in [&mut one, &mut other] {
        assert!(mesh.run(&["store", "init"]).await.status.success());
        mesh.restart_control_plane().await;
        proxies.push(mesh.bootstrap(&ProxyOptions::new("default/store", 21)).await);
    }
    for (mesh, folder) in [(&one, &proxies[0]), (&other, &proxies[1])] {
        assert_eq!(json(mesh, &["proxy", "list"]).await.as_array().unwrap().len(), 1);
        let client = ProxyClient::connect(folder, mesh.xds()).await.unwrap();
        client.service_certificate("default/store").await.unwrap();
    }
    // Each has an authority of its own, so none accepts a proxy of the other.
    for (mesh, folder) in [(&one, &proxies[1]), (&other, &proxies[0])] {
        assert!(ProxyClient::connect(folder, mesh.xds()).await.is_err());
    }
    for mesh in ["default", "other"] {
        let records = format!("/ironmesh/{mesh}/state/records/join_records/");
        assert_eq!(etcd.keys(&records).await.len(), 1);
    }

    // The user of one mesh may not even read the keys of the other.
    one.stop().await;
    other.stop().await;
    let settings = etcd.other_store_settings();
    set_store(&one, &settings);
    let error = failure(&one, &["store", "init"]).await;
    assert!(error.contains("etcd does not allow the user"), "{error}");
    // With the prefix of the other mesh, and its user, the name of the mesh and the key keep them apart.
    set_store(
        &one,
        &settings.replace("[store.etcd]", "[store.etcd]\nprefix = \"/ironmesh/other\""),
    );
    let error = failure(&one, &["store", "init"]).await;
    assert!(error.contains("a different key-encryption key"), "{error}");
    fs::copy(key(&other), key(&one)).unwrap();
    let error = failure(&one, &["store", "init"]).await;
    assert!(error.contains("belongs to the mesh `other`"), "{error}");
}
