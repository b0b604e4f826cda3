//! Instances that become endpoints of a service by a tag.

use std::sync::Arc;

use fs_err as fs;
use ironmesh_catalog::Service;
use ironmesh_catalog::service::{External, Resolution};
use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::consul::ConsulOptions;
use ironmesh_tests::consul::READ_ALL_RULES;
use ironmesh_tests::{Consul, eventually};
use serde_json::json;

use crate::answers::options;
use crate::watch::{ProviderWatch, query, specification};

async fn register(consul: &Consul, service: &str, id: &str, address: &str, tags: &[&str]) {
    consul
        .register_as(json!({
            "Node": format!("node-{id}"), "Address": "10.255.0.1",
            "Service": { "ID": id, "Service": service, "Address": address, "Port": 80, "Tags": tags }
        }))
        .await;
}

#[tokio::test]
async fn tagged_instance_becomes_an_endpoint_of_its_defined_service() {
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
    let watch = ProviderWatch::services(by_tag, services);
    let found = watch.wait_for("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    assert_eq!(*found.problems, [], "an instance found twice is no problem");
    assert_eq!(found.endpoints[2].labels.to_string(), "v2=true");
    watch.wait_for("joined", &["10.0.0.6"]).await;
    watch.wait_for("alone", &[]).await;
    assert_eq!(watch.now().services.len(), 3, "a tag makes no service");

    // No edit anywhere: a new instance is added, and one leaves.
    register(&consul, "fourth", "new", "10.0.0.7", &[shop]).await;
    watch.wait_for("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.7"]).await;
    consul.deregister("tagged").await;
    watch.wait_for("shop", &["10.0.0.1", "10.0.0.2", "10.0.0.7"]).await;
    consul.deregister("joins").await;
    watch.wait_for("joined", &[]).await;
    watch.provider.follow(&specification([("shop", None)]));
    watch.wait_for("shop", &["10.0.0.2", "10.0.0.7"]).await;

    // A tag cannot name an external service.
    let mut policy = Arc::unwrap_or_clone(specification([("shop", None)]));
    for service in policy.services.clone().values() {
        let external = Some(External { hostname: None, resolution: Resolution::Static });
        let service = Service { external, ..Service::clone(service) };
        policy.services.insert(service.name.clone(), Arc::new(service));
    }
    watch.provider.follow(&Arc::new(policy));
    eventually("nothing of Consul", async || match watch.of("shop") {
        None => Ok(()),
        Some(found) => Err(format!("{found:?}")),
    })
    .await;
}

#[tokio::test]
async fn service_tags_are_ignored_without_join_by_tag() {
    let Some(consul) = Consul::dev().await else { return };
    register(&consul, "shop", "own", "10.0.0.1", &[]).await;
    register(&consul, "other", "tagged", "10.0.0.3", &["ironmesh-service=default/shop"]).await;
    let services = [("shop", Some(query("shop"))), ("joined", None)];
    let watch = ProviderWatch::services(options(&[consul.url(0)]), services);
    watch.wait_for("shop", &["10.0.0.1"]).await;
    assert!(watch.of("joined").is_none());
}

/// Waits until a service has these endpoints and is not authoritative.
async fn wait_until_unconfirmed(watch: &ProviderWatch, service: &str, addresses: &[&str]) {
    eventually(&format!("{service} unconfirmed"), async || {
        let found = watch.of(service).ok_or_else(|| format!("{:?}", watch.now()))?;
        let at: Vec<_> = found.endpoints.iter().map(|found| found.address.to_string()).collect();
        if at == addresses && !found.is_authoritative { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test]
async fn empty_restarted_agent_is_not_authoritative_for_tags() {
    let Some(mut consul) = Consul::dev().await else { return };
    let shop = "ironmesh-service=default/shop";
    register(&consul, "other", "tagged", "10.0.0.1", &[shop]).await;
    let by_tag = ConsulOptions { join_by_tag: true, ..options(&[consul.url(0)]) };
    let watch = ProviderWatch::services(by_tag, [("shop", None), ("late", None)]);
    watch.wait_for("shop", &["10.0.0.1"]).await;
    watch.wait_for("late", &[]).await;
    // A restarted agent is known by an index lower than the last that was seen, and reaches some index by itself.
    for n in 0..50 {
        register(&consul, "fourth", "changing", &format!("10.0.1.{n}"), &[]).await;
    }
    register(&consul, "fifth", "seen", "10.0.0.9", &[shop]).await;
    watch.wait_for("shop", &["10.0.0.1", "10.0.0.9"]).await;
    consul.deregister("seen").await;
    watch.wait_for("shop", &["10.0.0.1"]).await;
    consul.kill(0).await;
    watch.wait_until_stale("no Consul agent can be used").await;
    consul.start(0);
    consul.ready().await;
    wait_until_unconfirmed(&watch, "shop", &[]).await;
    // A change, after which tags are reported again, still by an agent that has lost its memory.
    register(&consul, "third", "stray", "10.0.0.5", &[]).await;
    watch.provider.follow(&specification([("shop", None), ("later", None)]));
    wait_until_unconfirmed(&watch, "shop", &[]).await;
    wait_until_unconfirmed(&watch, "later", &[]).await;
    register(&consul, "other", "tagged", "10.0.0.1", &[shop]).await;
    watch.wait_for("shop", &["10.0.0.1"]).await;
    watch.wait_for("later", &[]).await;
}

#[tokio::test]
async fn restricted_token_is_not_authoritative_for_tags() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    register(&consul, "other", "tagged", "10.0.0.1", &["ironmesh-service=default/shop"]).await;
    consul.register("web", "a", "10.0.0.2").await;
    let rules = r#"service "web" { policy = "read" } node_prefix "" { policy = "read" }"#;
    let [narrow, good] =
        [consul.token("narrow", rules).await, consul.token("good", READ_ALL_RULES).await];
    let file = consul.file("token");
    fs::write(&file, &narrow.secret).unwrap();
    let by_tag = ConsulOptions {
        join_by_tag: true,
        token_file: Some(file.clone()),
        ..options(&[consul.url(0)])
    };
    let watch = ProviderWatch::services(by_tag, [("shop", None), ("web", Some(query("web")))]);
    wait_until_unconfirmed(&watch, "shop", &[]).await;
    wait_until_unconfirmed(&watch, "web", &["10.0.0.2"]).await;
    fs::write(&file, &good.secret).unwrap();
    watch.wait_for("shop", &["10.0.0.1"]).await;
    watch.wait_for("web", &["10.0.0.2"]).await;
}
