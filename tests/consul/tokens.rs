//! Missing, unknown, weak, revoked or replaced tokens. Consul answers most of them as if there were
//! no instances.

use fs_err as fs;
use ironmesh_catalog::ConsulQuery;
use ironmesh_providers::consul::ConsulOptions;
use ironmesh_tests::consul::READ_ALL_RULES;
use ironmesh_tests::{Consul, eventually};

use crate::answers::options;
use crate::watch::{ProviderWatch, query};

#[tokio::test]
async fn missing_token_reports_the_required_permissions() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let web = ProviderWatch::web(options(&[consul.url(0)]));
    let reason = web.wait_until_stale("none is set; name a file as `token_file`").await;
    assert!(reason.contains(READ_ALL_RULES), "{reason}");
    assert!(web.of("web").is_none());
}

#[tokio::test]
async fn token_file_is_reloaded_and_weak_tokens_are_reported() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    consul.register("web", "b", "10.0.0.2").await;
    let file = consul.file("token");
    let with_file = ConsulOptions { token_file: Some(file.clone()), ..options(&[consul.url(0)]) };
    let services = [("web", Some(query("web"))), ("db", Some(query("db")))];
    let watch = ProviderWatch::services(with_file, services);
    watch.wait_until_stale("token file").await;

    let unknown = "7a1f9f8e-5d55-4d0a-8f0e-0d5b4f0f4d10";
    let node = r#"node_prefix "" { policy = "read" }"#;
    let service = r#"service_prefix "" { policy = "read" }"#;
    let reads_web = format!(r#"service "web" {{ policy = "read" }} {node}"#);
    let [services_only, nodes_only, narrow, good] = [
        consul.token("services", service).await,
        consul.token("nodes", node).await,
        consul.token("narrow", &reads_web).await,
        consul.token("good", READ_ALL_RULES).await,
    ];
    fs::write(&file, unknown).unwrap();
    watch.wait_until_stale("does not know the token").await;
    fs::write(&file, &services_only.secret).unwrap();
    watch.wait_until_stale("may read no node").await;
    fs::write(&file, &nodes_only.secret).unwrap();
    watch.wait_until_stale("may read no service").await;
    assert!(watch.now().services.is_empty());

    // The token reads `web` and not `db`, so it is unknown whether `db` has instances.
    fs::write(&file, format!("{}\n", narrow.secret)).unwrap();
    watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    eventually("nothing of `db` to rely on", async || match watch.of("db") {
        Some(found) if found.endpoints.is_empty() && !found.is_authoritative => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
    fs::write(&file, &good.secret).unwrap();
    watch.wait_for("db", &[]).await;

    // From a good token to a weak one: known endpoints stay, whatever Consul answers.
    fs::write(&file, &services_only.secret).unwrap();
    watch.wait_until_stale("may read no node").await;
    assert_eq!(watch.of("web").unwrap().endpoints.len(), 2);
    fs::write(&file, &good.secret).unwrap();
    watch.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;

    consul.revoke(&good).await;
    watch.wait_until_stale("does not know the token").await;
    assert_eq!(watch.of("web").unwrap().endpoints.len(), 2);
    let another = consul.token("another", READ_ALL_RULES).await;
    fs::write(&file, &another.secret).unwrap();
    consul.deregister("a").await;
    watch.wait_for("web", &["10.0.0.2"]).await;
    consul.register("web", "c", "10.0.0.3").await;
    watch.wait_for("web", &["10.0.0.2", "10.0.0.3"]).await;
}

#[tokio::test]
async fn token_losing_permissions_keeps_known_endpoints() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let token = consul.token("mesh", READ_ALL_RULES).await;
    let file = consul.file("token");
    fs::write(&file, &token.secret).unwrap();
    let with_file = ConsulOptions { token_file: Some(file), ..options(&[consul.url(0)]) };
    let web = ProviderWatch::web(with_file);
    web.wait_for("web", &["10.0.0.1"]).await;
    consul.change_policy("mesh", r#"service_prefix "" { policy = "read" }"#).await;
    // A change of the service lets its query return, with an empty list.
    consul.register("web", "b", "10.0.0.2").await;
    web.wait_until_stale("may read no node").await;
    assert_eq!(web.of("web").unwrap().endpoints.len(), 1);
    consul.change_policy("mesh", READ_ALL_RULES).await;
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    consul.deregister("a").await;
    consul.deregister("b").await;
    web.wait_for("web", &[]).await;
}

#[tokio::test]
async fn agent_rejecting_the_token_is_replaced_by_the_next_one() {
    let Some(strict) = Consul::dev_with_tokens().await else { return };
    let Some(open) = Consul::dev().await else { return };
    open.register("web", "a", "10.0.0.1").await;
    let web = ProviderWatch::web(options(&[strict.url(0), open.url(0)]));
    web.wait_for("web", &["10.0.0.1"]).await;
    drop(open);
    let reason = web.wait_until_stale("no Consul agent can be used").await;
    assert!(reason.contains("name a file as `token_file`"), "{reason}");
    assert_eq!(web.of("web").unwrap().endpoints.len(), 1);
}

#[tokio::test]
async fn empty_response_of_unchecked_datacenter_is_not_authoritative() {
    let Some(consul) = Consul::dev().await else { return };
    let elsewhere = ConsulQuery { datacenter: Some("dc1".into()), ..query("web") };
    let services = || [("here", Some(query("web"))), ("elsewhere", Some(elsewhere.clone()))];
    let watch = ProviderWatch::services(options(&[consul.url(0)]), services());
    watch.wait_for("here", &[]).await;
    eventually("an empty answer that is not authoritative", async || match watch.of("elsewhere") {
        Some(found) if found.endpoints.is_empty() && !found.is_authoritative => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
    consul.register("web", "a", "10.0.0.1").await;
    watch.wait_for("elsewhere", &["10.0.0.1"]).await;
    consul.deregister("a").await;
    // The settings name the datacenter, so the token is tried there.
    let named = ConsulOptions { datacenter: Some("dc1".into()), ..options(&[consul.url(0)]) };
    ProviderWatch::services(named, services()).wait_for("elsewhere", &[]).await;
}
