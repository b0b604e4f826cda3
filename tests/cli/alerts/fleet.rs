//! The alerts about versions and cordons of proxies, by a wall clock of the control plane that the test sets.

use ironmesh_tests::clock::SkewedClock;
use ironmesh_tests::xds::ProxyClient;

use super::{Alarms, start_with_clock};
use crate::server::Server;
use crate::versions::envoy;

pub(super) const ALERTS: [&str; 2] = ["ProxiesBelowMinimum", "ProxyCordonedLong"];

const POLICY: &str = "[[service]]\nname = \"store\"\n";

const DAY: i64 = 86_400;

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_the_fleet_fire_and_clear() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let clock = SkewedClock::new(server.workspace.path());
    let _child = start_with_clock(&server, &clock).await;
    server.ready().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    let enroll = ["proxy", "bootstrap", "--service", "store", "--address", "127.1.0.1"];
    let succeed = |arguments: &[&str]| {
        let run = server.run(arguments);
        assert_eq!(run.code, 0, "{run:?}");
    };
    succeed(&[&enroll[..], &["--out", "one", "--name", "one"]].concat());

    // An Envoy that is too old is rejected, and counts.
    let folder = server.workspace.path().join("one");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
    proxy.request_secret(envoy(&proxy.node_id, 20), "roots").await.unwrap_err();
    alarms.fires("ProxiesBelowMinimum").await;
    proxy.request_secret(envoy(&proxy.node_id, 40), "roots").await.unwrap();
    alarms.clears("ProxiesBelowMinimum").await;

    succeed(&["proxy", "cordon", "one"]);
    clock.set(2 * DAY);
    alarms.fires("ProxyCordonedLong").await;
    succeed(&["proxy", "uncordon", "one"]);
    alarms.clears("ProxyCordonedLong").await;
    alarms.assert_observed(&ALERTS);
}
