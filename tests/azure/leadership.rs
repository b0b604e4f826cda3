//! One control plane of a group queries Azure, and the others follow its report.

use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::azure::Azure;
use ironmesh_tests::azure::{Machine, RequestKind, ScaleSet};
use ironmesh_tests::eventually;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::watch::{ProviderWatch, at, options, scale_set, shop, specification};

#[tokio::test]
async fn follower_uses_leader_state_without_polling_azure() {
    let azure = shop().await;
    let leadership = watch::Sender::new(false);
    let follower = Azure::start(options(&azure), Timestamp::now, leadership.subscribe()).unwrap();
    follower.follow(&specification([("web", vec![scale_set("web")])]));
    let reported = follower.reports();
    let count = |wanted: usize| {
        let mut reported = reported.clone();
        async move {
            eventually(&format!("{wanted} endpoints"), async || {
                let now = reported.borrow_and_update().clone();
                let found = now.services.values().next().map_or(0, |one| one.endpoints.len());
                if found == wanted && now.is_complete { Ok(now) } else { Err(format!("{now:?}")) }
            })
            .await
        }
    };
    // Another control plane leads.
    let poller = ProviderWatch::web(options(&azure));
    poller.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    assert!(reported.borrow().services.is_empty());
    follower.adopt(poller.provider.shared_reports().borrow().clone());
    count(2).await;
    drop(poller);
    let requests = azure.calls();
    azure.change(|vms| vms.machines.push(Machine::of("web", "2", "10.0.0.3")));
    // This one leads: the followed report stays until it has its own.
    leadership.send_replace(true);
    count(3).await;
    assert!(azure.calls() > requests);
    // It leads no more: its report stays, and it queries nothing.
    leadership.send_replace(false);
    let known = count(3).await;
    follower.adopt(follower.shared_reports().borrow().clone());
    azure.change(|vms| vms.machines.remove(0));
    let after = eventually("no requests in flight", async || {
        let (before, ()) = (azure.calls(), tokio::task::yield_now().await);
        if azure.calls() == before { Ok(before) } else { Err("asking") }
    })
    .await;
    follower
        .follow(&specification([("web", vec![scale_set("web")]), ("two", vec![scale_set("web")])]));
    eventually("the new machine to stay unknown", async || {
        if reported.borrow().is_complete { Err("complete") } else { Ok(()) }
    })
    .await;
    assert!(azure.calls() <= after + 6, "{} {after}", azure.calls());
    assert_eq!(reported.borrow().services, known.services);
}

#[tokio::test]
async fn follower_ignores_leader_state_of_a_different_query() {
    let azure = shop().await;
    azure.change(|vms| {
        vms.scale_sets.insert("next".to_owned(), ScaleSet::default());
        vms.machines.push(Machine::of("next", "0", "10.1.0.1"));
    });
    let of = |set: &str| specification([("web", vec![scale_set(set)])]);
    let leadership = watch::Sender::new(false);
    let follower = Azure::start(options(&azure), Timestamp::now, leadership.subscribe()).unwrap();
    let poller = ProviderWatch::web(options(&azure));
    let mut reports = follower.reports();
    // Follows the other's report until a condition holds, and returns the service's endpoints.
    let mut becomes = async |what: &str, is_complete: bool, endpoints: &[&str]| {
        eventually(what, async || {
            follower.adopt(poller.provider.shared_reports().borrow().clone());
            let now = reports.borrow_and_update().clone();
            let found = now.services.values().next().map(|found| at(found)).unwrap_or_default();
            // No report ever has endpoints of another scale set than the current policy's.
            let matches = found == endpoints.iter().map(ToString::to_string).collect();
            assert!(matches || found.is_empty() || endpoints.is_empty(), "{now:?}");
            if matches && now.is_complete == is_complete { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    };
    follower.follow(&of("web"));
    becomes("the same question", true, &["10.0.0.1", "10.0.0.2"]).await;
    assert!(!follower.queries_differ());
    // The follower gets the policy first.
    follower.follow(&of("next"));
    becomes("an unknown service", false, &[]).await;
    assert!(follower.queries_differ());
    poller.provider.follow(&of("next"));
    becomes("the next one", true, &["10.1.0.1"]).await;
    assert!(!follower.queries_differ());
    // And once more, the leader first.
    poller.provider.follow(&of("web"));
    poller.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    becomes("an unknown service again", false, &[]).await;
    assert!(follower.queries_differ());
    follower.follow(&of("web"));
    becomes("all again", true, &["10.0.0.1", "10.0.0.2"]).await;
    assert_eq!(azure.count(RequestKind::Metadata), 1, "only the leader has polled");
}
