//! Discovery, and wrong answers of Consul. After each of them the provider sees a real addition and
//! a real removal.

use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Health, Provider};
use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::consul::ConsulOptions;
use ironmesh_tests::{Consul, eventually};
use serde_json::{Value, json};

use crate::faulty_agent::{AgentFault, FaultyAgent};
use crate::watch::{ProviderWatch, query, specification};

pub(crate) fn options(agents: &[String]) -> ConsulOptions {
    ConsulOptions { agents: agents.to_vec(), ..ConsulOptions::default() }
}

#[tokio::test]
async fn endpoint_carries_consul_labels_locality_weight_and_health() {
    let Some(consul) = Consul::dev().await else { return };
    let web = ProviderWatch::web(options(&[consul.url(0)]));
    assert_eq!(web.provider.provider(), Provider::Consul);
    web.wait_for("web", &[]).await;
    let instance = |check: &str, status: &str| {
        json!({
            "Node": "n1", "Address": "10.0.0.1", "NodeMeta": { "zone": "eu-1" },
            "Service": {
                "ID": "web-1", "Service": "web", "Port": 80, "Tags": ["v1"],
                "Meta": { "ironmesh-proxy": "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f" },
                "Weights": { "Passing": 8, "Warning": 3 }
            },
            "Check": { "Node": "n1", "CheckID": check, "Name": check, "Status": status, "ServiceID": "web-1" }
        })
    };
    consul.register_as(instance("works", "passing")).await;
    let found = web.wait_for("web", &["10.0.0.1"]).await;
    let endpoint = &found.endpoints[0];
    assert_eq!(endpoint.instance.as_deref(), Some("n1/web-1"));
    assert_eq!((endpoint.port, endpoint.weight, endpoint.health), (Some(80), 8, Health::Healthy));
    assert_eq!(endpoint.labels.to_string(), "v1=true");
    assert_eq!(endpoint.locality.to_string(), "/eu-1");
    assert!(endpoint.proxy.is_some());

    let becomes = async |health: Health, weight: u32| {
        eventually(&format!("{health} with {weight}"), async || {
            let found = web.of("web").unwrap();
            let now = (found.endpoints[0].health, found.endpoints[0].weight);
            if now == (health, weight) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    };
    consul.register_as(instance("works", "warning")).await;
    becomes(Health::Healthy, 3).await;
    consul.register_as(instance("works", "critical")).await;
    becomes(Health::Unhealthy, 8).await;
    consul.register_as(instance("_service_maintenance:web-1", "critical")).await;
    becomes(Health::Draining, 8).await;
}

#[tokio::test]
async fn services_with_equal_queries_share_endpoints_and_filters_apply() {
    let Some(consul) = Consul::dev().await else { return };
    for (id, address, tag) in [("a", "10.0.0.1", "v1"), ("b", "10.0.0.2", "v2 \"&+")] {
        let service = json!({
            "ID": id, "Service": "a web/ö", "Address": address, "Port": 80, "Tags": [tag],
            "TaggedAddresses": { "wan": { "Address": "192.0.2.1", "Port": 443 } }
        });
        let node =
            json!({ "Node": format!("node-{id}"), "Address": "10.255.0.1", "Service": service });
        consul.register_as(node).await;
    }
    let agent = FaultyAgent::start(consul.url(0), consul.spare_address()).await;
    let all = query("a web/ö");
    let second = ConsulQuery {
        filter: Some(r#"Service.Tags contains `v2 "&+`"#.into()),
        tagged_address: Some("wan".into()),
        ..all.clone()
    };
    let services =
        [("all", Some(all.clone())), ("same", Some(all)), ("second", Some(second)), ("none", None)];
    let watch = ProviderWatch::services(options(&[agent.url()]), services);
    let one = watch.wait_for("all", &["10.0.0.1", "10.0.0.2"]).await;
    let other = watch.wait_for("same", &["10.0.0.1", "10.0.0.2"]).await;
    assert!(Arc::ptr_eq(&one.endpoints, &other.endpoints));
    let second = watch.wait_for("second", &["192.0.2.1"]).await;
    assert_eq!(second.endpoints[0].port, Some(443));
    assert!(watch.of("none").is_none(), "its query is gone");

    // The state of an unchanged query stays; that of a removed query is forgotten.
    watch.provider.follow(&specification([("all", Some(query("a web/ö")))]));
    eventually("removal of the other services", async || match watch.now().services.len() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    assert!(Arc::ptr_eq(&watch.of("all").unwrap().endpoints, &one.endpoints));
}

#[tokio::test]
async fn invalid_consul_filter_affects_only_its_service() {
    let Some(consul) = Consul::dev().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let filtered = |filter: &str| ConsulQuery { filter: Some(filter.into()), ..query("web") };
    let services = |filter| [("web", Some(query("web"))), ("bad", Some(filtered(filter)))];
    let watch = ProviderWatch::services(options(&[consul.url(0)]), services("Service.ID == a"));
    watch.wait_for("bad", &["10.0.0.1"]).await;
    watch.provider.follow(&specification(services("nonsense ==")));
    watch.wait_for("web", &["10.0.0.1"]).await;
    eventually("the previous query to be forgotten", async || match watch.of("bad") {
        None => Ok(()),
        Some(found) => Err(format!("{found:?}")),
    })
    .await;
    consul.register("web", "b", "10.0.0.2").await;
    watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    watch.provider.follow(&specification(services("Service.ID == b")));
    watch.wait_for("bad", &["10.0.0.2"]).await;
}

/// Injects a fault and removes it; then an addition and a removal are seen.
async fn assert_tolerated(fault: AgentFault, see: impl AsyncFnOnce(&ProviderWatch)) {
    let Some(consul) = Consul::dev().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    consul.register("web", "b", "10.0.0.2").await;
    let agent = FaultyAgent::start(consul.url(0), consul.spare_address()).await;
    let web = ProviderWatch::web(options(&[agent.url()]));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    agent.set_fault(fault);
    see(&web).await;
    agent.set_fault(AgentFault::None);
    consul.register("web", "c", "10.0.0.3").await;
    web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    consul.deregister("a").await;
    web.wait_for("web", &["10.0.0.2", "10.0.0.3"]).await;
}

/// The service becomes stale with this reason, and keeps its endpoints.
async fn assert_stale_after(status: u16, body: &str, reason: &str) {
    assert_tolerated(
        AgentFault::Answer { status, index: 1_000_000, body: body.to_owned() },
        async |web| {
            let found = web.wait_until_service_stale("web", reason).await;
            assert_eq!(found.endpoints.len(), 2);
            assert!(web.now().stale.is_none(), "{:?}", web.now());
        },
    )
    .await;
}

#[tokio::test]
async fn invalid_json_keeps_known_endpoints() {
    assert_stale_after(200, "[{", "the answer cannot be read").await;
}

#[tokio::test]
async fn unexpected_json_shape_keeps_known_endpoints() {
    assert_stale_after(200, r#"{"web": []}"#, "the answer cannot be read").await;
}

#[tokio::test]
async fn http_500_keeps_known_endpoints() {
    assert_stale_after(500, "rpc error", "rpc error").await;
}

#[tokio::test]
async fn http_403_names_the_missing_permission() {
    assert_stale_after(403, "Permission denied", "the right to read this service").await;
}

#[tokio::test]
async fn unusable_entries_keep_the_endpoints_of_their_instances() {
    let entry = |node: &str, id: &str, address: Value, port: Value| {
        json!({
            "Node": { "Node": node, "Address": "10.255.0.1", "Unknown": {} },
            "Service": { "ID": id, "Service": "web", "Address": address, "Port": port, "New": [1] },
            "Checks": []
        })
    };
    let entries = json!([
        entry("node-a", "a", json!("host.example.com"), json!(8080)),
        entry("node-b", "b", json!("10.0.0.2"), json!("http")),
        entry("node-c", "c", json!("10.0.0.7"), json!(8080)),
        entry("node-d", "d", json!("10.0.0.7"), json!(8080)),
        entry("node-c", "c", json!("10.0.0.8"), json!(8080)),
        7
    ]);
    // The index is not ahead of the real one, which would block the next query.
    let fault = AgentFault::Answer { status: 200, index: 3, body: entries.to_string() };
    assert_tolerated(fault, async |web| {
        let found = web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.7"]).await;
        let of: Vec<_> = found.problems.iter().map(|problem| problem.instance.as_str()).collect();
        for instance in ["node-a/a", "node-b/b", "node-c/c", "node-d/d", "entry 5"] {
            assert!(of.contains(&instance), "{:?}", found.problems);
        }
    })
    .await;
}

#[tokio::test]
async fn empty_response_with_lower_index_is_not_authoritative() {
    let fault = AgentFault::Answer { status: 200, index: 3, body: "[]".to_owned() };
    assert_tolerated(fault, async |web| {
        eventually("an empty answer that is not authoritative", async || match web.of("web") {
            Some(found) if found.endpoints.is_empty() && !found.is_authoritative => Ok(()),
            found => Err(format!("{found:?}")),
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn acl_filtered_response_is_not_authoritative() {
    let filtered = AgentFault::Headers(vec![("X-Consul-Results-Filtered-By-ACLs", "true")]);
    let Some(consul) = Consul::dev().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let agent = FaultyAgent::start(consul.url(0), consul.spare_address()).await;
    let web = ProviderWatch::web(options(&[agent.url()]));
    web.wait_for("web", &["10.0.0.1"]).await;
    agent.set_fault(filtered);
    consul.register("web", "b", "10.0.0.2").await;
    eventually("two endpoints that are not authoritative", async || match web.of("web") {
        Some(found) if found.endpoints.len() == 2 && !found.is_authoritative => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
    agent.set_fault(AgentFault::None);
    consul.deregister("a").await;
    web.wait_for("web", &["10.0.0.2"]).await;
}

#[tokio::test]
async fn server_without_leader_keeps_known_endpoints_as_stale() {
    let headers = vec![("X-Consul-KnownLeader", "false")];
    assert_tolerated(AgentFault::Headers(headers), async |web| {
        web.wait_until_stale("knows of no leader").await;
        assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn server_with_old_leader_contact_keeps_known_endpoints_as_stale() {
    let headers = vec![("X-Consul-LastContact", "10001")];
    assert_tolerated(AgentFault::Headers(headers), async |web| {
        web.wait_until_stale("for more than 10 s").await;
        assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn network_partition_keeps_known_endpoints() {
    assert_tolerated(AgentFault::Silence, async |web| {
        web.wait_until_stale("no answer within").await;
        assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn agent_closing_connections_keeps_known_endpoints() {
    assert_tolerated(AgentFault::Closed, async |web| {
        web.wait_until_stale("no Consul agent can be used").await;
        assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    })
    .await;
}
