//! A well-behaved client that must be served while another client misbehaves.

use ironmesh_xds_wire::ResourceType::Cluster;

use crate::client::{Stream, names};
use crate::server::{Server, cluster};
use ironmesh_tests::authority::Identity;

pub(crate) struct Bystander {
    client: Identity,
    stream: Stream,
    pushes: u32,
}

impl Bystander {
    pub(crate) async fn open(server: &Server) -> Self {
        let client = server.authority.proxy();
        let stream = Stream::open(server, &client).await;
        Self { client, stream, pushes: 0 }
    }

    /// Publishes a resource, waits for the push and ACKs it.
    pub(crate) async fn assert_served(&mut self, server: &Server) {
        self.pushes += 1;
        let (resource, set) = cluster("bystander", &self.pushes.to_string());
        server.publish(&self.client, set).await;
        let push = self.stream.push().await;
        assert_eq!(names(&push), ["bystander"]);
        self.stream.answer(&push, None).await;
        let version = resource.version();
        server
            .status_where(&self.client, "it has its push", |status| {
                status.has(Cluster, "bystander", version)
            })
            .await;
    }
}
