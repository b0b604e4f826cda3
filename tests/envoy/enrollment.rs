//! A machine that joined by a token renews its certificate while its Envoy carries load.

use std::process::Output;

use ironmesh_tests::{
    Envoy, Http1Connection, Load, Mesh, Programs, REQUESTS_PER_FAULT, eventually,
};

use crate::bookstore::{Bookstore, HOST, SERVICES, ensure_status};
use crate::renewal::{CONNECTED, proxy_serial};

/// The host number of the joined machine.
const MACHINE: u8 = 13;

#[tokio::test(flavor = "multi_thread")]
async fn renewal_of_a_joined_proxy_under_load_fails_no_request() {
    let (Some(programs), Some(mut store)) = (Programs::find(), Bookstore::open().await) else {
        return;
    };
    let folder = store.mesh.folder().join("joined");
    let out = folder.to_str().unwrap();
    let address = store.mesh.loopback().host(MACHINE).to_string();
    join(&store.mesh, out, &address).await;
    let name = "bookbuyer by token";
    let mut envoy =
        Envoy::start(&programs.envoy, name, &folder, address.parse().unwrap(), 30).await;
    eventually("a route to the store", async || {
        let mut connection = Http1Connection::connect(envoy.socket(15080)).await?;
        ensure_status(&connection.get("/books/1", HOST).await?, 200)
    })
    .await;

    let load = Load::start(envoy.socket(15080), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let mut serials = vec![proxy_serial(&envoy).await];
    for _ in 0..2 {
        let renew = ["proxy", "bootstrap", "--renew", out, "--force"];
        let renewed = store.mesh.run_on_machine(&renew).await;
        assert!(text(&renewed).contains("renewed, expires at"), "{renewed:?}");
        let serial = eventually("another certificate", async || match proxy_serial(&envoy).await {
            serial if !serials.contains(&serial) => Ok(serial),
            serial => Err(serial),
        })
        .await;
        serials.push(serial);
        load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }
    // The stream continues on its connection.
    assert_eq!(envoy.stat(CONNECTED).await, 1);

    // The next connection presents the newest certificate: the first one is refused by now.
    store.mesh.restart_control_plane().await;
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;
    assert_eq!(proxy_serial(&envoy).await, *serials.last().unwrap());
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    let journal = store.mesh.run(&["journal", "--kind", "renew"]).await;
    let renewals = text(&journal).lines().filter(|line| line.contains(" renew ")).count();
    assert_eq!(renewals, 2, "{journal:?}");
    assert_eq!(envoy.sum("upstream_rq_retry$").await, 0);
    assert!(!store.mesh.log().contains("should not be in use"));
    envoy.assert_running();
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_is_renewed_by_proof_of_possession() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
    mesh.restart_with_own_clock().await;
    let folder = mesh.folder().join("joined");
    let (out, address) = (folder.to_str().unwrap(), mesh.loopback().host(MACHINE));
    join(&mesh, out, &address.to_string()).await;
    let envoy = Envoy::start(&programs.envoy, "buyer", &folder, address, 30).await;
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;
    let first = proxy_serial(&envoy).await;

    // The certificate of 30 days has expired a day ago. The machine's own clock is late, so that it tries TLS first.
    mesh.set_clock(31 * 24 * 60 * 60);
    mesh.restart_control_plane().await;
    let renew = ["proxy", "bootstrap", "--renew", out, "--force"];
    let renewed = mesh.run_on_machine(&renew).await;
    assert!(text(&renewed).contains("renewed, expires at"), "{renewed:?}");
    eventually("another certificate", async || match proxy_serial(&envoy).await {
        serial if serial != first => Ok(()),
        serial => Err(serial),
    })
    .await;
    eventually("the stream to the control plane", async || is_connected(&envoy).await).await;

    // After the grace only an operator helps.
    mesh.set_clock(70 * 24 * 60 * 60);
    mesh.restart_control_plane().await;
    let before = fs_err::read_to_string(folder.join("proxy.crt")).unwrap();
    let rejected = mesh.run_on_machine(&renew).await;
    let words = String::from_utf8(rejected.stderr).unwrap();
    assert_eq!(rejected.status.code(), Some(1), "{words}");
    assert!(words.contains("more than 7 days ago: enroll the machine again"), "{words}");
    assert_eq!(fs_err::read_to_string(folder.join("proxy.crt")).unwrap(), before);
}

/// Whether the Envoy has a stream to the control plane.
pub(crate) async fn is_connected(envoy: &Envoy) -> Result<(), u64> {
    match envoy.stat(CONNECTED).await {
        1 => Ok(()),
        state => Err(state),
    }
}

/// Enrolls a machine at `address` as a further buyer.
pub(crate) async fn join(mesh: &Mesh, out: &str, address: &str) {
    let created = ["proxy", "token", "--service", "default/bookbuyer", "--output", "json"];
    let created = text(&mesh.run(&created).await);
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    let part = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let token = mesh.folder().join("token");
    fs_err::write(&token, part("/tokens/0/token")).unwrap();
    let url = format!("https://{}", mesh.loopback().socket(1, 15129));
    let (token, hash) = (token.to_str().unwrap(), part("/ca_hashes/0"));
    let first = ["agent", "join", &url, "--token-file", token, "--ca-hash", &hash, "--out", out];
    let more = ["--address", address, "--app-address", address, "--admin-tcp"];
    text(&mesh.run_on_machine(&[&first[..], &more].concat()).await);
}

/// The stdout of a run, which must succeed.
pub(crate) fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}
