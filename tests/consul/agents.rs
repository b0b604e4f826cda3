//! Agents that die, come back empty, or are many.

use ironmesh_catalog::{ConsulQuery, ServiceName};
use ironmesh_tests::{Consul, eventually};

use crate::answers::options;
use crate::faulty_agent::{AgentFault, FaultyAgent};
use crate::watch::{ProviderWatch, query};
use ironmesh_providers::consul::ConsulOptions;

#[tokio::test]
async fn empty_restarted_agent_is_not_authoritative_until_repopulated() {
    let Some(mut consul) = Consul::dev().await else { return };
    for (id, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        consul.register("web", id, address).await;
    }
    let web = ProviderWatch::web(options(&[consul.url(0)]));
    web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    consul.kill(0).await;
    let reason = web.wait_until_stale("no Consul agent can be used").await;
    assert!(reason.contains(&consul.url(0)), "{reason}");
    assert_eq!(web.of("web").unwrap().endpoints.len(), 3);

    consul.start(0);
    consul.ready().await;
    eventually("an empty answer that is not authoritative", async || match web.of("web") {
        Some(found) if found.endpoints.is_empty() && !found.is_authoritative => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
    for (id, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("d", "10.0.0.4")] {
        consul.register("web", id, address).await;
    }
    web.wait_for("web", &["10.0.0.1", "10.0.0.2", "10.0.0.4"]).await;
    // Now the agent knows as much as before, and a scale to zero is plausible.
    for id in ["a", "b", "d"] {
        consul.deregister(id).await;
    }
    web.wait_for("web", &[]).await;
}

#[tokio::test]
async fn silent_agent_is_replaced_by_the_next_one() {
    let Some(consul) = Consul::dev().await else { return };
    consul.register("web", "a", "10.0.0.1").await;
    let own = consul.spare_address();
    let [one, other] = [
        FaultyAgent::start(consul.url(0), own).await,
        FaultyAgent::start(consul.url(0), own).await,
    ];
    let web = ProviderWatch::web(options(&[one.url(), other.url()]));
    web.wait_for("web", &["10.0.0.1"]).await;
    assert_eq!(other.requests(), 0);
    for fault in [AgentFault::Silence, AgentFault::Closed] {
        one.set_fault(fault);
        consul.register("web", "b", "10.0.0.2").await;
        web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
        one.set_fault(AgentFault::None);
        other.set_fault(AgentFault::Closed);
        consul.deregister("b").await;
        web.wait_for("web", &["10.0.0.1"]).await;
        other.set_fault(AgentFault::None);
    }
}

#[tokio::test]
async fn failure_of_single_queries_does_not_switch_agents() {
    let Some(consul) = Consul::dev().await else { return };
    consul.register("other", "a", "10.0.0.1").await;
    let own = consul.spare_address();
    let [one, other] = [
        FaultyAgent::start(consul.url(0), own).await,
        FaultyAgent::start(consul.url(0), own).await,
    ];
    let bad = ConsulQuery { filter: Some("nonsense ==".into()), ..query("bad") };
    let services =
        [("other", Some(query("other"))), ("web", Some(query("web"))), ("bad", Some(bad))];
    one.set_fault(AgentFault::Answer { status: 500, index: 1, body: "rpc error".to_owned() });
    let watch = ProviderWatch::services(options(&[one.url(), other.url()]), services);
    watch.wait_for("other", &["10.0.0.1"]).await;
    // Each of the two fails far more often than the provider tolerates of one agent.
    eventually("refusals", async || match one.requests() {
        requests if requests > 30 => Ok(()),
        requests => Err(requests),
    })
    .await;
    assert_eq!(other.requests(), 0);
    for name in ["web", "bad"] {
        let name: ServiceName = name.parse().unwrap();
        assert!(watch.now().troubles.contains_key(&name));
    }
}

#[tokio::test]
async fn services_beyond_max_connections_share_connections() {
    let Some(consul) = Consul::dev().await else { return };
    let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    let services = names.iter().map(|name| (name.as_str(), Some(query(name))));
    let few = ConsulOptions { max_connections: 3, ..options(&[consul.url(0)]) };
    let watch = ProviderWatch::services(few, services);
    for name in &names {
        watch.wait_for(name, &[]).await;
    }
    for (n, name) in names.iter().enumerate() {
        consul.register(name, name, &format!("10.0.0.{n}")).await;
        watch.wait_for(name, &[&format!("10.0.0.{n}")]).await;
    }
    let connections = consul.connections(0);
    assert!((2..=4).contains(&connections), "{connections}");
}

#[tokio::test]
async fn provider_subscribers_never_see_older_state() {
    let Some(consul) = Consul::dev().await else { return };
    let web = ProviderWatch::web(options(&[consul.url(0)]));
    // Subscribed before the first answer: unknown, not empty.
    let mut early = web.reports.clone();
    web.wait_for("web", &[]).await;
    // An addition that a removal cancels is not reported on its own.
    for round in 0..20 {
        consul.register("web", "a", "10.0.0.1").await;
        consul.deregister("a").await;
        let name = format!("10.0.1.{round}");
        consul.register("web", "b", &name).await;
        web.wait_for("web", &[&name]).await;
        let seen = early.borrow_and_update().clone();
        assert_eq!(seen, web.now());
    }
    // Each wake-up reports a state at least as new as the one before.
    let watched = tokio::spawn(async move {
        let mut last = 0;
        while early.changed().await.is_ok() {
            let now = early.borrow_and_update().clone();
            let index = now.services.values().map(|found| found.index).max().unwrap_or(0);
            assert!(index >= last, "{index} after {last}");
            last = index;
            if now.services.values().any(|found| found.endpoints.len() == 4) {
                return;
            }
        }
        panic!("the provider ended before all was seen");
    });
    for (id, address) in [("x", "10.0.2.1"), ("y", "10.0.2.2"), ("z", "10.0.2.3")] {
        consul.register("web", id, address).await;
    }
    watched.await.unwrap();
}
