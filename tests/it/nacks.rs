//! Clients that NACK every response as fast as they can.

use std::sync::Arc;

use ironmesh_tests::eventually;
use ironmesh_xds_wire::ResourceType::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster as ClusterMessage;
use ironmesh_xds_wire::{Resource, ResourceSet};

use crate::bystander::Bystander;
use crate::client::{Stream, names};
use crate::server::Server;
use crate::sotw::{self, SotwStream};
use ironmesh_tests::authority::Identity;

/// The number of clusters, all of which may be NACKed.
const COUNT: usize = 200;

fn clusters(content: &str) -> ResourceSet {
    let mut set = ResourceSet::default();
    for n in 0..COUNT {
        set.insert(Arc::new(Resource::new(&ClusterMessage {
            name: format!("{n:03}"),
            alt_stat_name: content.to_owned(),
            ..ClusterMessage::default()
        })));
    }
    set
}

/// Whether the server counts every resource as NACKed.
fn is_all_nacked(server: &Server, client: &Identity) -> bool {
    server.hub.status_of(&client.name()).is_some_and(|status| status.nacks.len() == COUNT)
}

/// Waits until the server has counted this many NACKs.
async fn wait_for_nacks(server: &Server, refusals: u32) {
    eventually("a NACK to be counted", async || match server.hub.counters().nacks(Cluster) {
        heard if heard == u64::from(refusals) => Ok(()),
        heard => Err(heard),
    })
    .await;
}

/// Bisection finds each of `COUNT` resources in fewer than twice as many pushes, and no push
/// follows.
fn pushes(server: &Server) -> u64 {
    server.hub.counters().pushes(Cluster)
}

/// A42 (bystander).
#[tokio::test]
async fn client_nacking_everything_gets_bounded_pushes() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, clusters("bad")).await;
    let (before, mut others) = (pushes(&server), 0);
    for refusals in 1_u32.. {
        let push = stream.push().await;
        stream.answer(&push, Some("no")).await;
        if refusals % 50 == 0 {
            bystander.assert_served(&server).await;
            others += 1;
        }
        wait_for_nacks(&server, refusals).await;
        if is_all_nacked(&server, &client) {
            break;
        }
        assert!(usize::try_from(refusals).unwrap() <= 2 * COUNT, "the server keeps pushing");
    }
    assert!(others > 3, "the other was served {others} times meanwhile");
    assert!(pushes(&server) - before - others <= 2 * COUNT as u64);
    // NACKed versions are not sent again, and new versions are.
    let mut set = clusters("bad");
    let new = ClusterMessage { name: "new".to_owned(), ..ClusterMessage::default() };
    set.insert(Resource::new(&new).into());
    server.publish(&client, set).await;
    assert_eq!(names(&stream.push().await), ["new"]);
    bystander.assert_served(&server).await;
}

/// A42. In this variant, a NACK rejects the whole response.
#[tokio::test]
async fn sotw_client_nacking_everything_gets_bounded_pushes() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut stream = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    server.publish(&client, ResourceSet::default()).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    server.publish(&client, clusters("bad")).await;
    let (before, mut others) = (pushes(&server), 0);
    let version = push.version_info;
    for refusals in 1_u32.. {
        let mut push = stream.push().await;
        // The client keeps its previous version.
        push.version_info.clone_from(&version);
        stream.answer(&push, Some("no")).await;
        if refusals % 50 == 0 {
            bystander.assert_served(&server).await;
            others += 1;
        }
        wait_for_nacks(&server, refusals).await;
        if is_all_nacked(&server, &client) {
            break;
        }
        assert!(usize::try_from(refusals).unwrap() <= 2 * COUNT, "the server keeps pushing");
    }
    assert!(others > 3, "the other was served {others} times meanwhile");
    assert!(pushes(&server) - before - others <= 2 * COUNT as u64);
    let mut set = clusters("bad");
    let new = ClusterMessage { name: "new".to_owned(), ..ClusterMessage::default() };
    set.insert(Resource::new(&new).into());
    server.publish(&client, set).await;
    assert_eq!(stream.push().await.resources.len(), 1, "the new one");
    bystander.assert_served(&server).await;
}
