//! Faults of Consul, or of our access to it, under load: no request fails, no caller loses a host,
//! and later changes arrive.

use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::Consul;
use ironmesh_tests::consul::{AGENT, READ_ALL_RULES};
use serde_json::json;
use tokio::time::Instant;

use crate::faulty_agent::{AgentFault, FaultyAgent};
use crate::mesh::ConsulMesh;

const SERVICES_ONLY: &str = r#"service_prefix "" { policy = "read" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn missing_weak_or_revoked_token_fails_no_request() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    let good = consul.token("good", READ_ALL_RULES).await;
    let weak = consul.token("weak", SERVICES_ONLY).await;
    let file = consul.file("token");
    fs::write(&file, &good.secret).unwrap();
    let settings = format!(
        "consul = {{ agents = [\"{}\"], token_file = \"{}\" }}",
        consul.url(0),
        file.display()
    );
    let Some(mut setup) = ConsulMesh::open(consul, &settings).await else { return };
    // A running control plane keeps its token if the file vanishes: it is missing only at a start.
    setup
        .assert_tolerated("the token is missing at a start", async |setup| {
            fs::remove_file(&file).unwrap();
            setup.mesh.restart_control_plane().await;
            setup.wait_for_finding("IM0501", "token file").await;
            setup.wait_for_load().await;
            fs::write(&file, &good.secret).unwrap();
        })
        .await;
    setup
        .assert_tolerated("the token is weak", async |setup| {
            fs::write(&file, &weak.secret).unwrap();
            setup.wait_for_finding("IM0501", "may read no node").await;
            setup.wait_for_load().await;
            fs::write(&file, &good.secret).unwrap();
        })
        .await;
    setup
        .assert_tolerated("the token loses its rights", async |setup| {
            setup.consul.change_policy("good", SERVICES_ONLY).await;
            setup.wait_for_finding("IM0501", "may read no node").await;
            setup.wait_for_load().await;
            setup.consul.change_policy("good", READ_ALL_RULES).await;
        })
        .await;
    setup
        .assert_tolerated("the token is revoked", async |setup| {
            setup.consul.revoke(&good).await;
            setup.wait_for_finding("IM0501", "does not know the token").await;
            setup.wait_for_load().await;
            let another = setup.consul.token("another", READ_ALL_RULES).await;
            fs::write(&file, &another.secret).unwrap();
        })
        .await;
    setup.close().await;
}

/// Opens the mesh with a faulty agent between it and Consul.
async fn open_with_faulty_agent() -> Option<(ConsulMesh, FaultyAgent)> {
    let consul = Consul::dev().await?;
    let agent = FaultyAgent::start(consul.url(0), consul.spare_address()).await;
    let settings = format!("consul.agents = [\"{}\"]", agent.url());
    Some((ConsulMesh::open(consul, &settings).await?, agent))
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_consul_responses_fail_no_request() {
    let Some((mut setup, agent)) = open_with_faulty_agent().await else { return };
    let answer =
        |status, body: &str| AgentFault::Answer { status, index: 3, body: body.to_owned() };
    for (what, fault, words) in [
        ("JSON that is none", answer(200, "[{"), "the answer cannot be read"),
        ("an answer of the wrong type", answer(200, r#"{"a": []}"#), "the answer cannot be read"),
        ("an agent that fails at one question", answer(500, "rpc error"), "rpc error"),
    ] {
        setup
            .assert_tolerated(what, async |setup| {
                agent.set_fault(fault);
                setup.wait_for_finding("IM0501", words).await;
                setup.wait_for_load().await;
                agent.set_fault(AgentFault::None);
            })
            .await;
    }
    setup
        .assert_tolerated("the index goes backwards, and the list is empty", async |setup| {
            agent.set_fault(answer(200, "[]"));
            setup.wait_for_finding("IM0502", "reports 0 of 3 healthy endpoints").await;
            setup.wait_for_load().await;
            agent.set_fault(AgentFault::None);
            // Until all are known again, a removal may be an instance that is not known again yet.
            setup.wait_until_healthy().await;
        })
        .await;
    setup
        .assert_tolerated("unknown fields and entries of no use", async |setup| {
            let none = json!({});
            let entries = json!([
                setup
                    .entry("a", &json!({ "Address": "host.example.com", "Unknown": { "x": [1] } })),
                setup.entry("b", &json!({ "Port": "http" })),
                setup.entry("c", &none),
                setup.entry("c", &json!({ "Port": 9999 })),
            ]);
            agent.set_fault(answer(200, &entries.to_string()));
            setup.wait_for_finding("IM0503", "node-a/a").await;
            setup.wait_for_finding("IM0503", "node-b/b").await;
            setup.wait_for_finding("IM0503", "node-c/c").await;
            setup.wait_for_load().await;
            agent.set_fault(AgentFault::None);
        })
        .await;
    setup
        .assert_tolerated("slow answers", async |setup| {
            agent.set_fault(AgentFault::Slow);
            let requests = agent.requests();
            while agent.requests() < requests + 3 {
                setup.wait_for_load().await;
            }
            agent.set_fault(AgentFault::None);
        })
        .await;
    setup
        .assert_tolerated("the agent forgets all", async |setup| {
            setup.consul.kill(0).await;
            setup.wait_for_finding("IM0501", "no Consul agent can be used").await;
            setup.wait_for_load().await;
            setup.consul.start(0);
            setup.consul.ready().await;
            setup.wait_for_finding("IM0502", "reports 0 of 3 healthy endpoints").await;
            setup.wait_for_load().await;
            setup.register_all().await;
            setup.wait_until_healthy().await;
        })
        .await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_partition_of_a_minute_fails_no_request() {
    let Some((mut setup, agent)) = open_with_faulty_agent().await else { return };
    setup
        .assert_tolerated("a partition of 60 s", async |setup| {
            agent.set_fault(AgentFault::Silence);
            let started_at = Instant::now();
            setup.wait_for_finding("IM0501", "no answer within").await;
            while started_at.elapsed() < Duration::from_secs(60) {
                setup.wait_for_load().await;
            }
            agent.set_fault(AgentFault::None);
        })
        .await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_server_failures_fail_no_request() {
    let Some(consul) = Consul::cluster().await else { return };
    let token = consul.token("mesh", READ_ALL_RULES).await;
    fs::write(consul.file("token"), token.secret).unwrap();
    let file = |name: &str| consul.file(name).display().to_string();
    let agents = [0, 1, 2, AGENT].map(|agent| consul.url(agent));
    let settings = format!(
        "consul = {{ agents = {}, token_file = {}, ca = {}, certificate = {}, key = {} }}",
        json!(agents),
        json!(file("token")),
        json!(file("ca.pem")),
        json!(file("client.pem")),
        json!(file("client.key")),
    );
    let Some(mut setup) = ConsulMesh::open(consul, &settings).await else { return };
    let mut dead = 0;
    setup
        .assert_tolerated("the leader is killed", async |setup| {
            dead = setup.consul.leader().await;
            setup.consul.kill(dead).await;
            setup.wait_for_load().await;
            // Another leader is elected.
            setup.consul.leader().await;
        })
        .await;
    setup
        .assert_tolerated("the quorum is lost", async |setup| {
            let another = (dead + 1) % AGENT;
            setup.consul.kill(another).await;
            setup.wait_for_finding("IM0501", "no Consul agent can be used").await;
            setup.wait_for_load().await;
            setup.consul.start(dead);
            setup.consul.start(another);
            setup.consul.ready().await;
        })
        .await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_churn_fails_no_request() {
    let Some(consul) = Consul::dev().await else { return };
    let settings = format!("consul.agents = [\"{}\"]", consul.url(0));
    let Some(mut setup) = ConsulMesh::open(consul, &settings).await else { return };
    // This removal is seen, or the other tests of this file would see nothing either.
    let others = setup.watch_hosts();
    for round in 0..20 {
        setup.assert_follows_changes(&format!("round {round}")).await;
    }
    others.assert_incomplete("a removal and an addition").await;
    setup.close().await;
}
