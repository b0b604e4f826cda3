//! A control plane that is cut off the network.

use crate::bookstore::{self, BUYER, CONTROL_PLANE, STORE, STORE_PORT};
use crate::load::{Load, REQUESTS_PER_FAULT};

/// Packets from and to the control plane vanish; no connection is reset.
#[tokio::test(flavor = "multi_thread")]
async fn cut_of_the_control_plane_does_not_affect_traffic() {
    let Some(fleet) = bookstore::start_with_grant().await else { return };
    let load = Load::start(fleet.guest(BUYER), STORE_PORT, "/books/1").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    fleet.guest(CONTROL_PLANE).cut().await;
    load.wait_for_requests(2 * REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();

    // A machine that boots now has no configuration until the control plane is back. Then it serves by itself.
    fleet.guest(STORE).reboot().await;
    fleet.guest(CONTROL_PLANE).heal().await;
    bookstore::wait_until_sold(&fleet).await;
}
