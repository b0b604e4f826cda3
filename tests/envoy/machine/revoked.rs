//! A revoked machine whose Envoy runs on with keys of its own.

use ironmesh_tests::{Http2Connection, Programs, REQUESTS_PER_FAULT, eventually, get_once};

use super::joined::Machine;
use super::{Applications, SERVER, SHORT, UPSTREAMS, start_load, start_mesh, wait_until_served};
use crate::bookstore::ensure_status;
use crate::enrollment::text;

#[tokio::test(flavor = "multi_thread")]
async fn revoked_machine_is_refused_without_disturbing_its_account() {
    let Some(programs) = Programs::find() else { return };
    let mesh = start_mesh(&programs).await;
    let _applications = Applications::start(&mesh, 21).await;
    let _server = Machine::start(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    let buyer = ["default/buyer"];
    let stolen = Machine::start(&mesh, &programs, 11, &buyer, (UPSTREAMS, SHORT)).await;
    let other = Machine::start(&mesh, &programs, 12, &buyer, (UPSTREAMS, SHORT)).await;
    for buyer in [&stolen, &other] {
        wait_until_served(buyer).await;
    }
    let load = start_load(&other);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;

    text(&mesh.run(&["proxy", "revoke", &stolen.name(), "--reason", "stolen"]).await);
    eventually("its requests to be refused", async || {
        ensure_status(&get_once(stolen.socket(14001), "/", &[("host", "store")]).await?, 403)?;
        let mut calls = Http2Connection::connect(stolen.socket(15014)).await?;
        ensure_status(&calls.get("/", "calls").await?, 403)
    })
    .await;
    eventually("its handshakes to be refused", async || match stolen.connect().await {
        Ok(_) => Err("connected"),
        Err(_) => Ok(()),
    })
    .await;
    load.wait_for_requests(load.requests() + REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    let shown = text(&mesh.run(&["proxy", "show", &stolen.name()]).await);
    assert!(shown.contains("accept its service certificate until "), "{shown}");
    assert!(shown.contains("default/store|14001"), "{shown}");
}
