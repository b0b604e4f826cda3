//! Three servers and an agent with mutual TLS, ACLs and encrypted gossip, some of which die.

use fs_err as fs;
use ironmesh_providers::consul::ConsulOptions;
use ironmesh_tests::Consul;
use ironmesh_tests::consul::{AGENT, READ_ALL_RULES};

use crate::watch::{ProviderWatch, query};

async fn options(consul: &Consul, agents: &[u8]) -> ConsulOptions {
    let token = consul.token("mesh", READ_ALL_RULES).await;
    let file = consul.file("token");
    fs::write(&file, token.secret).unwrap();
    ConsulOptions {
        agents: agents.iter().map(|agent| consul.url(*agent)).collect(),
        token_file: Some(file),
        ca: Some(consul.file("ca.pem")),
        certificate: Some(consul.file("client.pem")),
        key: Some(consul.file("client.key")),
        ..ConsulOptions::default()
    }
}

#[tokio::test]
async fn server_failures_have_no_effect_until_quorum_is_lost() {
    let Some(mut consul) = Consul::cluster().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let whole = options(&consul, &[0, 1, 2]).await;
    let of_agent = ConsulOptions { agents: vec![consul.url(AGENT)], ..whole.clone() };
    let through_agent = ProviderWatch::web(of_agent);
    through_agent.wait_for("web", &["10.0.0.1"]).await;
    let web = ProviderWatch::web(whole);
    web.wait_for("web", &["10.0.0.1"]).await;

    // kill -9 of the leader: the others elect another.
    let leader = consul.leader().await;
    consul.kill(leader).await;
    consul.register("web", "b", "10.0.0.2").await;
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    through_agent.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    consul.deregister("a").await;
    web.wait_for("web", &["10.0.0.2"]).await;
    through_agent.wait_for("web", &["10.0.0.2"]).await;

    // One of three is left: its state may be old.
    let another = (leader + 1) % 3;
    consul.kill(another).await;
    let reason = web.wait_until_stale("no Consul agent can be used").await;
    for server in 0..3 {
        assert!(reason.contains(&consul.url(server)), "{reason}");
    }
    // The last server may be queried before it notices the loss.
    for watch in [&web, &through_agent] {
        watch.wait_until_stale("no Consul agent can be used").await;
        let found = watch.of("web").unwrap();
        let addresses: Vec<_> = found.endpoints.iter().map(|one| one.address.to_string()).collect();
        assert!(addresses.iter().any(|address| address == "10.0.0.2"), "{addresses:?}");
    }

    consul.start(leader);
    consul.start(another);
    consul.register("web", "c", "10.0.0.3").await;
    consul.deregister("b").await;
    web.wait_for("web", &["10.0.0.3"]).await;
    through_agent.wait_for("web", &["10.0.0.3"]).await;
}

#[tokio::test]
async fn queries_over_tls_share_few_connections() {
    let Some(consul) = Consul::cluster().await else { return };
    let names: Vec<String> = (0..450).map(|n| format!("s{n}")).collect();
    let services = names.iter().map(|name| (name.as_str(), Some(query(name))));
    // Without HTTP/2 each would take a connection, and the agent rejects more than 200 by default.
    let watch = ProviderWatch::services(options(&consul, &[AGENT]).await, services);
    for name in &names {
        watch.wait_for(name, &[]).await;
    }
    let connections = consul.connections(AGENT);
    assert!((1..=4).contains(&connections), "{connections}");
    for name in ["s0", "s449"] {
        consul.register(name, name, "10.0.0.1").await;
        watch.wait_for(name, &["10.0.0.1"]).await;
    }
}

#[tokio::test]
async fn tls_misconfiguration_is_reported_with_its_cause() {
    let Some(consul) = Consul::cluster().await else { return };
    let whole = options(&consul, &[0]).await;
    let unknown = ConsulOptions { certificate: None, key: None, ..whole.clone() };
    ProviderWatch::web(unknown).wait_until_stale("set `certificate` and `key`").await;
    let untrusting = ConsulOptions { ca: Some(consul.file("client.pem")), ..whole };
    ProviderWatch::web(untrusting).wait_until_stale("invalid peer certificate").await;
}

#[tokio::test]
async fn replaced_ca_file_is_reloaded_and_an_invalid_one_ignored() {
    let Some(consul) = Consul::cluster().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let whole = options(&consul, &[0]).await;
    let ca = consul.file("mesh-ca.pem");
    fs::copy(consul.file("client.pem"), &ca).unwrap();
    let web = ProviderWatch::web(ConsulOptions { ca: Some(ca.clone()), ..whole });
    web.wait_until_stale("invalid peer certificate").await;
    fs::copy(consul.file("ca.pem"), &ca).unwrap();
    web.wait_for("web", &["10.0.0.1"]).await;
    // A half-written file disconnects nothing.
    fs::write(&ca, "").unwrap();
    consul.register("web", "b", "10.0.0.2").await;
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    // A valid file is loaded also while all is well.
    fs::copy(consul.file("client.pem"), &ca).unwrap();
    web.wait_until_stale("invalid peer certificate").await;
    assert_eq!(web.of("web").unwrap().endpoints.len(), 2);
    fs::copy(consul.file("ca.pem"), &ca).unwrap();
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
}
