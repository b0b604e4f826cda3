//! The acceptances of endpoint removals: those of a newer version, and old ones.

use std::collections::BTreeMap;

use ironmesh_catalog::{EndpointAcceptance, Provider, ServiceName};
use jiff::{SignedDuration, Timestamp};

use super::State;
use crate::{RecordStore as _, accepted_removals, mesh_state};

#[test]
fn unreadable_acceptance_blocks_no_other_one_and_stays() {
    let store = State::new().open().unwrap();
    let state = super::mesh_state(&store);
    let accepted = |at| {
        let left = BTreeMap::from([(Provider::Consul, 1)]);
        EndpointAcceptance { at, left }
    };
    let service = |name: &str| -> ServiceName { name.parse().unwrap() };
    let begin = Timestamp::UNIX_EPOCH;
    state.put_accepted_removal(&service("shop/old"), &accepted(begin)).unwrap();
    // A newer version has stored it.
    let value = br#"["shop/newer",{"until":7}]"#.to_vec().into();
    let key = "shop/newer".to_owned();
    store.commit(&[mesh_state::put(accepted_removals::ACCEPTED_REMOVALS, key, value)]).unwrap();

    let one = accepted(begin + SignedDuration::from_hours(24 * 365));
    state.put_accepted_removal(&service("shop/store"), &one).unwrap();
    let (read, unreadable) = state.accepted_removals().unwrap();
    assert_eq!(read, [(service("shop/store"), one)].into(), "the old one is removed");
    assert_eq!(unreadable, ["shop/newer"]);
}
