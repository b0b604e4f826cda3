//! The alerts about certificates, by a wall clock of the control plane that the test sets.

use ironmesh_tests::clock::SkewedClock;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;

use super::{Alarms, start_with_clock};
use crate::server::Server;

pub(super) const ALERTS: [&str; 2] = ["CertificateExpiresSoon", "CertificateOverdue"];

const DAY: i64 = 86_400;

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_certificates_fire_and_clear() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", "[[service]]\nname = \"store\"\n");
    let clock = SkewedClock::new(server.workspace.path());
    // The control plane issues itself a certificate of 30 days, 25 days ago.
    clock.set(-25 * DAY);
    let _child = start_with_clock(&server, &clock).await;
    server.ready().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    alarms.fires("CertificateExpiresSoon").await;
    clock.set(0);
    alarms.clears("CertificateExpiresSoon").await;

    // A certificate of a year, whose proxy has not renewed it after 355 days.
    let enroll = ["proxy", "bootstrap", "--service", "store", "--address", "127.1.0.1"];
    let run = server.run(&[&enroll[..], &["--out", "one", "--name", "one"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("one");
    let proxy = ProxyClient::connect(&folder, server.loopback.socket(1, 15128)).await.unwrap();
    let node = Node { id: proxy.node_id.clone(), ..Node::default() };
    proxy.request_secret(node, "roots").await.unwrap();
    clock.set(355 * DAY);
    alarms.fires("CertificateOverdue").await;
    let run = server.run(&["proxy", "revoke", "one"]);
    assert_eq!(run.code, 0, "{run:?}");
    alarms.clears("CertificateOverdue").await;
    alarms.assert_observed(&ALERTS);
}
