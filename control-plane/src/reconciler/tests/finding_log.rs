//! The log of findings about proxies, which is throttled.

use std::time::Duration;

use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use serde_json::json;

use super::harness::{Harness, node};
use super::log::Log;

const POLICY: &str = "[[service]]\nname = \"buyer\"\n";

/// The start of the service names of upstreams that policy does not define.
const NO_SERVICE: &str = "no-such-";

// Without the throttle, 256 bogus upstreams in each of 40 connections log more than 10,000 lines.
#[tokio::test(start_paused = true)]
async fn proxy_with_bogus_upstreams_is_one_line_and_a_count() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["buyer"]);
    let log = Log::begin();
    let mut connect = |round: usize, count: usize| {
        let upstream = |n| json!({ "service": format!("default/no-such-{round}-{n}"), "local_port": 20_000 + n });
        let upstreams: Vec<_> = (0..count).map(upstream).collect();
        let metadata = Some(json!({ "upstreams": upstreams }));
        let node = Node { metadata, ..node(&record) };
        let _client = SimulatedClient::connect(&harness.hub, &record.id.to_string(), node);
        harness.pass();
    };
    (0..40).for_each(|round| connect(round, 256));
    assert_eq!(log.count(NO_SERVICE), 1);
    assert_eq!(log.count("others=255"), 1);

    tokio::time::advance(Duration::from_secs(10)).await;
    connect(40, 1);
    assert_eq!(log.count(NO_SERVICE), 2);
    assert_eq!(log.count("others=9984"), 1);
}
