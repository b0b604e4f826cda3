use std::sync::Arc;

use ironmesh_xds_wire::{ErrorDetail, Node, Resource, ResourceSet, ResourceType};

use super::ResourceState::{Acked, Nacked, NotAcked, PendingRemoval, Stale};
use super::*;
use crate::hub::LiveStream;
use crate::hub::{Connection, Hub, Reconnect};
use crate::stream;
use crate::test_resources::cluster;

fn connect(hub: &Arc<Hub>) -> Connection {
    hub.connect(
        "client".into(),
        Node::default(),
        Reconnect::Fresh,
        usize::MAX,
        LiveStream::begin(([127, 0, 0, 1], 1).into(), true),
    )
    .unwrap()
}

fn ack(connection: &Connection, resources: &[&Resource]) {
    let ack = stream::Acked {
        resource_type: ResourceType::Cluster,
        names: resources.iter().map(|one| Arc::clone(one.name())).collect(),
    };
    let has = resources.iter().map(|one| (Arc::clone(one.name()), one.version())).collect();
    connection.acked(&ack, has);
}

fn nack(connection: &Connection, resource: &Resource) {
    connection.nacked(&stream::Nacked {
        resource_type: ResourceType::Cluster,
        resources: vec![(Arc::clone(resource.name()), resource.version())],
        error: ErrorDetail { code: 13, message: "no such thing".to_owned() },
        is_final: true,
        keeps_earlier: true,
    });
}

fn statuses(hub: &Hub) -> Vec<(String, ResourceState)> {
    let report = hub.report("client").unwrap();
    let statuses = |one: &ResourceStatus| (one.name.to_string(), one.state());
    report.resources.iter().map(statuses).collect()
}

fn all(resources: &[&Arc<Resource>]) -> ResourceSet {
    let mut set = ResourceSet::default();
    for one in resources {
        set.insert(Arc::clone(one));
    }
    set
}

#[test]
fn sync_status_follows_the_acks_and_nacks_of_the_client() {
    let hub = Arc::new(Hub::default());
    assert!(hub.report("client").is_none(), "it never came");
    let connection = connect(&hub);
    let (a, b, b2, c) = (cluster("a", 1), cluster("b", 1), cluster("b", 2), cluster("c", 1));
    hub.publish("client", all(&[&a, &b, &c]));
    let named = |statuses: [ResourceState; 3]| -> Vec<_> {
        ["a", "b", "c"].map(str::to_owned).into_iter().zip(statuses).collect()
    };
    assert_eq!(statuses(&hub), named([NotAcked, NotAcked, NotAcked]));
    ack(&connection, &[&a, &b]);
    nack(&connection, &c);
    assert_eq!(statuses(&hub), named([Acked, Acked, Nacked]));
    let report = hub.report("client").unwrap();
    assert_eq!(report.resources[2].nack.as_ref().unwrap().message, "no such thing");

    hub.publish("client", all(&[&b2, &c]));
    let expected = [("b", Stale), ("c", Nacked), ("a", PendingRemoval)];
    assert_eq!(statuses(&hub), expected.map(|(name, statuses)| (name.to_owned(), statuses)));
    let report = hub.report("client").unwrap();
    assert_eq!(report.resources[0].acked, Some(b.version()));

    // The fallback of a NACKed version is ACKed, and the NACK stays beside it.
    nack(&connection, &b2);
    hub.publish("client", all(&[&b]));
    let report = hub.report("client").unwrap();
    let of_b = report.resources.iter().find(|one| &*one.name == "b").unwrap();
    assert_eq!(of_b.state(), Acked);
    assert_eq!(of_b.nack.as_ref().unwrap().version, b2.version());

    // ACKed versions end with their stream.
    drop(connection);
    let report = hub.report("client").unwrap();
    assert_eq!((report.streams, report.resources.len()), (0, 0));
}
