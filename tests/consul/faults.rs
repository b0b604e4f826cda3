//! What may happen to Consul, or to our standing with it, while a mesh is called that depends on it: no request
//! fails, no caller loses a host, and what really changes afterwards arrives.

use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::Consul;
use ironmesh_tests::consul::{AGENT, READS_ALL};
use serde_json::json;
use tokio::time::Instant;

use crate::liar::{Fault, Liar};
use crate::shop::Shop;

const SERVICES_ONLY: &str = r#"service_prefix "" { policy = "read" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn missing_weak_or_revoked_token_fails_no_request() {
    let Some(consul) = Consul::dev_with_tokens().await else { return };
    let good = consul.token("good", READS_ALL).await;
    let weak = consul.token("weak", SERVICES_ONLY).await;
    let file = consul.file("token");
    fs::write(&file, &good.secret).unwrap();
    let settings = format!(
        "consul = {{ agents = [\"{}\"], token_file = \"{}\" }}",
        consul.url(0),
        file.display()
    );
    let Some(mut shop) = Shop::open(consul, &settings).await else { return };
    // While we run, the token from before is used where its file is gone: it is missing at a start alone.
    shop.survives("the token is missing at a start", async |shop| {
        fs::remove_file(&file).unwrap();
        shop.mesh.restart_control_plane().await;
        shop.tells("IM0501", "token file").await;
        shop.some_more().await;
        fs::write(&file, &good.secret).unwrap();
    })
    .await;
    shop.survives("the token is weak", async |shop| {
        fs::write(&file, &weak.secret).unwrap();
        shop.tells("IM0501", "may read no node").await;
        shop.some_more().await;
        fs::write(&file, &good.secret).unwrap();
    })
    .await;
    shop.survives("the token loses its rights", async |shop| {
        shop.consul.change_policy("good", SERVICES_ONLY).await;
        shop.tells("IM0501", "may read no node").await;
        shop.some_more().await;
        shop.consul.change_policy("good", READS_ALL).await;
    })
    .await;
    shop.survives("the token is revoked", async |shop| {
        shop.consul.revoke(&good).await;
        shop.tells("IM0501", "does not know the token").await;
        shop.some_more().await;
        let another = shop.consul.token("another", READS_ALL).await;
        fs::write(&file, &another.secret).unwrap();
    })
    .await;
    shop.close().await;
}

/// Opens the shop with somebody between it and its Consul.
async fn open_behind_a_liar() -> Option<(Shop, Liar)> {
    let consul = Consul::dev().await?;
    let liar = Liar::before(consul.url(0), consul.address_of_its_own()).await;
    let settings = format!("consul.agents = [\"{}\"]", liar.url());
    Some((Shop::open(consul, &settings).await?, liar))
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_consul_responses_fail_no_request() {
    let Some((mut shop, liar)) = open_behind_a_liar().await else { return };
    let answer = |status, body: &str| Fault::Answer { status, index: 3, body: body.to_owned() };
    for (what, fault, words) in [
        ("JSON that is none", answer(200, "[{"), "the answer cannot be read"),
        ("an answer of the wrong type", answer(200, r#"{"a": []}"#), "the answer cannot be read"),
        ("an agent that fails at one question", answer(500, "rpc error"), "rpc error"),
    ] {
        shop.survives(what, async |shop| {
            liar.be(fault);
            shop.tells("IM0501", words).await;
            shop.some_more().await;
            liar.be(Fault::None);
        })
        .await;
    }
    shop.survives("the index goes backwards, and nobody is there", async |shop| {
        liar.be(answer(200, "[]"));
        shop.tells("IM0502", "has 0 of 3 healthy endpoints").await;
        shop.some_more().await;
        liar.be(Fault::None);
        // Until all are known again, one that goes may be one that is not known again yet.
        shop.is_well().await;
    })
    .await;
    shop.survives("unknown fields and entries of no use", async |shop| {
        let none = json!({});
        let entries = json!([
            shop.entry("a", &json!({ "Address": "host.example.com", "Unknown": { "x": [1] } })),
            shop.entry("b", &json!({ "Port": "http" })),
            shop.entry("c", &none),
            shop.entry("c", &json!({ "Port": 9999 })),
        ]);
        liar.be(answer(200, &entries.to_string()));
        shop.tells("IM0503", "node-a/a").await;
        shop.tells("IM0503", "node-b/b").await;
        shop.tells("IM0503", "node-c/c").await;
        shop.some_more().await;
        liar.be(Fault::None);
    })
    .await;
    shop.survives("slow answers", async |shop| {
        liar.be(Fault::Slowness);
        let asked = liar.asked();
        while liar.asked() < asked + 3 {
            shop.some_more().await;
        }
        liar.be(Fault::None);
    })
    .await;
    shop.survives("the agent forgets all", async |shop| {
        shop.consul.kill(0).await;
        shop.tells("IM0501", "no Consul agent can be used").await;
        shop.some_more().await;
        shop.consul.start(0);
        shop.consul.ready().await;
        shop.tells("IM0502", "has 0 of 3 healthy endpoints").await;
        shop.some_more().await;
        shop.register_all().await;
        shop.is_well().await;
    })
    .await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_partition_of_a_minute_fails_no_request() {
    let Some((mut shop, liar)) = open_behind_a_liar().await else { return };
    shop.survives("a partition of 60 s", async |shop| {
        liar.be(Fault::Silence);
        let begun = Instant::now();
        shop.tells("IM0501", "no answer within").await;
        while begun.elapsed() < Duration::from_secs(60) {
            shop.some_more().await;
        }
        liar.be(Fault::None);
    })
    .await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_server_failures_fail_no_request() {
    let Some(consul) = Consul::cluster().await else { return };
    let token = consul.token("mesh", READS_ALL).await;
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
    let Some(mut shop) = Shop::open(consul, &settings).await else { return };
    let mut dead = 0;
    shop.survives("the leader is killed", async |shop| {
        dead = shop.consul.leader().await;
        shop.consul.kill(dead).await;
        shop.some_more().await;
        // There is another.
        shop.consul.leader().await;
    })
    .await;
    shop.survives("the quorum is lost", async |shop| {
        let another = (dead + 1) % AGENT;
        shop.consul.kill(another).await;
        shop.tells("IM0501", "no Consul agent can be used").await;
        shop.some_more().await;
        shop.consul.start(dead);
        shop.consul.start(another);
        shop.consul.ready().await;
    })
    .await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_churn_fails_no_request() {
    let Some(consul) = Consul::dev().await else { return };
    let settings = format!("consul.agents = [\"{}\"]", consul.url(0));
    let Some(mut shop) = Shop::open(consul, &settings).await else { return };
    // That hosts go is seen, or the other tests of this file would see nothing either.
    let others = shop.roll_call();
    for round in 0..20 {
        shop.follows(&format!("round {round}")).await;
    }
    others.was_incomplete("who goes and who comes").await;
    shop.close().await;
}
