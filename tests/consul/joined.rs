//! Instances that join a service by a tag.

use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::consul::ConsulOptions;
use ironmesh_tests::Consul;
use serde_json::json;

use crate::answers::options;
use crate::watching::{Watching, query, specification};

async fn register(consul: &Consul, service: &str, id: &str, address: &str, tags: &[&str]) {
    consul
        .register_as(json!({
            "Node": format!("node-{id}"), "Address": "10.255.0.1",
            "Service": { "ID": id, "Service": service, "Address": address, "Port": 80, "Tags": tags }
        }))
        .await;
}

#[tokio::test]
async fn an_instance_joins_the_service_that_its_tag_names_if_policy_defines_it() {
    let Some(consul) = Consul::dev().await else { return };
    let shop = "ironmesh-service=default/shop";
    register(&consul, "shop", "own", "10.0.0.1", &[]).await;
    register(&consul, "shop", "both", "10.0.0.2", &[shop]).await;
    register(&consul, "other", "tagged", "10.0.0.3", &[shop, "v2"]).await;
    register(&consul, "other", "untagged", "10.0.0.4", &[]).await;
    register(&consul, "third", "stray", "10.0.0.5", &["ironmesh-service=default/unknown"]).await;
    register(&consul, "third", "joins", "10.0.0.6", &["ironmesh-service=joined"]).await;
    let by_tag = ConsulOptions { join_by_tag: true, ..options(&[consul.url(0)]) };
    let services = [("shop", Some(query("shop"))), ("joined", None), ("alone", None)];
    let watching = Watching::services(by_tag, services);
    let found = watching.finds("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    assert_eq!(*found.problems, [], "who is found by both is no problem");
    assert_eq!(found.endpoints[2].labels.to_string(), "v2=true");
    watching.finds("joined", &["10.0.0.6"]).await;
    watching.finds("alone", &[]).await;
    assert_eq!(watching.now().services.len(), 3, "a tag makes no service");

    // No edit anywhere: a new instance joins, and one leaves.
    register(&consul, "fourth", "new", "10.0.0.7", &[shop]).await;
    watching.finds("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.7"]).await;
    consul.deregister("tagged").await;
    watching.finds("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.7"]).await;
    consul.deregister("joins").await;
    watching.finds("joined", &[]).await;
    watching.provider.follow(&specification([("shop", None)]));
    watching.finds("shop", &["10.0.0.2", "10.0.0.7"]).await;
}

#[tokio::test]
async fn without_the_option_tags_join_nothing() {
    let Some(consul) = Consul::dev().await else { return };
    register(&consul, "shop", "own", "10.0.0.1", &[]).await;
    register(&consul, "other", "tagged", "10.0.0.3", &["ironmesh-service=default/shop"]).await;
    let services = [("shop", Some(query("shop"))), ("joined", None)];
    let watching = Watching::services(options(&[consul.url(0)]), services);
    watching.finds("shop", &["10.0.0.1"]).await;
    assert!(watching.of("joined").is_none());
}
