//! A machine leaves the mesh: its callers have ACKed that when the control plane answers.

use std::path::Path;

use ironmesh_catalog::{Domain, Secret, TrustBundle, TrustDomain};
use ironmesh_enrollment::{
    ControlPlaneAddress, EnrollmentClient, LeaveRequest, MachineIdentity, ProxySync, ServerTrust,
};
use ironmesh_tests::{
    App, Envoy, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually,
};

use crate::bookstore::{Bookstore, HOST, PORT};
use crate::enrollment::text;

/// The host number of the machine that leaves.
const MACHINE: u8 = 23;

#[tokio::test(flavor = "multi_thread")]
async fn callers_have_acked_draining_when_leave_is_answered() {
    let (Some(programs), Some(store)) = (Programs::find(), Bookstore::open().await) else {
        return;
    };
    let mesh = &store.mesh;
    let app = App::http1("bookstore-v1", mesh.loopback().socket(MACHINE, 8080)).await;
    let folder = mesh.bootstrap(&ProxyOptions::new("default/bookstore-v1", MACHINE)).await;
    let address = mesh.loopback().host(MACHINE);
    let start = async || Envoy::start(&programs.envoy, "bookstore", &folder, address, 30).await;
    let envoy = start().await;
    let healthy = format!("cluster.default/bookstore-v1|{PORT}.membership_healthy");
    let both_healthy = async || match store.buyer.stat(&healthy).await {
        2 => Ok(()),
        count => Err(count),
    };
    eventually("two endpoints", both_healthy).await;

    let (client, identity) = machine(mesh, &folder);
    let load = Load::start(store.buyer.socket(15080), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let left = client.leave(&identity, LeaveRequest { revoke: false }).await.unwrap();
    assert!(left.acked && left.laggards.is_empty(), "{left:?}");
    assert_eq!(store.buyer.stat(&healthy).await, 1);
    // Requests on their way arrive; no others are sent.
    load.wait_for_requests(50).await;
    let before = app.requests();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(app.requests(), before, "it gets no new requests");
    let again = client.leave(&identity, LeaveRequest { revoke: false }).await.unwrap();
    assert_eq!(again, left);
    let shown = text(&mesh.run(&["endpoints", "default/bookstore-v1"]).await);
    assert!(shown.contains("draining") && shown.contains("its proxy leaves since"), "{shown}");
    let shown = text(&mesh.run(&["proxy", "list"]).await);
    assert!(shown.contains("leaves the mesh since"), "{shown}");

    // A lost stream of the same Envoy does not bring it back.
    let status = client.proxy_status(&identity).await.unwrap();
    assert_eq!((status.sync, status.leaving_since), (ProxySync::Synced, Some(left.leaving_since)));
    let status = client.rejoin(&identity).await.unwrap();
    assert_eq!(status.leaving_since, None);
    eventually("two endpoints", both_healthy).await;

    // A new Envoy brings it back, too.
    client.leave(&identity, LeaveRequest { revoke: false }).await.unwrap();
    assert_eq!(store.buyer.stat(&healthy).await, 1);
    envoy.stop().await;
    let mut envoy = start().await;
    eventually("two endpoints", both_healthy).await;
    load.finish().await.assert_undisturbed();

    let left = client.leave(&identity, LeaveRequest { revoke: true }).await.unwrap();
    assert!(left.acked && left.revoked, "{left:?}");
    for (kind, message) in [("revoke", "left the mesh"), ("leave", "rejoined the mesh")] {
        eventually("the journal's entry", async || {
            let journal = text(&mesh.run(&["journal", "--kind", kind]).await);
            if journal.contains(message) { Ok(()) } else { Err(journal) }
        })
        .await;
    }
    envoy.assert_running();
    store.assert_no_update_errors().await;
}

/// The client of a machine, and its identity.
pub(crate) fn machine(mesh: &Mesh, folder: &Path) -> (EnrollmentClient, MachineIdentity) {
    let read = |file: &str| fs_err::read_to_string(folder.join(file)).unwrap();
    let address = mesh.loopback().socket(1, 15129);
    let address = ControlPlaneAddress { host: address.ip().to_string(), port: address.port() };
    let trust = ServerTrust::Roots {
        bundle: TrustBundle { roots: read("ca.crt") },
        control_plane: TrustDomain::new(Domain::default()).control_plane().0,
    };
    let identity =
        MachineIdentity { certificate: read("proxy.crt"), key: Secret::new(read("proxy.key")) };
    (EnrollmentClient::new(vec![address], trust).unwrap(), identity)
}
