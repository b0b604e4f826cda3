//! The alarm about one proxy identity that connects from two machines.

use ironmesh_xds_server::SILENCE_LIMIT;
use ironmesh_xds_server::simulated::SimulatedClient;

use super::harness::{Harness, node};

#[tokio::test(start_paused = true)]
async fn identity_on_two_machines_raises_an_alarm_until_one_is_left() {
    let mut harness = Harness::open(
        "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n",
    );
    let record = harness.join(1, &["store"]);
    let come = |address: &str| {
        let address = address.parse().unwrap();
        SimulatedClient::connect_from(&harness.hub, &record.id.to_string(), node(&record), address)
    };
    let (own, restarted) = (come("10.0.0.1:5"), come("10.0.0.1:6"));
    let thief = come("10.0.0.2:7");
    drop(thief);
    harness.tick(harness.now);
    assert!(
        harness.feeds.duplicates.borrow().is_empty(),
        "two streams from one machine are a hot restart"
    );
    assert!(
        harness.reconciler.duplicates.deadline().is_some(),
        "the duplicate check has a deadline"
    );

    let address = "10.0.0.2:8".parse().unwrap();
    let thief =
        SimulatedClient::connect_from(&harness.hub, &record.id.to_string(), node(&record), address);
    harness.pass();
    assert!(
        harness.feeds.duplicates.borrow().is_empty(),
        "the machine of the proxy may have changed its address"
    );
    tokio::time::advance(SILENCE_LIMIT).await;
    harness.pass();
    let alarm = harness.feeds.duplicates.borrow().get(&record.id).cloned().expect("an alarm");
    for address in ["10.0.0.1:5", "10.0.0.2:8"] {
        assert!(alarm.message.contains(address), "{}", alarm.message);
    }
    drop((own, restarted));
    harness.pass();
    assert!(harness.feeds.duplicates.borrow().is_empty());
    drop(thief);
}

#[tokio::test(start_paused = true)]
async fn identity_at_two_control_planes_raises_an_alarm_at_both() {
    let policy = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";
    let mut all = [(); 2].map(|()| Harness::open(policy));
    let peers = all.each_mut().map(Harness::follow_peers);
    let record = all.each_ref().map(|harness| harness.join(1, &["store"]))[0].clone();
    let come = |harness: &Harness, address: &str| {
        let (id, address) = (record.id.to_string(), address.parse().unwrap());
        SimulatedClient::connect_from(&harness.hub, &id, node(&record), address)
    };
    let exchange = |all: &mut [Harness; 2]| {
        all.iter_mut().for_each(Harness::pass);
        for (own, other) in [(0, 1), (1, 0)] {
            peers[own].learn_from(&peers[other]);
            all[own].pass();
        }
    };
    let alarms = |all: &[Harness; 2]| {
        let alarm = |harness: &Harness| harness.feeds.duplicates.borrow().get(&record.id).cloned();
        all.each_ref().map(|harness| alarm(harness).map(|finding| finding.message))
    };
    let own = come(&all[0], "10.0.0.1:5");
    let thief = come(&all[1], "10.0.0.2:6");
    exchange(&mut all);
    assert_eq!(alarms(&all), [None, None], "it may have moved");
    tokio::time::advance(SILENCE_LIMIT * 2).await;
    exchange(&mut all);
    for message in alarms(&all) {
        let message = message.expect("an alarm");
        assert!(message.contains("10.0.0.1:5") && message.contains("10.0.0.2:6"), "{message}");
        assert!(message.contains("at control plane cp-2"), "{message}");
    }
    drop(own);
    exchange(&mut all);
    assert_eq!(alarms(&all), [None, None]);
    drop(thief);
}
