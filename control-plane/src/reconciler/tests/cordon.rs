//! Cordoned proxies: callers get their endpoints as draining, until an operator returns them.

use ironmesh_catalog::{CordonMode, Health, Revocation};
use ironmesh_xds_wire::ResourceType;
use jiff::Timestamp;
use tokio::time::advance;

use super::leave::{Mesh, POLICY, endpoints};
use crate::leave_table::{CordonMark, MARK_LIFETIME};
use crate::reconciler::EndpointsOptions;
use crate::register::CordonOrder;

fn order(mode: CordonMode) -> CordonOrder {
    CordonOrder { mode, by: None, reason: None, at: Timestamp::now() }
}

impl Mesh {
    fn cordon(&mut self) -> CordonMark {
        assert!(self.harness.register.cordon(self.record.id, &order(CordonMode::Cordon)).unwrap());
        self.harness.pass();
        self.harness.leaves.cordon(self.record.id).unwrap()
    }

    fn is_cordon_acked(&self, mark: CordonMark) -> bool {
        self.harness.feeds.convergence.borrow().has_acked_leave(self.record.id, mark.change)
    }
}

#[tokio::test(start_paused = true)]
async fn cordoned_proxy_drains_for_its_callers_alone_and_returns() {
    let mut mesh = Mesh::settled();
    let sets = mesh.harness.hub.counters().sets();
    let local = mesh.store.set();
    let mark = mesh.cordon();
    assert_eq!(mesh.health(), Health::Draining);
    assert!(endpoints(&mesh.buyer).contains("DRAINING"), "{}", endpoints(&mesh.buyer));
    assert_eq!(mesh.harness.hub.counters().sets() - sets, 1, "only the buyer calls it");
    assert!(mesh.store.set().is_same_as(&local), "it serves what arrives");
    assert!(!mesh.is_cordon_acked(mark));
    mesh.buyer.ack_all();
    mesh.harness.pass();
    assert!(mesh.is_cordon_acked(mark));
    let generations = mesh.harness.feeds.convergence.borrow().generations();

    // A drain of a cordoned proxy changes nothing for callers.
    assert!(mesh.harness.register.cordon(mesh.record.id, &order(CordonMode::Drain)).unwrap());
    mesh.harness.pass();
    assert_eq!(mesh.harness.leaves.cordon(mesh.record.id), Some(mark));
    let now = mesh.harness.feeds.convergence.borrow().generations();
    assert_eq!(now.leaves, generations.leaves);
    assert!(mesh.is_cordon_acked(mark));

    assert!(mesh.harness.register.uncordon(mesh.record.id).unwrap());
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Healthy);
    assert!(!endpoints(&mesh.buyer).contains("DRAINING"));
    mesh.clerk.ack_all();
}

#[tokio::test(start_paused = true)]
async fn new_envoy_and_a_restart_of_the_control_plane_keep_a_cordon() {
    let mut mesh = Mesh::settled();
    mesh.cordon();
    mesh.leave();
    let Mesh { mut harness, record, store, buyer, clerk } = mesh;
    drop(store);
    harness.pass();
    let store = harness.connect(&record);
    let mut mesh = Mesh { harness, record, store, buyer, clerk };
    mesh.harness.settle(&mut [&mut mesh.store, &mut mesh.buyer]);
    mesh.harness.pass();
    assert_eq!(mesh.harness.leaves.since(mesh.record.id), None, "the leave has ended");
    assert_eq!(mesh.health(), Health::Draining);
    advance(MARK_LIFETIME * 3).await;
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Draining);

    let Mesh { harness, .. } = mesh;
    let mut harness = harness.restarted(POLICY, EndpointsOptions::default());
    let mut buyer = harness.returning(2);
    let mut store = harness.returning(1);
    harness.settle(&mut [&mut store, &mut buyer]);
    assert!(endpoints(&buyer).contains("DRAINING"), "{}", endpoints(&buyer));
    assert!(buyer.set().of(ResourceType::Endpoint).contains_key("default/store|80"));
}

#[tokio::test(start_paused = true)]
async fn revocation_ends_the_mark_of_a_cordoned_proxy() {
    let mut mesh = Mesh::settled();
    mesh.cordon();
    let revocation = Revocation::by_operator(mesh.harness.now, None);
    mesh.harness.register.revoke(&[mesh.record.id], &revocation).unwrap();
    mesh.harness.pass();
    assert_eq!(mesh.harness.leaves.cordon(mesh.record.id), None);
    assert!(!mesh.harness.register.cordon(mesh.record.id, &order(CordonMode::Cordon)).unwrap());
    assert!(!endpoints(&mesh.buyer).contains("10.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn cordon_made_at_a_peer_takes_effect_and_is_acked_by_its_callers() {
    let mut mesh = Mesh::settled();
    let peers = mesh.harness.follow_peers();
    let mark = mesh.cordon();
    let id = mesh.record.id;
    assert!(peers.pending_cordon(id, mark.since).is_empty(), "there is no peer");
    let peer = crate::peers::Peers::default();
    peers.learn_from(&peer);
    assert_eq!(peers.pending_cordon(id, mark.since), ["cp-2"]);
    // An ACK of an earlier cordon is none of this one.
    peer.note(id, |note| note.acked_cordon = Some(Timestamp::UNIX_EPOCH));
    peers.learn_from(&peer);
    assert_eq!(peers.pending_cordon(id, mark.since), ["cp-2"]);
    peer.note(id, |note| note.acked_cordon = Some(mark.since));
    peers.learn_from(&peer);
    assert!(peers.pending_cordon(id, mark.since).is_empty());
    // This control plane tells its peers when its own callers have ACKed it, and forgets that when the cordon ends.
    mesh.buyer.ack_all();
    mesh.harness.pass();
    let noted = || {
        let received = crate::peers::Peers::default();
        received.learn_from(&peers);
        received.pending_cordon(id, mark.since).is_empty()
    };
    assert!(noted());
    mesh.harness.register.uncordon(id).unwrap();
    mesh.harness.pass();
    assert!(!noted());
}
