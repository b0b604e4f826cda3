//! One control plane of a group asks, and the others follow what it has found.

use ironmesh_providers::EndpointsProvider as _;
use ironmesh_providers::azure::Azure;
use ironmesh_tests::azure::Machine;
use ironmesh_tests::eventually;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::watching::{Watching, options, scale_set, shop, specification};

#[tokio::test]
async fn who_has_no_turn_asks_nothing_and_knows_what_it_is_told() {
    let azure = shop().await;
    let turn = watch::Sender::new(false);
    let follower = Azure::start(options(&azure), Timestamp::now, turn.subscribe()).unwrap();
    follower.follow(&specification([("web", vec![scale_set("web")])]));
    let told = follower.told();
    let count = |wanted: usize| {
        let mut told = told.clone();
        async move {
            eventually(&format!("{wanted} endpoints"), async || {
                let now = told.borrow_and_update().clone();
                let found = now.services.values().next().map_or(0, |one| one.endpoints.len());
                if found == wanted && now.is_complete { Ok(now) } else { Err(format!("{now:?}")) }
            })
            .await
        }
    };
    // Another one's turn.
    let poller = Watching::web(options(&azure));
    poller.finds("web", &["10.0.0.1", "10.0.0.2"]).await;
    assert!(told.borrow().services.is_empty());
    follower.take(poller.now());
    count(2).await;
    drop(poller);
    let asked = azure.calls();
    azure.change(|world| world.machines.push(Machine::of("web", "2", "10.0.0.3")));
    // Our turn: what was taken stays until we know more.
    turn.send_replace(true);
    count(3).await;
    assert!(azure.calls() > asked);
    // And no more: what we know stays, and nobody is asked.
    turn.send_replace(false);
    let known = count(3).await;
    follower.take(known.clone());
    azure.change(|world| world.machines.remove(0));
    let after = eventually("nothing under way", async || {
        let (before, ()) = (azure.calls(), tokio::task::yield_now().await);
        if azure.calls() == before { Ok(before) } else { Err("asking") }
    })
    .await;
    follower
        .follow(&specification([("web", vec![scale_set("web")]), ("two", vec![scale_set("web")])]));
    eventually("what is new not to be known", async || {
        if told.borrow().is_complete { Err("complete") } else { Ok(()) }
    })
    .await;
    assert!(azure.calls() <= after + 6, "{} {after}", azure.calls());
    assert_eq!(told.borrow().services, known.services);
}
