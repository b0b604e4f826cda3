//! Cordons and versions of proxies in the register.

use ironmesh_catalog::{CordonMode, MachineDrainState};

use super::*;
use crate::register::CordonOrder;

fn order(mode: CordonMode, by: &str, at: Timestamp) -> CordonOrder {
    let reason = Some("a new disk".to_owned());
    CordonOrder { mode, by: Some(by.to_owned()), reason, at }
}

#[test]
fn cordon_survives_restarts_until_it_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let id = record(1, now).id;
    let register = Register::open(store(&folder), now).unwrap();
    register.add(record(1, now)).unwrap();
    let members = register.generation().borrow().members;
    assert!(register.cordon(id, &order(CordonMode::Cordon, "ann", now)).unwrap());
    let later = now + SignedDuration::from_secs(5);
    assert!(!register.cordon(id, &order(CordonMode::Cordon, "bob", later)).unwrap());
    drop(register);
    let register = Register::open(store(&folder), now).unwrap();
    let cordon = register.get(id).unwrap().cordon.clone().unwrap();
    assert_eq!(
        (cordon.since, cordon.by.as_deref(), cordon.mode()),
        (now, Some("ann"), CordonMode::Cordon)
    );
    assert!(register.cordon(id, &order(CordonMode::Drain, "bob", later)).unwrap());
    assert_eq!(ids(&register.records()), [1], "it stays in use");
    assert!(register.uncordon(id).unwrap() && !register.uncordon(id).unwrap());
    assert_eq!(register.generation().borrow().members, 0, "no member comes or goes");
    assert_eq!(members, 1);
    drop(register);
    let register = Register::open(store(&folder), now).unwrap();
    assert_eq!(register.get(id).unwrap().cordon, None);
    let unknown = record(9, now).id;
    assert!(!register.cordon(unknown, &order(CordonMode::Cordon, "ann", now)).unwrap());
}

#[test]
fn late_report_about_an_earlier_drain_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let (id, second) = (record(1, now).id, now + SignedDuration::from_secs(60));
    let register = Register::open(store(&folder), now).unwrap();
    register.add(record(1, now)).unwrap();
    let report =
        |ordered, state| register.record_machine_drain(id, ordered, state, second).unwrap();
    let state = || {
        let record = register.get(id).unwrap();
        record.cordon.as_ref()?.drain.as_ref()?.machine.map(|machine| machine.state)
    };
    report(now, MachineDrainState::Draining);
    assert_eq!(state(), None, "it is in service");
    register.cordon(id, &order(CordonMode::Drain, "ann", now)).unwrap();
    report(now, MachineDrainState::Draining);
    assert_eq!(state(), Some(MachineDrainState::Draining));
    let changes = register.generation().borrow().changes;
    report(now, MachineDrainState::Draining);
    assert_eq!(register.generation().borrow().changes, changes, "a repeated report is no change");
    report(now, MachineDrainState::Drained);
    assert_eq!(state(), Some(MachineDrainState::Drained));
    register.uncordon(id).unwrap();
    register.cordon(id, &order(CordonMode::Drain, "ann", second)).unwrap();
    report(now, MachineDrainState::Drained);
    assert_eq!(state(), None, "the machine has not carried out the second order");
}

#[test]
fn versions_outlive_connections_and_change_no_callers() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let id = record(1, now).id;
    let register = Register::open(store(&folder), now).unwrap();
    register.add(record(1, now)).unwrap();
    let served = record(1, now).participation;
    let progress = |envoy: Option<&str>| Progress {
        envoy: envoy.map(str::to_owned),
        ..AckedPorts::Exactly(&served).into()
    };
    register.record_progress([(id, progress(Some("1.40.0")))]).unwrap();
    register.record_agent_version(id, "0.2.0").unwrap();
    let changes = register.generation().borrow().changes;
    register.record_agent_version(id, "0.2.0").unwrap();
    register.record_progress([(id, progress(None))]).unwrap();
    assert_eq!(register.generation().borrow().changes, changes);
    register.record_envoy_version(id, "1.30.1").unwrap();
    drop(register);
    let register = Register::open(store(&folder), now).unwrap();
    let versions = register.get(id).unwrap().versions.clone();
    assert_eq!(
        (versions.envoy.as_deref(), versions.agent.as_deref()),
        (Some("1.30.1"), Some("0.2.0"))
    );
}
