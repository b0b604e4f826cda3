//! Proxies that leave: callers get their endpoints as draining, until the leave ends.

use std::time::Duration;

use ironmesh_catalog::{Health, JoinRecord, Revocation, ServicePort};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType;
use jiff::Timestamp;
use tokio::time::{Instant, advance};

use super::harness::Harness;
use crate::leave_table::{LeaveMark, MARK_LIFETIME};

pub(super) const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"

[[service]]
name = "clerk"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

pub(super) struct Mesh {
    pub(super) harness: Harness,
    pub(super) record: JoinRecord,
    pub(super) store: SimulatedClient,
    pub(super) buyer: SimulatedClient,
    pub(super) clerk: SimulatedClient,
}

impl Mesh {
    pub(super) fn settled() -> Self {
        let mut harness = Harness::open(POLICY);
        let record = harness.join(1, &["store"]);
        let mut store = harness.connect(&record);
        let mut buyer = harness.proxy(2, &["buyer"]);
        let mut clerk = harness.proxy(3, &["clerk"]);
        harness.settle(&mut [&mut store, &mut buyer, &mut clerk]);
        harness.pass();
        Self { harness, record, store, buyer, clerk }
    }

    pub(super) fn leave(&mut self) -> LeaveMark {
        let client = self.record.id.to_string();
        let starts = self.harness.hub.process_starts(&client);
        let mark = self.harness.leaves.leave(
            self.record.id,
            starts,
            true,
            Timestamp::now(),
            Instant::now(),
        );
        self.harness.pass();
        mark
    }

    pub(super) fn health(&self) -> Health {
        let snapshot = self.harness.feeds.snapshot.borrow().clone().unwrap();
        let port = ServicePort::new("store".parse().unwrap(), 80);
        let hosts = &snapshot.endpoints[&port];
        assert_eq!(hosts.len(), 1, "it stays a participant");
        hosts[0].health
    }

    fn is_acked(&self, mark: LeaveMark) -> bool {
        self.harness.feeds.convergence.borrow().has_acked_leave(self.record.id, mark.change)
    }

    fn pending(&self, mark: LeaveMark) -> Vec<u128> {
        let convergence = self.harness.feeds.convergence.borrow();
        convergence.pending_leave(self.record.id, mark.change).map(|id| id.0.as_u128()).collect()
    }
}

pub(super) fn endpoints(client: &SimulatedClient) -> String {
    let set = client.set();
    set.of(ResourceType::Endpoint)["default/store|80"].to_json().to_string()
}

#[tokio::test(start_paused = true)]
async fn leaving_proxy_drains_for_its_callers_alone() {
    let mut mesh = Mesh::settled();
    let sets = mesh.harness.hub.counters().sets();
    let local = mesh.store.set();
    let mark = mesh.leave();
    assert_eq!(mesh.health(), Health::Draining);
    assert!(endpoints(&mesh.buyer).contains("DRAINING"), "{}", endpoints(&mesh.buyer));
    assert_eq!(mesh.harness.hub.counters().sets() - sets, 1, "only the buyer calls it");
    assert!(mesh.store.set().is_same_as(&local), "it serves what arrives");
    assert!(!mesh.is_acked(mark));
    assert_eq!(mesh.pending(mark), [2]);
    mesh.buyer.ack_all();
    mesh.harness.pass();
    assert!(mesh.is_acked(mark));

    // A repeated request changes nothing.
    let generations = mesh.harness.feeds.convergence.borrow().generations();
    let again = mesh.leave();
    assert_eq!((again.change, again.is_new), (mark.change, false));
    assert_eq!(mesh.harness.feeds.convergence.borrow().generations(), generations);
    assert!(mesh.is_acked(mark));
    mesh.clerk.ack_all();
}

#[tokio::test(start_paused = true)]
async fn disconnected_caller_does_not_delay_a_leave() {
    let mut mesh = Mesh::settled();
    let mark = mesh.leave();
    assert_eq!(mesh.pending(mark), [2]);
    let Mesh { buyer, .. } = mesh;
    drop(buyer);
    mesh.harness.pass();
    let convergence = mesh.harness.feeds.convergence.borrow();
    assert!(convergence.has_acked_leave(mesh.record.id, mark.change));
}

#[tokio::test(start_paused = true)]
async fn leave_ends_by_rejoining_and_by_its_time() {
    let mut mesh = Mesh::settled();
    mesh.leave();
    assert!(mesh.harness.leaves.rejoin(mesh.record.id));
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Healthy);
    assert!(!endpoints(&mesh.buyer).contains("DRAINING"));

    mesh.leave();
    assert!(mesh.harness.reconciler.deadline() <= Instant::now() + MARK_LIFETIME);
    advance(MARK_LIFETIME.checked_sub(Duration::from_secs(1)).unwrap()).await;
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Draining);
    advance(Duration::from_secs(1)).await;
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Healthy);
}

#[tokio::test(start_paused = true)]
async fn leave_ends_when_a_new_envoy_alone_is_configured() {
    let mut mesh = Mesh::settled();
    mesh.leave();
    // The Envoy that drains loses its stream, and opens it again.
    let Mesh { mut harness, record, store, buyer, clerk } = mesh;
    drop(store);
    harness.pass();
    let store = harness.returning(1);
    harness.pass();
    let mesh = Mesh { harness, record, store, buyer, clerk };
    assert_eq!(mesh.health(), Health::Draining);
    // It ends, and a new one starts.
    let Mesh { mut harness, record, store, buyer, clerk } = mesh;
    drop(store);
    harness.pass();
    let store = harness.connect(&record);
    harness.pass();
    let mut mesh = Mesh { harness, record, store, buyer, clerk };
    assert_eq!(mesh.health(), Health::Draining, "its ports are closed");
    mesh.harness.settle(&mut [&mut mesh.store, &mut mesh.buyer]);
    mesh.harness.pass();
    assert_eq!(mesh.health(), Health::Healthy);
    assert_eq!(mesh.harness.leaves.since(mesh.record.id), None);
}

#[tokio::test(start_paused = true)]
async fn revoked_proxy_is_not_leaving() {
    let mut mesh = Mesh::settled();
    mesh.leave();
    let revocation = Revocation::by_operator(mesh.harness.now, None);
    mesh.harness.register.revoke(&[mesh.record.id], &revocation).unwrap();
    mesh.harness.pass();
    assert_eq!(mesh.harness.leaves.since(mesh.record.id), None);
    assert!(!endpoints(&mesh.buyer).contains("10.0.0.1"));
}

#[test]
fn last_proxy_of_a_service_leaves_no_finding_when_it_is_revoked() {
    let mut mesh = Mesh::settled();
    let revocation = Revocation::by_operator(mesh.harness.now, None);
    mesh.harness.register.revoke(&[mesh.record.id], &revocation).unwrap();
    mesh.harness.pass();
    assert!(mesh.harness.feeds.findings.borrow().is_empty());
    drop(mesh.store);
    mesh.harness.pass();
    let now = mesh.harness.now;
    mesh.harness.tick(now);
    assert!(mesh.harness.feeds.findings.borrow().is_empty());
}
