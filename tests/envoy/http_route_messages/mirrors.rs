//! Mirrors: which requests are copied, and to which services.

use http::StatusCode;
use ironmesh_tests::eventually;

use super::{MessageMesh, SHADOWED, route};
use crate::bookstore::ensure_status;

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_requests_reach_only_granted_services() {
    let mirror = |percent: &str| {
        route(&format!(
            "mirror = {{ service = \"shadow\", percent = {percent} }}\ntimeout = \"20s\"\n\
             rewrite = {{ path_prefix = {{ from = \"/old\", to = \"/new\" }} }}"
        ))
    };
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    let clusters = || async { setup.buyer.config_dump().await.to_string() };
    let mirrors = "\"request_mirror_policies\"";
    let wait_for = async |text: &str, is_there: bool| {
        eventually(&format!("{text} to be there: {is_there}"), async || {
            let has = clusters().await.contains(text);
            if has == is_there { Ok(()) } else { Err(has) }
        })
        .await;
    };
    setup.write(&mirror("100"));
    wait_for(mirrors, true).await;
    // The caller gets the store's answer.
    let answer = setup.get("/old/1", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-app")), (200, Some("store")));
    assert_eq!(setup.copies("first", 5, 5).await, 5);
    // The caller does not wait for the mirror target.
    let held = setup.shadow.hold().await;
    assert_eq!(setup.copies("held", 5, 5).await, 5);
    drop(held);
    // A share of the requests: neither all nor none.
    setup.write(&mirror("50.0"));
    wait_for("\"numerator\":500000", true).await;
    let copies = setup.copies("some", 100, 0).await;
    assert!((5..=95).contains(&copies), "{copies} of 100");
    // Without the setting no copies are made, although the mirror target may be called.
    setup.write(&mirror("100").replace("mirror =", "# mirror ="));
    wait_for(mirrors, false).await;
    assert_eq!(setup.copies("none", 20, 0).await, 0);
    // Without access to the mirror target no copies are made: they end with the cluster, and no
    // reference dangles.
    setup.write(&mirror("100"));
    wait_for(mirrors, true).await;
    setup.mesh.remove_policy("targets.toml");
    eventually("no more copies", async || {
        let dump = clusters().await;
        let left = [mirrors, "\"default/shadow|14001\""].map(|text| dump.contains(text));
        if left == [false; 2] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    for _ in 0..5 {
        ensure_status(&setup.get("/old/1", &[("x-request-name", "withdrawn")]).await, 200).unwrap();
    }
    let reported = setup.explain("/old/1").await;
    assert!(
        reported.contains("but not of this caller: it may not call default/shadow"),
        "{reported}"
    );
    // With access, copies are made again.
    setup.mesh.write_policy("targets.toml", SHADOWED);
    eventually("copies again", async || {
        ensure_status(&setup.get("/old/1", &[("x-request-name", "again")]).await, 200)?;
        anyhow::ensure!(setup.shadow.requests_named("again") > 0, "none");
        anyhow::Ok(())
    })
    .await;
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
    // No more copies are made. Once all are answered, any late one would have been counted.
    eventually("all copies to be answered", async || {
        let active = r"^cluster\.default/shadow\|14001\.upstream_rq_(?:pending_)?active$";
        match setup.buyer.sum(active).await {
            0 => Ok(()),
            active => Err(active),
        }
    })
    .await;
    let copies =
        ["first", "held", "none", "withdrawn"].map(|name| setup.shadow.requests_named(name));
    assert_eq!(copies, [5, 5, 0, 0]);
}
