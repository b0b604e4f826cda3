//! A machine that joined by a token renews its certificate while its Envoy carries load.

use std::process::Output;

use ironmesh_tests::{Envoy, Load, Programs, REQUESTS_PER_FAULT, eventually};

use crate::bookstore::{Bookstore, HOST};
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
    join(&store, out, &address).await;
    let name = "bookbuyer by token";
    let mut envoy =
        Envoy::start(&programs.envoy, name, &folder, address.parse().unwrap(), 30).await;
    eventually("a route to the store", async || {
        let mut connection = ironmesh_tests::Http1Connection::connect(envoy.socket(15080)).await?;
        crate::bookstore::ensure_status(&connection.get("/books/1", HOST).await?, 200)
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
    eventually("the stream to the control plane", async || match envoy.stat(CONNECTED).await {
        1 => Ok(()),
        state => Err(state),
    })
    .await;
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

/// Enrolls a machine at `address` as a further buyer.
async fn join(store: &Bookstore, out: &str, address: &str) {
    let created = ["proxy", "token", "--service", "default/bookbuyer", "--output", "json"];
    let created = text(&store.mesh.run(&created).await);
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    let part = |pointer: &str| created.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let token = store.mesh.folder().join("token");
    fs_err::write(&token, part("/tokens/0/token")).unwrap();
    let url = format!("https://{}", store.mesh.loopback().socket(1, 15129));
    let (token, hash) = (token.to_str().unwrap(), part("/ca_hashes/0"));
    let first = ["agent", "join", &url, "--token-file", token, "--ca-hash", &hash, "--out", out];
    let more = ["--address", address, "--app-address", address, "--admin-tcp"];
    text(&store.mesh.run_on_machine(&[&first[..], &more].concat()).await);
}

/// The stdout of a run, which must succeed.
fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}
