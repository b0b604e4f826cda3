//! Machines that lose power.

use crate::bookstore::{self, BUYER, CONTROL_PLANE, STORE, STORE_PORT};
use crate::load::{Load, REQUESTS_PER_FAULT};

/// Power loss and reboot of the store: systemd starts its units, and nobody does anything on either machine.
#[tokio::test(flavor = "multi_thread")]
async fn machine_serves_again_after_power_loss_without_an_operator() {
    let Some(fleet) = bookstore::start_with_grant().await else { return };
    fleet.guest(STORE).lose_power().await;
    assert_ne!(bookstore::status(&fleet).await, "200");
    fleet.guest(STORE).boot().await;
    bookstore::wait_until_sold(&fleet).await;
    fleet.guest(STORE).reboot().await;
    bookstore::wait_until_sold(&fleet).await;
}

/// Power loss and boot of the control plane under load.
#[tokio::test(flavor = "multi_thread")]
async fn power_loss_of_the_control_plane_does_not_affect_traffic() {
    let Some(fleet) = bookstore::start_with_grant().await else { return };
    let load = Load::start(fleet.guest(BUYER), STORE_PORT, "/books/1").await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    fleet.guest(CONTROL_PLANE).lose_power().await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    fleet.guest(CONTROL_PLANE).boot().await;
    bookstore::wait_until_ready(fleet.guest(CONTROL_PLANE)).await;
    // It knows both machines, which notice within half a minute that their connections have ended.
    let proxies = fleet.guest(CONTROL_PLANE).run("ironmesh proxy list").await;
    assert_eq!(proxies.matches("10.77.0.").count(), 2, "{proxies}");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
}
