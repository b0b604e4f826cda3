//! Machines that join by a token, with units of systemd.

use ironmesh_tests::eventually;

use crate::bookstore::{self, BUYER, CONTROL_PLANE, CURL, STORE};

/// From an empty Debian to a call between two machines: token, join, units, policy.
#[tokio::test(flavor = "multi_thread")]
async fn machine_joins_from_nothing_and_serves_by_policy_alone() {
    let Some(fleet) = bookstore::start().await else { return };
    // Without a grant, the Envoy of the store refuses the caller.
    eventually("a refusal", async || match &*bookstore::status(&fleet).await {
        "403" => Ok(()),
        status => Err(status.to_owned()),
    })
    .await;
    bookstore::grant(&fleet).await;
    bookstore::wait_until_sold(&fleet).await;

    // The mesh port is the only way to the application, and takes mutual TLS alone.
    let address = fleet.guest(STORE).address();
    for (port, code) in [(15003, 56), (8080, 7)] {
        let request = format!("{CURL} http://{address}:{port}/books/1");
        let output = fleet.guest(BUYER).try_run(&request).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    let stats = "curl --silent --unix-socket /etc/ironmesh/proxy/admin.sock 'http://envoy/stats?filter=ssl.handshake'";
    let handshakes = fleet.guest(STORE).run_as("envoy", stats).await;
    let inbound = handshakes.lines().filter(|line| line.starts_with("listener."));
    let count =
        inbound.filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum::<u64>();
    assert!(count > 0, "{handshakes}");

    let proxies = fleet.guest(CONTROL_PLANE).run("ironmesh proxy list; ironmesh status").await;
    assert_eq!(proxies.matches("SYNCED").count(), 2, "{proxies}");
}
