//! The cost of a change, counted and not timed (invariant 5).

use ironmesh_tests::eventually;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::{ResourceSet, ResourceType};

use crate::client::{Stream, clusters, connect};
use crate::server::{Server, cluster};
use ironmesh_tests::authority::Identity;

/// The number of clients, and the number of them that a change affects.
const CLIENTS: usize = 20;
const AFFECTED: usize = 5;

fn pushes(server: &Server) -> u64 {
    let counters = server.hub.counters();
    ResourceType::ALL.into_iter().map(|of| counters.pushes(of)).sum()
}

/// Waits until the server has counted this many ACKs.
async fn acks(server: &Server, wanted: usize) {
    eventually("the ACKs", async || match server.hub.counters().acks(ResourceType::Cluster) {
        acks if acks == u64::try_from(wanted).unwrap() => Ok(()),
        acks => Err(acks),
    })
    .await;
}

/// Ten clusters; the first has this content.
fn base(content: &str) -> ResourceSet {
    let mut set = ResourceSet::default();
    for n in 0..10 {
        let content = if n == 0 { content } else { "same" };
        set.insert(cluster(&format!("c{n}"), content).0);
    }
    set
}

async fn synced_clients(server: &Server, set: &ResourceSet) -> Vec<(Identity, Stream)> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = server.authority.proxy();
        let mut stream = Stream::open(server, &client).await;
        server.publish(&client, set.clone()).await;
        let push = stream.push().await;
        assert_eq!(push.resources.len(), 10);
        stream.answer(&push, None).await;
        clients.push((client, stream));
    }
    acks(server, CLIENTS).await;
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn change_pushes_only_changed_resources_to_affected_clients() {
    let server = Server::start().await;
    let set = base("1");
    let mut clients = synced_clients(&server, &set).await;
    let before = pushes(&server);
    let mut changed = set.clone();
    changed.insert(cluster("c0", "2").0);
    for (client, _) in clients.iter().take(AFFECTED) {
        server.hub.publish(&client.name(), changed.clone());
    }
    for (_, stream) in clients.iter_mut().take(AFFECTED) {
        let push = stream.push().await;
        assert_eq!(push.resources.len(), 1, "only what has changed");
        stream.answer(&push, None).await;
    }
    acks(&server, CLIENTS + AFFECTED).await;
    assert_eq!(pushes(&server), before + u64::try_from(AFFECTED).unwrap());

    // The same content without shared allocations: the server sends nothing.
    for (client, _) in clients.iter().take(AFFECTED) {
        server.hub.publish(&client.name(), base("2"));
    }
    // The next push has the next change.
    let (client, stream) = clients.first_mut().unwrap();
    let mut last = base("2");
    last.insert(cluster("c0", "3").0);
    server.hub.publish(&client.name(), last);
    let push = stream.push().await;
    assert_eq!(push.resources[0].name, "c0");
    assert_eq!(pushes(&server), before + u64::try_from(AFFECTED).unwrap() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnect_resends_nothing() {
    let server = Server::start().await;
    let set = base("1");
    let clients = synced_clients(&server, &set).await;
    let before = pushes(&server);
    let mut again = Vec::new();
    for (client, stream) in clients {
        drop(stream);
        let gone = |status: &ironmesh_xds_server::ClientStatus| status.streams == 0;
        server.status_where(&client, "it has gone", gone).await;
        let versions = set.of(ResourceType::Cluster).values();
        let versions = versions.map(|one| (one.name().to_string(), one.version().to_string()));
        let first = DeltaDiscoveryRequest {
            initial_resource_versions: versions.collect(),
            ..clusters(&client)
        };
        again.push((Stream::begin(connect(&server, &client).await, first).await, client));
    }
    for (_, client) in &again {
        server.publish(client, set.clone()).await;
        let (one, version) = (set.of(ResourceType::Cluster), ResourceType::Cluster);
        let has = |status: &ironmesh_xds_server::ClientStatus| {
            one.values().all(|one| status.has(version, one.name(), one.version()))
        };
        server.status_where(client, "it has all", has).await;
    }
    assert_eq!(pushes(&server), before);
}
