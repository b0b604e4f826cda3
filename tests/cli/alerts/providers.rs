//! The alerts about endpoints providers and their guards, with a real Consul.

use ironmesh_tests::Consul;
use ironmesh_tests::clock::SkewedClock;

use super::{Alarms, start_with_clock};
use crate::server::Server;

pub(super) const ALERTS: [&str; 5] = [
    "EndpointRemovalHeld",
    "EndpointRemovalHeldLong",
    "EndpointsFlapping",
    "ProviderAnswerOld",
    "ProviderStale",
];

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ port = 80, protocol = "http" }]
endpoints = { consul = {} }
"#;

const HOUR: i64 = 3600;

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_providers_fire_and_clear() {
    let Some(mut consul) = Consul::dev().await else { return };
    // A removal is held back for longer than the test lasts.
    let settings = format!("consul.agents = [\"{}\"]\nendpoints.grace = \"1d\"\n", consul.url(0));
    let Some(server) = Server::open(&settings) else { return };
    let policy = |text: &str| server.workspace.write("policy/services.toml", text);
    policy(POLICY);
    let register = async |consul: &Consul| {
        for number in 1..=3 {
            consul.register("web", &format!("web-{number}"), &format!("10.0.0.{number}")).await;
        }
    };
    register(&consul).await;
    let clock = SkewedClock::new(server.workspace.path());
    let _child = start_with_clock(&server, &clock).await;
    server.ready().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };

    consul.kill(0).await;
    alarms.fires("ProviderStale").await;
    // More than an hour passes for the control plane.
    clock.set(2 * HOUR);
    alarms.fires("ProviderAnswerOld").await;
    // A new Consul knows no service: the endpoints stay.
    consul.start(0);
    consul.ready().await;
    alarms.clears("ProviderStale").await;
    alarms.clears("ProviderAnswerOld").await;
    alarms.fires("EndpointRemovalHeld").await;
    clock.set(4 * HOUR);
    alarms.fires("EndpointRemovalHeldLong").await;
    register(&consul).await;
    alarms.clears("EndpointRemovalHeld").await;
    alarms.clears("EndpointRemovalHeldLong").await;

    // One instance comes and goes.
    alarms
        .fires_by("EndpointsFlapping", async || {
            consul.deregister("web-1").await;
            consul.register("web", "web-1", "10.0.0.1").await;
        })
        .await;
    policy("[[service]]\nname = \"web\"\n");
    alarms.clears("EndpointsFlapping").await;
    alarms.assert_observed(&ALERTS);
}
